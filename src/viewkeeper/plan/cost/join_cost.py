"""The cost of ⋈: entries of the REVERSE-JOIN, rows met under join keys, and pairs that change.

In: a join, and of each side its rows and changes. Out: its tables, its output and the changes of that. Always: join keys
are drawn evenly, and those of the side with fewer are among those of the other, as in textbooks. A row that comes under a
new row key has no partners yet where the join key is the row key: what refers to it comes later.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from viewkeeper.algebra.relations import Join
from viewkeeper.model.schema import Column
from viewkeeper.model.work_stats import Kinds
from viewkeeper.plan.cost.costs import TableCost
from viewkeeper.plan.cost.row_flows import Flow, Tables, kept, moved_by, pass_share, sum_flows, sum_of
from viewkeeper.plan.cost.statistics import DISTINCT_SHARE, alone_share, distinct, net_changes
from viewkeeper.plan.nodes import SIDE, JoinNode

COUNT_BYTES, COUNTS_BYTES = 11.0, 19.0  # rows of one count, and of two

Size = Callable[[Sequence[Column], Sequence[Column]], tuple[float, float]]
Output = tuple[float, Flow]  # rows, and their changes


@dataclass(frozen=True, slots=True)
class JoinSide:
    """A side: `rows` of `among` pass its conditions. Updates of `moved_by` change the join key, which may be `is_unique`."""

    rows: float
    among: float
    flow: Flow
    moved_by: Tables
    is_unique: bool

    @property
    def moved(self) -> Flow:
        return moved_by(self.flow, self.moved_by)

    def keys(self, known: float) -> float:
        """How many join keys its rows have, of those that are `known`."""
        return min(known, self.rows if self.is_unique else self.rows * DISTINCT_SHARE)


@dataclass(frozen=True, slots=True)
class JoinCost:
    tables: dict[int, TableCost]
    rows: float
    flow: Flow


def join_cost(node: JoinNode, relation: Join, sides: Sequence[JoinSide], pairs: float | None, size: Size) -> JoinCost:
    """`pairs`: how many there are, where that is known."""
    every = math.prod(side.rows for side in sides)
    # what refers to a side by its row key finds it there, if its conditions let it pass
    unique = [side.among for side in sides if side.is_unique]
    keys = max(1.0, *(unique or [side.keys(every) for side in sides]))
    if pairs:
        keys = max(1.0, (every / pairs) ** (1 / (len(sides) - 1)))
    fans = [every / keys ** (len(sides) - 1) / side.rows if side.rows else 0.0 for side in sides]
    crossing = [alone_share(side.rows, side.keys(keys)) for side in sides]
    entries = TableCost()
    for side, one in zip(sides, node.sides, strict=True):
        entries = entries.plus(kept(sum_of(side.moved), side.rows, *size((*node.on, SIDE, *one.key), one.row)))
    touched = [distinct(sum_of(side.moved).total, keys) for side in sides]
    others = [(sum(side.rows for side in sides) - side.rows) / keys for side in sides]
    met = [_met(side, count, other) for side, count, other in zip(sides, touched, others, strict=True)]
    if relation.keeps_first:
        rows, flow = _first_kept(relation.kind, sides, fans[0], crossing[1], others[1])
        if node.counts is not None:
            kinds = sum_of(sides[1].moved)
            # of the join keys that changed rows have, the share whose number of rows changes
            crossed = (kinds.inserts + kinds.deletes) / kinds.total if kinds.total else 0.0
            met = [0.0, met[1] * crossing[1] * crossed]
    else:
        rows, flow = _paired(node, sides, fans, crossing)
    tables: dict[int, TableCost] = {node.table: replace(entries, scanned=sum(met))}
    key, _ = size(node.on, ())
    if node.counts is not None:
        writes = sum(net_changes(sum_of(side.moved), keys).changed for side in sides)
        whole = key + COUNTS_BYTES
        tables[node.counts] = TableCost(sum(touched), 0.0, writes, writes * whole, keys, whole)
    if node.matches is not None:
        count = entries.gets + sum_of(flow).total
        whole = key + COUNT_BYTES
        tables[node.matches] = TableCost(count, 0.0, count, count * whole, sides[0].rows, whole)
    return JoinCost(tables, rows, flow)


def _met(side: JoinSide, touched: float, entries: float) -> float:
    """The other sides' entries under the join keys that changed rows of a side have."""
    kinds = sum_of(side.moved)
    new = kinds.inserts / kinds.total if side.is_unique and kinds.total else 0.0
    return touched * (1.0 - new) * entries


def _partners(side: JoinSide, kinds: Kinds, fan: float) -> Kinds:
    """The pairs that changes of a side's rows change."""
    return Kinds(0.0 if side.is_unique else kinds.inserts * fan, kinds.updates * fan, kinds.deletes * fan)


def _paired(node: JoinNode, sides: Sequence[JoinSide], fans: Sequence[float], crossing: Sequence[float]) -> Output:
    flows: list[Flow] = []
    rows = [fans[0] * sides[0].rows]
    for number, (side, fan) in enumerate(zip(sides, fans, strict=True)):
        is_kept = node.sides[number].preserved
        rows += [side.rows] if is_kept else []
        has_key = all(not one.key for index, one in enumerate(node.sides) if index != number)  # of the output
        for base, kinds in (side.flow if has_key else side.moved).items():
            given = _partners(side, kinds, fan)
            if is_kept:  # every row is in the result
                given = Kinds(
                    max(given.inserts, kinds.inserts),
                    max(given.updates, kinds.updates),
                    max(given.deletes, kinds.deletes),
                )
            if any(one.preserved for index, one in enumerate(node.sides) if index != number):
                alone = given.times(crossing[number])  # a partner that goes leaves a row without any
                if node.sides[number].key:
                    given = given.plus(Kinds(alone.deletes, 0.0, alone.inserts))
                else:  # it is looked up, so that row has the same key
                    given = Kinds(updates=given.total)
            flows.append({base: given})
    return max(rows), sum_flows(flows)


def _first_kept(kind: str, sides: Sequence[JoinSide], fan: float, crossing: float, others: float) -> Output:
    """SEMI and ANTI: rows of the first side, which a match lets pass or not."""
    first, second = sides
    matched = -math.expm1(-fan) if not second.is_unique else min(1.0, fan)
    share = matched if kind == "semi" else 1.0 - matched
    kept = {base: pass_share(one, share, share if base in first.moved_by else 1.0) for base, one in first.flow.items()}
    crossed: Flow = {}
    for base, kinds in second.moved.items():
        found = _partners(second, Kinds(kinds.inserts, 0.0, kinds.deletes), others * crossing)
        crossed[base] = found if kind == "semi" else Kinds(found.deletes, 0.0, found.inserts)
    return first.rows * share, sum_flows([kept, crossed])
