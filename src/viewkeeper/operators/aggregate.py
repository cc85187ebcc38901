"""γ: one record for each group, maintained from the contributions of rows.

In: deltas, then contributions. Out: records of groups, of PRE-AGGREGATIONs and of groups that pass HAVING. Always:
contributions are a function of the multiset of rows (`contributions`), records a function of contributions
(`aggregate_groups`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import pyarrow as pa

from viewkeeper.operators.aggregate_groups import apply_groups
from viewkeeper.operators.apply import Applier, Changes
from viewkeeper.operators.blame import blamed
from viewkeeper.operators.channels import GROUPS, Channel, Input
from viewkeeper.operators.consolidate import are_few
from viewkeeper.operators.contributions import combine, contribute, contribute_each, sides, signed_contribution
from viewkeeper.operators.delta_rows import Delta
from viewkeeper.operators.direct import contribute_directly
from viewkeeper.operators.duck import run_sql
from viewkeeper.operators.operator import EdgeOperator
from viewkeeper.plan.nodes import AggregateNode, Edge

_FEW_ROWS = 10_000  # it is faster to move this many than to group them

Readers = Sequence[tuple[AggregateNode, int]]


class AggregateOperator(EdgeOperator[AggregateNode]):
    """Contributions to groups; nodes that read the same delta share what they can."""

    def read(self, readers: Readers, delta: Delta) -> Iterator[Input]:
        """Where an edge's rows are read only once, the edge and the contributions are one query."""
        served = contribute_directly([node for node, _ in readers], delta.relation)
        for table, parts in served.items():
            yield from (Input(table, *part) for part in parts)
        left = [reader for reader in readers if reader[0].table not in served]
        if are_few([delta.relation]):  # grouping would cost more than it saves
            yield from self._read_each([reader for reader in left if _edge(reader).aside is None], delta)
            yield from super().read([reader for reader in left if _edge(reader).aside is not None], delta)
        else:
            yield from self._read_sides([reader for reader in left if _has_one_reader(reader)], delta)
            yield from super().read([reader for reader in left if not _has_one_reader(reader)], delta)

    def input_of(self, node: AggregateNode, number: int, rows: pa.Table) -> Iterator[tuple[Channel, pa.Table]]:
        if are_few([rows]):
            return contribute_each(node, run_sql(node.contribute_each, rows=rows))
        return contribute(node, rows)

    def lessen(self, node: AggregateNode, channel: Channel, tables: Sequence[pa.Table]) -> pa.Table:
        if channel.kind == "aside":
            return super().lessen(node, channel, tables)
        if len(tables) == 1 or sum(map(len, tables)) <= _FEW_ROWS:
            return pa.concat_tables(tables)
        return combine(node, channel, tables)

    def combine(self, node: AggregateNode, channel: Channel, tables: Sequence[pa.Table], partitions: int) -> pa.Table:
        if channel.kind == "aside":
            return super().combine(node, channel, tables, partitions)
        if channel.kind == "entries":
            return pa.concat_tables(tables)  # they are added up where blocks are changed
        return combine(node, channel, tables)

    def apply(self, applier: Applier, node: AggregateNode, inputs: Mapping[Channel, pa.Table]) -> Iterator[Changes]:
        if GROUPS in inputs:
            yield apply_groups(applier, node, inputs)

    def _read_each(self, readers: Readers, delta: Delta) -> Iterator[Input]:
        """The contribution of each row by itself."""
        for node, number in readers:
            with blamed(node.table):
                sql = f"WITH rows AS ({node.edges[number].rows}) {node.contribute_each}"
                for channel, rows in contribute_each(node, run_sql(sql, delta=delta.relation)):
                    yield Input(node.table, channel, rows)

    def _read_sides(self, readers: Readers, delta: Delta) -> Iterator[Input]:
        """The contributions of inserted rows, then those of deleted ones."""
        for sign, side in sides(delta.relation) if readers else ():
            for node, number in readers:
                with blamed(node.table):
                    sql = f"WITH rows AS ({node.edges[number].rows}) {node.contribute}"
                    yield Input(node.table, GROUPS, signed_contribution(node, run_sql(sql, delta=side), sign))


def _edge(reader: tuple[AggregateNode, int]) -> Edge:
    node, number = reader
    return node.edges[number]


def _has_one_reader(reader: tuple[AggregateNode, int]) -> bool:
    """Whether the rows that pass are read only once: then DuckDB need not return them."""
    return _edge(reader).aside is None and not reader[0].entries and not reader[0].exact_sums
