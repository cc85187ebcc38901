"""Flows: changes of rows on their way through a plan, by the base table that they come from.

In: changes of an epoch. Out: changes after a σ, and what a table with a record for each row has to do for them. Always:
rates, not whole numbers; nothing is negative.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

from viewkeeper.model.counts import Kinds
from viewkeeper.plan.cost.costs import TableCost
from viewkeeper.plan.cost.lineage import Path, Tables
from viewkeeper.plan.cost.statistics import distinct, selectivity

Flow = dict[int, Kinds]  # by the base table whose changes they come from


def sum_of(flow: Flow) -> Kinds:
    whole = Kinds()
    for kinds in flow.values():
        whole = whole.plus(kinds)
    return whole


def together(flows: Iterable[Flow]) -> Flow:
    found: Flow = {}
    for flow in flows:
        for base, kinds in flow.items():
            found[base] = found.get(base, Kinds()).plus(kinds)
    return found


def moved_by(flow: Flow, tables: Tables) -> Flow:
    """With the updates of these tables as rows that go and others that come: they change the key."""
    return {base: kinds.moved() if base in tables else kinds for base, kinds in flow.items()}


def passing(flow: Flow, path: Path, share: float) -> Flow:
    """The changes of rows that pass the conditions of an edge, which a share of all rows does."""
    return {base: pass_share(kinds, share, drawn_share(path, base, share)) for base, kinds in flow.items()}


def pass_share(kinds: Kinds, share: float, anew: float) -> Kinds:
    """The changes of rows that pass; `anew`: the share that passes again after an update, of those that did before."""
    crosses, stays = kinds.updates * share * (1.0 - anew), kinds.updates * share * anew
    return Kinds(kinds.inserts * share + crosses, stays, kinds.deletes * share + crosses)


def drawn_share(path: Path, base: int, share: float) -> float:
    """The share of rows that pass the conditions that an update of `base` decides anew."""
    whole = drawn = 1.0
    for one in path.conditions:
        part = min(1 - 1e-9, max(1e-9, selectivity(one.expression)))
        whole *= part
        drawn *= part if base in one.changed_by else 1.0
    if drawn == 1.0 or not 0.0 < share < 1.0:
        return 1.0
    return share ** (math.log(drawn) / math.log(whole))


def kept(kinds: Kinds, rows: float, key: float, row: float) -> TableCost:
    """Changes of rows that each have a record: rows that come have new ones, the others are met once."""
    picks = kinds.updates + kinds.deletes
    share = distinct(picks, rows) / picks if picks else 0.0
    return written(Kinds(kinds.inserts, kinds.updates * share, kinds.deletes * share), rows, key, row)


def written(kinds: Kinds, records: float, key: float, row: float) -> TableCost:
    """Each record is read, then written; of one that is deleted only the key."""
    size = kinds.total * key + (kinds.inserts + kinds.updates) * row
    return TableCost(kinds.total, 0.0, kinds.total, size, records, key + row)
