"""γ over the delta itself: all of them that read one delta have their expressions evaluated together (`evaluated`).

In: a delta, and what each of its rows contributes to each γ, as expressions. Out: contributions, as `contributions` makes
them from the rows of an edge. Always: the same totals; a γ of which an expression fails on a row is not served, because the
failing rows must be found one by one.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from viewkeeper.operators.blame import blamed
from viewkeeper.operators.channels import GROUPS, Channel
from viewkeeper.operators.consolidate import are_few
from viewkeeper.operators.contributions import contribute_each, contribute_sums, entry_changes, signed_contribution
from viewkeeper.operators.evaluated import Evaluated, State, TooWide, as_number, evaluate, numbered
from viewkeeper.plan.nodes import AggregateNode, Direct

_ROWS_AT_ONCE = 1 << 18

Contributions = list[tuple[Channel, pa.Table]]


def contribute_directly(nodes: Sequence[AggregateNode], delta: pa.Table) -> dict[int, Contributions]:
    """The contributions to each γ that can be served, by its table."""
    few = are_few([delta])
    asked = [(node, node.direct) for node in nodes if node.direct is not None and (few or node.direct.is_whole)]
    served: dict[int, Contributions] = {node.table: [] for node, _ in asked}
    for start in range(0, len(delta) if asked else 0, _ROWS_AT_ONCE):
        evaluated = evaluate([direct for _, direct in asked], delta.slice(start, _ROWS_AT_ONCE))
        for node, direct in asked:
            is_whole = evaluated is not None and evaluated.has(direct.risky)
            if node.table in served and evaluated is not None and is_whole:
                with blamed(node.table), suppress(TooWide):
                    served[node.table] += (_each if few else _grouped)(node, direct, evaluated)
                    continue
            served.pop(node.table, None)
    return served


def _each(node: AggregateNode, direct: Direct, evaluated: Evaluated) -> Iterator[tuple[Channel, pa.Table]]:
    """The contribution of each row by itself."""
    given, ones = _rows(direct, evaluated), pa.repeat(pa.scalar(1, pa.int64()), len(evaluated.signs))
    for place, (sql, number) in enumerate(direct.states):
        value = ones if sql is None else as_number(evaluated.column(sql))
        if number is not None:
            value = pc.if_else(evaluated.column(direct.filters[number]), value, pa.scalar(0, value.type))
        given[f"s{place}"] = value
    for entries, (sqls, number) in enumerate(direct.values):
        for place, sql in enumerate(sqls):
            value = evaluated.column(sql)
            if number is not None:
                value = pc.if_else(evaluated.column(direct.filters[number]), value, pa.scalar(None, value.type))
            given[f"e{entries}_{place}"] = value
    rows = pa.table(given)
    yield from contribute_each(node, rows if direct.passes is None else rows.filter(evaluated.column(direct.passes)))


def _grouped(node: AggregateNode, direct: Direct, evaluated: Evaluated) -> Iterator[tuple[Channel, pa.Table]]:
    """The contributions to groups, in which what came and what went are one, and to all else."""
    passes = None if direct.passes is None else np.asarray(evaluated.column(direct.passes))
    chosen = slice(None) if passes is None or passes.all() else np.flatnonzero(passes)
    places, keys = _groups([evaluated.codes(sql) for sql in direct.keys], chosen, len(evaluated.signs))
    if not len(places):
        return
    count = len(keys[0]) if keys else 1
    grouped: dict[str, pa.Array] = {f"k{i}": key for i, key in enumerate(keys)}
    states = [evaluated.state(sql, None if one is None else direct.filters[one]) for sql, one in direct.states]
    sums: dict[State, pa.Array] = {}
    for place, state in enumerate(states):
        if state not in sums:
            known = evaluated.sums_by(direct.keys[0], state) if len(keys) == 1 and isinstance(chosen, slice) else None
            sums[state] = evaluated.sums(state, chosen, places, count) if known is None else known
        grouped[f"s{place}"] = sums[state]
    contribution = signed_contribution(node, pa.table(grouped), 1)
    yield GROUPS, contribution
    yield from _entries(node, direct, evaluated, chosen, places, contribution)
    if node.exact_sums:
        rows = pa.table(_rows(direct, evaluated))
        yield from contribute_sums(node, rows if passes is None else rows.filter(pa.array(passes)))


def _entries(
    node: AggregateNode,
    direct: Direct,
    evaluated: Evaluated,
    chosen: slice | np.ndarray,
    places: np.ndarray,
    groups: pa.Table,
) -> Iterator[tuple[Channel, pa.Table]]:
    """The contributions to entries, of which those of the same values are found together, whatever filters they have."""
    for sqls in dict.fromkeys(sqls for sqls, _ in direct.values):
        numbers = [number for number, (others, _) in enumerate(direct.values) if others == sqls]
        filters = [None if (one := direct.values[number][1]) is None else direct.filters[one] for number in numbers]
        counted = [evaluated.signs_where(one)[chosen] for one in filters]
        owners, values, changes = _changed([evaluated.codes(sql) for sql in sqls], chosen, places, counted)
        keys, hashes = (groups[name].take(pa.array(owners)).combine_chunks() for name in ("key", "hash"))
        whole = entry_changes(node.entries[numbers[0]], keys, hashes, values, pa.array(changes[0]))
        for number, change in zip(numbers, changes, strict=True):
            rows = pa.array(np.flatnonzero(change))
            yield Channel("entries", number), whole.set_column(3, "n", pa.array(change)).take(rows)


def _changed(
    values: Sequence[tuple[np.ndarray, pa.Array]],
    chosen: slice | np.ndarray,
    groups: np.ndarray,
    signs: Sequence[np.ndarray],
) -> tuple[np.ndarray, list[pa.Array], list[np.ndarray]]:
    """The groups and the values whose number changes by some of the `signs`, and by how much it does by each."""
    known = np.logical_and.reduce([np.asarray(distinct.is_valid())[codes[chosen]] for codes, distinct in values])
    known = np.flatnonzero(known & np.logical_or.reduce([one != 0 for one in signs]))
    groups, parts = groups[known], [(codes[chosen][known], distinct) for codes, distinct in values]
    places, count = groups, int(groups.max(initial=0)) + 1
    for codes, distinct in parts:
        places, count = numbered(places * len(distinct) + codes, count * len(distinct))
    changes = [np.bincount(places, one[known], count).astype(np.int64) for one in signs]
    rows_of = np.zeros(count, np.int64)
    rows_of[places] = np.arange(len(places))  # one of each entry
    changed = np.flatnonzero(np.logical_or.reduce([one != 0 for one in changes]))
    rows = rows_of[changed]
    found = [distinct.take(pa.array(codes[rows])) for codes, distinct in parts]
    return groups[rows], found, [one[changed] for one in changes]


def _rows(direct: Direct, evaluated: Evaluated) -> dict[str, pa.Array]:
    """What the node's edge would return, of that only what is not for its states."""
    rows = {"sign": evaluated.signs} | {f"k{place}": evaluated.column(sql) for place, sql in enumerate(direct.keys)}
    rows |= {f"a{place}": evaluated.column(sql) for place, sql in direct.arguments}
    return rows | ({"fails": pa.repeat(False, len(evaluated.signs))} if direct.risky else {})


def _groups(
    parts: Sequence[tuple[np.ndarray, pa.Array]], chosen: slice | np.ndarray, rows: int
) -> tuple[np.ndarray, list[pa.Array]]:
    """For each chosen row the place of its group, and the keys of the groups that there are."""
    if not parts:
        return np.zeros(rows, np.int64)[chosen], []
    if len(parts) == 1 and isinstance(chosen, slice):
        return parts[0][0], [parts[0][1]]
    places, count = np.zeros(1, np.int64), 1
    for codes, distinct in parts:  # numbered anew with each part, so that no number leaves its bits
        places, count = numbered(places * len(distinct) + codes[chosen], count * len(distinct))
    rows_of = np.zeros(count, np.int64)
    rows_of[places] = np.arange(len(places))  # one of each group
    return places, [distinct.take(pa.array(codes[chosen][rows_of])) for codes, distinct in parts]
