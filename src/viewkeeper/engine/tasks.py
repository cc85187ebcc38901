"""Tasks: what runs in a Spark executor's Python worker.

In: the store's URL and incarnation, the epoch in flight and the units of work, all as plain values. Out: blocks for the
shuffle, then receipts. Always: the work itself is `views.program`; here it is only carried in and out of Spark.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa
from pyspark import TaskContext

from viewkeeper.engine.blocks import from_block, in_pieces, to_block
from viewkeeper.engine.memory import give_back_memory
from viewkeeper.failpoints import failpoint
from viewkeeper.model.epochs import Inflight
from viewkeeper.plan.physical import PhysicalPlan
from viewkeeper.stores.open import open_shared
from viewkeeper.views.inputs import Input, read_unit
from viewkeeper.views.program import Level, apply_inputs, levels_of, split_by_manager
from viewkeeper.views.units import Unit

BLOCKS_SCHEMA = "manager int, node int, part int, unit int, block binary"
RECEIPTS_SCHEMA = "manager int, units array<int>, records bigint"
_BATCH_BYTES = 4 << 20
_MANAGERS_MAX = 1 << 16
_ACKNOWLEDGEMENT = -1  # as a node: the unit is read to its end
_BLOCKS_ARROW = pa.schema(
    [*((name, pa.int32()) for name in ("manager", "node", "part", "unit")), ("block", pa.binary())]
)
_RECEIPTS_ARROW = pa.schema([("manager", pa.int32()), ("units", pa.list_(pa.int32())), ("records", pa.int64())])


@dataclass(frozen=True, slots=True)
class EpochTask:
    """Everything a task needs; it travels to executors by value."""

    url: str
    incarnation: str
    plan: PhysicalPlan
    epoch: Inflight
    units: tuple[Unit, ...]
    owners: tuple[int, ...]

    def acknowledgements(self) -> list[int]:
        """What must have reached the managers: the end of every unit, and of every manager's part of every level."""
        managers = sorted(set(self.owners))
        between = levels_of(self.plan)[:-1]
        return [unit.number for unit in self.units] + [_level_of(level, m) for level in between for m in managers]

    def read(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Units in, blocks out."""
        store, plan = open_shared(self.url, self.incarnation), self.plan
        managers = max(self.owners) + 1
        for batch in batches:
            for number in batch.column(0).to_pylist():
                unit = self.units[number]
                yield from self._blocks(read_unit(store, plan, self.epoch, unit), unit.number)
                give_back_memory()
                failpoint("task.read")
                yield _block(unit.number % managers, _ACKNOWLEDGEMENT, 0, unit.number, None)

    def settle(self, level: int, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Blocks in, blocks out: what came for a level goes on as what it means to the levels above."""
        manager = TaskContext.get().partitionId()
        store, plan = open_shared(self.url, self.incarnation), self.plan
        units, inputs = _collect(batches)
        for handed_on in Level(store, plan, self.epoch, level, self._owned(manager)).settle(inputs):
            yield from self._blocks(handed_on, _level_of(level, manager))
        del inputs
        give_back_memory()
        failpoint("task.level")
        for unit in (*units, _level_of(level, manager)):
            yield _block(manager, _ACKNOWLEDGEMENT, 0, unit, None)

    def apply(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Blocks of the last level in, one receipt out."""
        manager = TaskContext.get().partitionId()
        store, plan = open_shared(self.url, self.incarnation), self.plan
        units, inputs = _collect(batches)
        records = apply_inputs(store, plan, self.epoch, inputs, self._owned(manager))
        del inputs
        give_back_memory()
        failpoint("task.applied")
        yield pa.record_batch([[manager], [units], [records]], schema=_RECEIPTS_ARROW)

    def _owned(self, manager: int) -> frozenset[int]:
        return frozenset(place for place, owner in enumerate(self.owners) if owner == manager)

    def _blocks(self, inputs: Sequence[Input], unit: int) -> Iterator[pa.RecordBatch]:
        """What the inputs are to each manager; small blocks travel together, for Spark's price is by the batch."""
        rows: list[tuple[int, int, int, int, bytes | None]] = []
        waiting = 0
        for node, part, table in inputs:
            split = split_by_manager(table, self.owners)
            for manager, piece in ((manager, piece) for manager, whole in split for piece in in_pieces(whole)):
                rows.append((manager, node, part, unit, to_block(piece)))
                waiting += len(rows[-1][-1] or b"")
                if waiting >= _BATCH_BYTES:
                    yield _batch(rows)
                    rows, waiting = [], 0
        if rows:
            yield _batch(rows)


def _level_of(level: int, manager: int) -> int:
    """The number that acknowledges a manager's part of a level; those of units are not negative."""
    return -1 - (level * _MANAGERS_MAX + manager)


def _collect(batches: Iterator[pa.RecordBatch]) -> tuple[list[int], list[Input]]:
    """Acknowledged units, and inputs."""
    units: list[int] = []
    inputs: list[Input] = []
    for batch in batches:
        for row in batch.to_pylist():
            if row["node"] == _ACKNOWLEDGEMENT:
                units.append(row["unit"])
            else:
                inputs.append((row["node"], row["part"], from_block(row["block"])))
    return units, inputs


def _block(manager: int, node: int, part: int, unit: int, block: bytes | None) -> pa.RecordBatch:
    return _batch([(manager, node, part, unit, block)])


def _batch(rows: Sequence[tuple[int, int, int, int, bytes | None]]) -> pa.RecordBatch:
    return pa.record_batch([list(column) for column in zip(*rows, strict=True)], schema=_BLOCKS_ARROW)
