"""γ: one record for each group, maintained from the contributions of rows.

In: deltas, then contributions. Out: records of groups, of PRE-AGGREGATIONs and of groups that pass HAVING. Always:
contributions are a function of the multiset of rows (`contributions`), records a function of contributions
(`aggregate_groups`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

import pyarrow as pa

from viewkeeper.operators.aggregate_groups import apply_groups
from viewkeeper.operators.apply import Applier, Changes
from viewkeeper.operators.blame import blamed
from viewkeeper.operators.channels import GROUPS, Channel
from viewkeeper.operators.contributions import (
    combine,
    combine_entries,
    combine_exact_sums,
    contribute,
    contribute_each,
    contribute_side,
    has_one_reader,
    sides,
)
from viewkeeper.operators.delta_rows import Delta
from viewkeeper.operators.duck import run_sql
from viewkeeper.operators.few_rows import are_few
from viewkeeper.operators.operator import Operator
from viewkeeper.operators.rollup import RollingUp
from viewkeeper.plan.nodes import AggregateNode
from viewkeeper.settings import WorkSettings

if TYPE_CHECKING:
    from viewkeeper.operators.inputs import DeltaCollector

_FEW_ROWS = 50_000  # it is faster to move this many than to group them

Readers = Sequence[tuple[AggregateNode, int]]


class AggregateOperator(Operator[AggregateNode]):
    """Contributions to groups; nodes that read the same delta share what they can."""

    def __init__(self, settings: WorkSettings) -> None:
        super().__init__(settings)
        self._rolling_up = RollingUp(settings.rolled_up_rows)

    def read(self, readers: Readers, delta: Delta, out: DeltaCollector) -> None:
        if are_few([delta.relation]):  # grouping would cost more than it saves
            self._read_each(readers, delta, out)
            return
        rolled = self._rolling_up.contributions({n.table: n for n, number in readers if number == 0}, delta.relation)
        for table, contributions in rolled.items():
            for rows in contributions:
                out.add(table, GROUPS, rows)
        left = [(node, number) for node, number in readers if number != 0 or node.table not in rolled]
        simple = [(node, number) for node, number in left if has_one_reader(node, node.edges[number])]
        for sign, side in sides(delta.relation) if simple else ():
            for node, number in simple:
                with blamed(node.table):
                    out.add(node.table, GROUPS, contribute_side(node, node.edges[number], side, sign))
        for node, number in left:
            if not has_one_reader(node, node.edges[number]):
                with blamed(node.table):
                    for channel, rows in contribute(node, out.passing(node, number, delta)):
                        out.add(node.table, channel, rows)

    def lessen(self, node: AggregateNode, channel: Channel, tables: Sequence[pa.Table]) -> pa.Table:
        if channel.kind == "aside":
            return super().lessen(node, channel, tables)
        if len(tables) == 1 or sum(map(len, tables)) <= _FEW_ROWS:
            return pa.concat_tables(tables)
        return self._added_up(node, channel, tables)

    def combine(self, node: AggregateNode, channel: Channel, tables: Sequence[pa.Table], partitions: int) -> pa.Table:
        if channel.kind == "aside":
            return super().combine(node, channel, tables, partitions)
        return self._added_up(node, channel, tables)

    def apply(
        self, applier: Applier, node: AggregateNode, inputs: Mapping[Channel, pa.Table]
    ) -> Iterator[Delta | Changes]:
        if GROUPS in inputs:
            yield apply_groups(applier, node, inputs)

    def _read_each(self, readers: Readers, delta: Delta, out: DeltaCollector) -> None:
        """The contribution of each row by itself."""
        for node, number in readers:
            with blamed(node.table):
                edge = node.edges[number]
                if edge.aside is None:
                    given = run_sql(f"WITH rows AS ({edge.rows}) {node.contribute_each}", delta=delta.relation)
                else:
                    given = run_sql(node.contribute_each, rows=out.passing(node, number, delta))
                if len(given):
                    for channel, rows in contribute_each(node, given):
                        out.add(node.table, channel, rows)

    def _added_up(self, node: AggregateNode, channel: Channel, tables: Sequence[pa.Table]) -> pa.Table:
        if channel == GROUPS:
            return combine(node, tables)
        return combine_entries(tables) if channel.kind == "entries" else combine_exact_sums(tables)
