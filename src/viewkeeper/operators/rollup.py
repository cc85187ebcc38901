"""Roll-up: views over the same columns share one grouping of the delta rows.

In: nodes with a `rollup`, and delta rows. Out: the contributions of those it serves. Always: the same contributions as
from the delta rows themselves; a node on whose groups an expression fails is not served, because the failing rows must
be found one by one.
"""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa
import pyarrow.compute as pc

from viewkeeper.operators.blame import blamed
from viewkeeper.operators.contributions import sides, signed_contribution
from viewkeeper.operators.duck import run_sql
from viewkeeper.plan.nodes import AggregateNode, Rollup

_READERS_MIN = 2


class RollingUp:
    """Remembers for which grains counting did not pay. `sample` delta rows show whether the others repeat."""

    def __init__(self, sample: int) -> None:
        self._sample = sample
        self._vain: set[tuple[int, ...]] = set()

    def contributions(self, nodes: Mapping[int, AggregateNode], relation: pa.Table) -> dict[int, list[pa.Table]]:
        """The contributions of each served node, by its number."""
        served: dict[int, list[pa.Table]] = {}
        if len(relation) < self._sample:
            return served
        for grain, rollups in _by_grain(nodes).items():
            if len(rollups) < _READERS_MIN or grain in self._vain:
                continue
            if not _repeats(grain, relation.slice(0, self._sample)):
                self._vain.add(grain)
                continue
            for sign, side in sides(relation):
                _serve(nodes, rollups, _count(grain, rollups, side), sign, served)
        return served


def _serve(
    nodes: Mapping[int, AggregateNode],
    rollups: dict[int, Rollup],
    counted: pa.Table,
    sign: int,
    served: dict[int, list[pa.Table]],
) -> None:
    """Add what counted rows contribute to each node; one that fails on them leaves `rollups`: no longer served."""
    for number in list(rollups):
        with blamed(nodes[number].table):
            grouped = run_sql(rollups[number].contribute, delta=counted)
            if "failed" in grouped.column_names and pc.any(grouped["failed"]).as_py():
                del rollups[number]
                served.pop(number, None)
            else:
                served.setdefault(number, []).append(signed_contribution(nodes[number], grouped, sign))


def _by_grain(nodes: Mapping[int, AggregateNode]) -> dict[tuple[int, ...], dict[int, Rollup]]:
    found: dict[tuple[int, ...], dict[int, Rollup]] = {}
    for number, node in nodes.items():
        if node.rollup is not None:
            found.setdefault(node.rollup.grain, {})[number] = node.rollup
    return found


def _repeats(grain: tuple[int, ...], sample: pa.Table) -> bool:
    by = ", ".join(f"c{position}" for position in grain)
    distinct = run_sql(f"SELECT count(*) AS n FROM (SELECT DISTINCT {by} FROM sample)", sample=sample)["n"][0].as_py()
    return bool(2 * distinct <= len(sample))


def _count(grain: tuple[int, ...], rollups: Mapping[int, Rollup], side: pa.Table) -> pa.Table:
    by = ", ".join(f"c{position}" for position in grain)
    summed = sorted({position for rollup in rollups.values() for position in rollup.summed})
    sums = "".join(f", count(c{position}) AS n{position}, sum(c{position}) AS t{position}" for position in summed)
    return run_sql(f"SELECT 0 AS ord, 1 AS sign, {by}, count(*) AS n{sums} FROM delta GROUP BY {by}", delta=side)
