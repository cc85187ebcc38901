"""⋈: the pairs that a join emits when rows of its sides change (`docs/epochs.md`, "⋈").

In: events of entries, all of a join key in one manager. Out: pairs deleted and pairs inserted, in pieces. Always:
computed from the versions below the epoch and the events, so a re-run emits the same. Changed rows are joined with each
other and with the other side's entries, which are read by join key; a pair of unchanged rows is never emitted. Which rows
lack a match is known from counts; the side that changed is not read for it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from math import prod

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from viewkeeper.operators.apply import Applier
from viewkeeper.operators.delta_rows import Delta, by_sign, delta_of_output
from viewkeeper.operators.duck import run_sql
from viewkeeper.operators.messages import Channel
from viewkeeper.operators.operator import RowsOperator
from viewkeeper.operators.reverse_join import (
    ChangedRows,
    JoinKeys,
    SideCounts,
    SideRows,
    change_matches,
    changed_rows,
    entry_events,
    put_matches,
    unchanged_rows,
)
from viewkeeper.plan.nodes import JoinNode


class JoinOperator(RowsOperator[JoinNode]):
    """Entries of all sides, and the pairs that changed with them."""

    def input_of(self, node: JoinNode, number: int, rows: pa.Table) -> Iterator[tuple[Channel, pa.Table]]:
        side = node.side_of(number)
        yield Channel("rows", side), entry_events(node, side, rows)

    def apply(self, applier: Applier, node: JoinNode, inputs: Mapping[Channel, pa.Table]) -> Iterator[Delta]:
        changed = [
            changed_rows(applier, node, number, inputs.get(Channel("rows", number)))
            for number in range(len(node.sides))
        ]
        if node.kind != "inner":
            yield from _Outer(applier, node, changed).delta() if any(map(len, changed)) else ()
            return
        # changed rows of a side with all rows of the later sides, and with the unchanged rows of the earlier ones
        for turn, rows in enumerate(changed):
            if len(rows):
                yield from _meet(applier, node, changed, turn, rows.join_keys(), {turn: rows})


def _meet(
    applier: Applier,
    node: JoinNode,
    changed: Sequence[ChangedRows],
    turn: int,
    keys: JoinKeys,
    chosen: Mapping[int, SideRows],
) -> Iterator[Delta]:
    """Join the chosen rows with the sides that are not chosen yet, a piece of a side at a time."""
    numbers = range(len(node.sides))
    side = next((number for number in numbers if number not in chosen), None)
    if side is None:
        for pairs in _pairs(applier, node, [chosen[number] for number in numbers], turn):
            yield _delta(node, pairs)
        return
    if side > turn and len(changed[side]):
        yield from _meet(applier, node, changed, turn, keys, {**chosen, side: changed[side]})
    for piece in unchanged_rows(applier, node, side, keys, changed[side]):
        yield from _meet(applier, node, changed, turn, keys, {**chosen, side: piece})


def _pairs(applier: Applier, node: JoinNode, sides: Sequence[SideRows], turn: int | None = None) -> Iterator[pa.Table]:
    """The combinations of rows that match: `n0…`, `sign`, and the output columns of the join; at most so many at once.

    `turn`: the side whose changes are joined, with rows of other sides that are unchanged or change the same way.
    """
    if not all(len(rows) for rows in sides):
        return
    most = applier.settings.pairs
    if (lookup := _lookup_of(node)) is not None:
        yield from _partners(node, sides, lookup, most)
        return
    if prod(map(len, sides)) > most and _count(sides) > most:
        widest = max(range(len(sides)), key=lambda side: len(sides[side]))
        rows = sides[widest]
        if len(rows) > 1:
            for start, stop in ((0, len(rows) // 2), (len(rows) // 2, len(rows))):
                part = [*sides[:widest], rows.slice(start, stop), *sides[widest + 1 :]]
                yield from _pairs(applier, node, part, turn)
            return
    columns = [f"s{side}.n AS n{side}" for side in range(len(sides))]
    for number in range(len(sides)):
        columns += [f"s{number}.{name} AS c{index}" for index, (name, _) in node.columns_from_side(number).items()]
    changing = range(len(sides)) if turn is None else (turn,)
    sign = f"CAST(sign({' + '.join(f's{side}.st' for side in changing)}) AS INTEGER)"
    joins = [f"JOIN s{side} ON s{side}.j = s0.j" for side in range(1, len(sides))]
    states = [f"s{side}.st IN (0, {sign})" for side in range(len(sides)) if turn is None or side != turn]
    sql = f"SELECT {sign} AS sign, {', '.join(columns)} FROM s0 {' '.join(joins)} WHERE {' AND '.join(states)}"
    if node.residual is not None:
        sql = f"SELECT * FROM ({sql}) WHERE {node.residual}"
    pairs = run_sql(sql, **{f"s{side}": rows.relation for side, rows in enumerate(sides)})
    if len(pairs):
        yield pairs


def _lookup_of(node: JoinNode) -> int | None:
    """The side that is looked up, of a join of two without a further condition."""
    if len(node.sides) > 2 or node.residual is not None:
        return None
    return next((number for number, side in enumerate(node.sides) if not side.key), None)


def _partners(node: JoinNode, sides: Sequence[SideRows], lookup: int, most: int) -> Iterator[pa.Table]:
    """The same where one side is looked up: before the epoch, and after it, one row of it at most has a join key."""
    many, step = 1 - lookup, max(1, most // 2)  # an unchanged row has one partner before and one after
    for start in range(0, len(sides[many]), step):
        relations = {many: sides[many].relation.slice(start, step), lookup: sides[lookup].relation}
        parts = [part for sign in (1, -1) if len(part := _partners_at(node, relations, lookup, sign))]
        if parts:
            yield pa.concat_tables(parts)


def _partners_at(node: JoinNode, relations: Mapping[int, pa.Table], lookup: int, sign: int) -> pa.Table:
    """The pairs that the epoch inserts (1) or deletes (−1)."""
    many, there = 1 - lookup, {}
    for side, relation in relations.items():
        states = np.asarray(relation["st"])
        there[side] = np.flatnonzero((states == 0) | (states == sign))
    wanted, known = (relations[side]["j"].take(pa.array(there[side])) for side in (many, lookup))
    indexes = pc.index_in(wanted, value_set=known.combine_chunks(), skip_nulls=True)
    matched = np.asarray(indexes.is_valid())
    chosen = {many: there[many][matched], lookup: there[lookup][np.asarray(indexes.drop_null())]}
    columns = {"sign": pa.array(np.full(len(chosen[many]), sign, np.int32))}
    for side in (0, 1):
        names = {f"n{side}": "n"} | {f"c{index}": name for index, (name, _) in node.columns_from_side(side).items()}
        taken = relations[side].select(sorted(set(names.values()))).take(pa.array(chosen[side]))
        columns |= {new: taken[old] for new, old in names.items()}
    return pa.table(columns)


def _count(sides: Sequence[SideRows]) -> int:
    """How many combinations of rows have the same join key."""
    counts = [f"(SELECT j, count(*) AS n FROM s{side} GROUP BY j) t{side}" for side in range(len(sides))]
    joins = [f"JOIN {counts[side]} ON t{side}.j = t0.j" for side in range(1, len(sides))]
    product = " * ".join(f"CAST(t{side}.n AS HUGEINT)" for side in range(len(sides)))
    sql = f"SELECT CAST(coalesce(sum({product}), 0) AS DOUBLE) AS n FROM {counts[0]} {' '.join(joins)}"
    answer = run_sql(sql, **{f"s{side}": rows.relation for side, rows in enumerate(sides)})
    return int(answer["n"][0].as_py())


def _delta(node: JoinNode, rows: pa.Table) -> Delta:
    """Rows with a `sign` and the output columns of the join, as inserted and deleted rows."""
    columns, key = node.given, node.given_key
    if node.tag_place is not None and f"c{node.tag_place}" not in rows.column_names:
        rows = rows.append_column(f"c{node.tag_place}", pa.array(np.zeros(len(rows), np.int32)))
    inserted, deleted = by_sign(rows)
    before, after = ({index: side[f"c{index}"] for index in columns} for side in (deleted, inserted))
    return delta_of_output(after, before, columns, key, counts=(len(inserted), len(deleted)))


class _Outer:
    """A join whose output depends on whether a row has a match: left, full, semi and anti."""

    def __init__(self, applier: Applier, node: JoinNode, changed: Sequence[ChangedRows]) -> None:
        self._applier = applier
        self._node = node
        self._changed = changed
        self._counts = None if node.counts is None else SideCounts(applier, node.counts, changed)
        self._matches = [np.zeros(len(rows), np.int64) for rows in changed]  # of changed rows, by their number
        self._gives_pairs = node.kind in ("left", "full")

    def delta(self) -> Iterator[Delta]:
        if self._gives_pairs or self._counts is None:
            for pairs in _pairs(self._applier, self._node, self._changed):
                yield from self._paired(pairs, (0, 1))
        for side in (1, 0):
            yield from self._meet_unchanged(side)
        for side in (0, 1):
            if self._node.sides[side].preserved and len(self._changed[side]):
                yield from self._emit_changed(side)

    def _meet_unchanged(self, side: int) -> Iterator[Delta]:
        """The unchanged rows of a side with the changed ones of the other."""
        other = 1 - side
        keys = self._changed[other].join_keys()
        preserved = self._node.sides[side].preserved
        if self._counts is not None and not self._gives_pairs:
            # the counts show whether a row has a match: only keys whose count leaves or reaches 0 matter
            keys = keys.only(self._counts.crossing(keys, other)) if preserved else keys.only(np.zeros(len(keys), bool))
        if not len(keys):
            return
        for piece in unchanged_rows(self._applier, self._node, side, keys, self._changed[side]):
            met = [piece, self._changed[other]] if side == 0 else [self._changed[other], piece]
            less, more = np.zeros(len(piece), np.int64), np.zeros(len(piece), np.int64)
            for pairs in _pairs(self._applier, self._node, met) if self._gives_pairs or self._counts is None else ():
                yield from self._paired(pairs, (other,))
                numbers, signs = np.asarray(pairs[f"n{side}"]), np.asarray(pairs["sign"])
                less += np.bincount(numbers[signs < 0], minlength=len(piece))
                more += np.bincount(numbers[signs > 0], minlength=len(piece))
            if not preserved:
                continue
            if self._counts is not None:
                was, now = self._counts.is_matched(piece, other)
            else:
                was, now = change_matches(self._applier, self._node.matches or 0, piece, less, more)
            gains = now.astype(np.int32) - was  # of matches, which is a loss to all but a semi join
            yield from self._alone(side, piece, gains if self._node.kind == "semi" else -gains)

    def _paired(self, pairs: pa.Table, counted: Sequence[int]) -> Iterator[Delta]:
        for side in counted:
            numbers = np.asarray(pairs[f"n{side}"])
            self._matches[side] += np.bincount(numbers, minlength=len(self._changed[side]))
        if self._gives_pairs:
            yield _delta(self._node, pairs)

    def _emit_changed(self, side: int) -> Iterator[Delta]:
        rows = self._changed[side]
        if self._counts is not None:
            was, now = self._counts.is_matched(rows, 1 - side)
            matched = np.where(rows.states < 0, was, now)
        else:
            matched = self._matches[side] > 0
            put_matches(self._applier, self._node.matches or 0, rows, self._matches[side])
        shown = matched if self._node.kind == "semi" else ~matched
        yield from self._alone(side, rows, np.where(shown, rows.states, 0))

    def _alone(self, side: int, rows: SideRows, signs: np.ndarray) -> Iterator[Delta]:
        """Rows of one side without a partner; those with sign 0 are left out."""
        chosen = np.flatnonzero(signs)
        if not len(chosen):
            return
        node, picked = self._node, rows.relation.take(pa.array(chosen))
        columns = {"sign": pa.array(signs[chosen].astype(np.int32))}
        for number in range(len(node.sides)):
            for index, (name, column) in node.columns_from_side(number).items():
                absent = pa.nulls(len(chosen), column.type.arrow)
                columns[f"c{index}"] = picked[name] if number == side else absent
        if node.tag_place is not None:
            columns[f"c{node.tag_place}"] = pa.array(np.full(len(chosen), 1 + side, np.int32))
        yield _delta(node, pa.table(columns))
