"""Roll-up: delta rows are counted once, for all views over the same columns and for all filters of a shared γ.

In: nodes with a `rollup`, and delta rows. Out: the contributions to the groups of those it serves. Always: the
same contributions as from the delta rows themselves; a node on whose groups an expression fails is not served, because
the failing rows must be found one by one.
"""

from __future__ import annotations

from collections.abc import Iterable

import pyarrow as pa
import pyarrow.compute as pc

from viewkeeper.operators.blame import blamed
from viewkeeper.operators.contributions import sides, signed_contribution
from viewkeeper.operators.duck import run_sql
from viewkeeper.plan.nodes import AggregateNode, Rollup

Grain = tuple[tuple[str, str], ...]  # names, with their SQL over the delta rows
Readers = list[tuple[AggregateNode, Rollup]]


class RollingUp:
    """Remembers for which grains counting did not pay. `sample` delta rows show whether the others repeat."""

    def __init__(self, sample: int) -> None:
        self._sample = sample
        self._vain: set[Grain] = set()

    def contributions(self, nodes: Iterable[AggregateNode], relation: pa.Table) -> dict[int, list[pa.Table]]:
        """The contributions of each served node, by its table."""
        served: dict[int, list[pa.Table]] = {}
        if len(relation) < self._sample:
            return served
        for grain, readers in _by_grain(nodes).items():
            if len(readers) < readers[0][1].readers_min or grain in self._vain:
                continue
            if _repeats(grain, relation.slice(0, self._sample)):
                served |= _serve(grain, readers, relation)
            else:
                self._vain.add(grain)
        return served


def _serve(grain: Grain, readers: Readers, relation: pa.Table) -> dict[int, list[pa.Table]]:
    """What counted rows contribute to each node, without those that fail on them."""
    served: dict[int, list[pa.Table]] = {node.table: [] for node, _ in readers}
    for sign, side in sides(relation):
        counted = _count(grain, readers, side)
        for node, rollup in readers:
            if node.table not in served:
                continue
            with blamed(node.table):
                grouped = run_sql(rollup.contribute, delta=counted)
                if "failed" in grouped.column_names and pc.any(grouped["failed"]).as_py():
                    del served[node.table]
                else:
                    served[node.table].append(signed_contribution(node, grouped, sign))
    return served


def _by_grain(nodes: Iterable[AggregateNode]) -> dict[Grain, Readers]:
    found: dict[Grain, Readers] = {}
    for node in nodes:
        if node.rollup is not None:
            found.setdefault(node.rollup.grain, []).append((node, node.rollup))
    return found


def _repeats(grain: Grain, sample: pa.Table) -> bool:
    by = ", ".join(sql for _, sql in grain)
    distinct = run_sql(f"SELECT count(*) AS n FROM (SELECT DISTINCT {by} FROM sample)", sample=sample)["n"][0].as_py()
    return bool(2 * distinct <= len(sample))


def _count(grain: Grain, readers: Readers, side: pa.Table) -> pa.Table:
    by = ", ".join(sql for _, sql in grain)
    named = ", ".join(f"{sql} AS {name}" for name, sql in grain)
    summed = sorted({position for _, rollup in readers for position in rollup.summed})
    sums = "".join(f", count(c{position}) AS n{position}, sum(c{position}) AS t{position}" for position in summed)
    return run_sql(f"SELECT 0 AS ord, 1 AS sign, {named}, count(*) AS n{sums} FROM delta GROUP BY {by}", delta=side)
