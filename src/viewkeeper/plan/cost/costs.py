"""Costs: the expected work of a plan in an epoch, and the records that it keeps.

In: nothing; `cost_model` makes them. Out: frozen values that add up. Always: numbers are for one epoch of the expected
size; divided by its changes they are those of one change.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from viewkeeper.model.work_stats import WorkStats

_SECONDS_MIN = 0.02  # of CPU time, from which on a weight is fitted
_FACTOR_MAX = 20.0


@dataclass(frozen=True, slots=True)
class TableCost:
    """A table: records read by key, read in key order and written, bytes written, and what it holds."""

    gets: float = 0.0
    scanned: float = 0.0
    writes: float = 0.0
    bytes: float = 0.0
    records: float = 0.0
    record_bytes: float = 0.0

    @property
    def stored_bytes(self) -> float:
        """Equation 6."""
        return self.records * self.record_bytes

    def plus(self, other: TableCost) -> TableCost:
        whole, records = self.stored_bytes + other.stored_bytes, self.records + other.records
        done = self.gets + other.gets, self.scanned + other.scanned, self.writes + other.writes
        return TableCost(*done, self.bytes + other.bytes, records, whole / records if records else other.record_bytes)


@dataclass(frozen=True, slots=True)
class NodeCost:
    """A node: changes of its base tables, delta rows that it reads, queries that it runs, and its tables, its own first."""

    changes: float
    computed: float
    steps: int
    tables: dict[int, TableCost]

    @property
    def reads(self) -> float:
        return sum(one.gets + one.scanned for one in self.tables.values())

    @property
    def writes(self) -> float:
        return sum(one.writes for one in self.tables.values())

    @property
    def bytes(self) -> float:
        return sum(one.bytes for one in self.tables.values())

    @property
    def records(self) -> float:
        return sum(one.records for one in self.tables.values())

    @property
    def stored_bytes(self) -> float:
        return sum(one.stored_bytes for one in self.tables.values())


@dataclass(frozen=True, slots=True)
class PlanCost:
    """All nodes of a plan, by their tables; `changes` are those of an epoch."""

    changes: float
    nodes: dict[int, NodeCost]

    def only(self, tables: Iterable[int]) -> PlanCost:
        chosen = set(tables)
        return PlanCost(self.changes, {table: node for table, node in self.nodes.items() if table in chosen})


@dataclass(frozen=True, slots=True)
class Weights:
    """CPU seconds for a record read by key, one read in key order, one written, a byte written, a delta row, and a query."""

    get: float = 1.3e-6
    scan: float = 1.5e-6
    put: float = 1.8e-6
    byte: float = 1e-8
    row: float = 0.5e-6
    step: float = 3e-3

    @staticmethod
    def fitted(measured: WorkStats, plan: PlanCost) -> Weights:
        """The weights with which `plan` explains the CPU time that epochs took: the defaults, each kind times a factor."""
        counts, default = measured.counts, Weights()
        done = list(counts.tables.values())
        gets = sum(one.gets * default.get + one.scanned * default.scan for one in done)
        puts = sum(one.writes * default.put + one.bytes * default.byte for one in done)
        epochs = {node: measured.seen.get(node, 0) / (cost.changes or 1.0) for node, cost in plan.nodes.items()}
        computed = sum(count * default.of_computing(plan.nodes[node]) for node, count in epochs.items())
        computing = counts.read_seconds + counts.apply_seconds - counts.get_seconds - counts.put_seconds
        get, put = _factor(counts.get_seconds, gets), _factor(counts.put_seconds, puts)
        compute = _factor(computing, computed)
        written = default.put * put, default.byte * put
        return Weights(default.get * get, default.scan * get, *written, default.row * compute, default.step * compute)

    def moving(self, times: float) -> Weights:
        """The weights over a store that moves that many bytes for one that is written: to logs, replicas and compactions."""
        return replace(self, byte=self.byte + (times - 1.0) * Weights().byte)

    def of_node(self, cost: NodeCost) -> float:
        """Equation 4, for an epoch."""
        seconds = self.of_computing(cost)
        for one in cost.tables.values():
            seconds += one.gets * self.get + one.scanned * self.scan + one.writes * self.put + one.bytes * self.byte
        return seconds

    def of_computing(self, cost: NodeCost) -> float:
        return min(1.0, cost.computed) * cost.steps * self.step + cost.computed * self.row

    def of_plan(self, cost: PlanCost) -> float:
        """The first sum of equation 9, for an epoch; the second one, what is stored, is not weighed against it."""
        return sum(map(self.of_node, cost.nodes.values()))

    def of_filling(self, cost: PlanCost, rows: float) -> float:
        """Filling the tables of some nodes from `rows` rows of their sources: nothing has to be read before it is written."""
        nodes = cost.nodes.values()
        written = sum(one.records * self.put + one.stored_bytes * self.byte for one in nodes)
        return written + rows * self.row + sum(one.steps for one in nodes) * self.step


def _factor(took: float, expected: float) -> float:
    if took < _SECONDS_MIN or expected <= 0.0:
        return 1.0
    return min(_FACTOR_MAX, max(1 / _FACTOR_MAX, took / expected))
