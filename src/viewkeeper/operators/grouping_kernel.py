"""The grouping kernel: γ over the delta itself; the expressions of all γ that read one delta are evaluated together.

In: a delta, and what each of its rows contributes to each γ, as expressions over its columns. Out: contributions, as
`contributions` makes them from the rows of an edge. Always: the same totals. An expression that several γ have is
evaluated once; one over a single column, of which the delta has few distinct values, only over these. A γ of which an
expression fails on a row is not served, because the failing rows must be found one by one.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from viewkeeper.codegen.expression_sql import guarded
from viewkeeper.operators.contributions import contribute_each, contribute_sums, entry_changes, signed_contribution
from viewkeeper.operators.duck import run_row_by_row
from viewkeeper.operators.exact_sums import are_exact, are_few, narrow, sum_any, sum_exact
from viewkeeper.operators.messages import GROUPS, Channel
from viewkeeper.operators.operator import attribute_errors_to
from viewkeeper.plan.nodes import AggregateNode, Direct

_SIGN, _GUARD, _KNOWN = "sign", "ord", " IS NOT NULL"
_NAME = re.compile(r"\bc\d+\b")
_PLAIN = re.compile(rf"c\d+({_KNOWN})?")
_ROWS_MIN = 1 << 15  # of a delta in which looking for distinct values can pay
_ROWS_OF_VALUE = 8  # rows for each distinct value, from which on it does
_DENSE = 4  # codes for each row, up to which counting them beats looking for the distinct ones


State = tuple[str | None, str | None]  # a number, 1 if there is none, and the condition under which it counts


class TooWide(Exception):
    """A number has more than 64 bits."""


class ExpressionBatch:
    """The expressions of some γ over a delta."""

    def __init__(self, columns: Mapping[str, pa.Array], signs: pa.Array, few: Mapping[str, _Few] | None = None) -> None:
        self.signs = signs
        self._columns = dict(columns)
        self._few = dict(few or {})
        self._signs: dict[str | None, np.ndarray] = {None: np.asarray(signs).astype(np.float64)}
        self._ones: dict[str, bool] = {}
        self._numbers: dict[str, tuple[np.ndarray, bool]] = {}  # and whether they are exact
        self._doubles: dict[State, np.ndarray] = {}
        self._sums: dict[tuple[State, str], np.ndarray] = {}
        self._codes: dict[str, tuple[np.ndarray, pa.Array]] = {}

    def has(self, sqls: Collection[str]) -> bool:
        return self._columns.keys() | self._few.keys() >= set(sqls)

    def column(self, sql: str) -> pa.Array:
        if sql not in self._columns:
            self._columns[sql] = self._few[sql].values.take(pa.array(self._few[sql].places))
        return self._columns[sql]

    def signs_where(self, condition: str | None) -> np.ndarray:
        """For each row 1.0 if it came and -1.0 if it went, but 0.0 where the condition is not true."""
        if condition is not None and condition not in self._signs:
            self._signs[condition] = self._signs[None] * np.asarray(self.column(condition))
        return self._signs[condition]

    def state(self, sql: str | None, condition: str | None) -> State:
        """What is to be added up: the same for all whose number is 1 for every row."""
        if sql is None or not pa.types.is_boolean(self.column(sql).type):
            return sql, condition
        if sql not in self._ones:
            self._ones[sql] = bool(np.asarray(self.column(sql)).all())
        return None if self._ones[sql] else sql, condition

    def sums(self, state: State, chosen: slice | np.ndarray, places: np.ndarray, count: int) -> pa.Array:
        """The sum of a state at each of `count` places, of the chosen rows."""
        doubles = self._exact(state)
        if doubles is not None:
            return sum_exact(places, doubles[chosen], count)
        assert state[0] is not None  # 1 is exact
        return sum_any(places, self.signs_where(state[1])[chosen], self._numbers[state[0]][0][chosen], count)

    def sums_by(self, key: str, state: State) -> pa.Array | None:
        """The sum of a state for each code of a key, by way of the sums for each value of the column that the key is made of;
        None where there are many of these, or a double would be rounded."""
        if (few := self._few.get(key)) is None or (doubles := self._exact(state)) is None:
            return None
        if (state, few.column) not in self._sums:
            self._sums[state, few.column] = np.bincount(few.places, doubles, len(few.values))
        distinct = few.distinct
        return sum_exact(np.asarray(distinct.indices), self._sums[state, few.column], len(distinct.dictionary))

    def codes(self, sql: str) -> tuple[np.ndarray, pa.Array]:
        """For each row the place of its value among the distinct ones, and these."""
        if sql not in self._codes:
            few = self._few.get(sql)
            found = self.column(sql).dictionary_encode("encode") if few is None else few.distinct
            codes = np.asarray(found.indices).astype(np.int64)
            self._codes[sql] = codes if few is None else codes[few.places], found.dictionary
        return self._codes[sql]

    def _exact(self, state: State) -> np.ndarray | None:
        """What each row gives to a state, as doubles, unless one would be rounded."""
        sql, condition = state
        if sql is not None and sql not in self._numbers:
            number = _whole(self.column(sql))
            self._numbers[sql] = number, are_exact(number)
        if sql is not None and not self._numbers[sql][1]:
            return None
        if state not in self._doubles:
            signs = self.signs_where(condition)
            self._doubles[state] = signs if sql is None else self._numbers[sql][0] * signs
        return self._doubles[state]


class _Few:
    """An expression of one column that has few distinct values: its value for each of these, and the places of all rows."""

    def __init__(self, column: str, places: np.ndarray, values: pa.Array) -> None:
        self.column = column
        self.places = places
        self.values = values
        self.distinct = values.dictionary_encode(
            "encode"
        )  # values of the expression may be equal where its column's differ


def evaluate(some: Sequence[Direct], delta: pa.Table) -> ExpressionBatch | None:
    """The value of each expression for each delta row, without those that fail on one; None if nothing can be had."""
    asked = _asked(tuple(some))
    columns, few = {sql: _of_column(delta, sql) for sql in asked.plain}, dict[str, _Few]()
    left = [*asked.others]
    try:
        for name, sqls in asked.of_one.items():
            encoded = _encoded(delta[name])
            if encoded is None:
                left += sqls
                continue
            distinct = pa.table({"ord": pa.array(np.arange(len(encoded.dictionary))), name: encoded.dictionary})
            values = {name: encoded.dictionary} | _select(sqls, distinct)
            places = np.asarray(encoded.indices).astype(np.int64)
            few |= {sql: _Few(name, places, of_values) for sql, of_values in values.items()}
        if left:
            columns |= _select(left, delta, asked.risky)
    except duckdb.OutOfMemoryException:
        raise
    except duckdb.Error:
        return None
    for sql in asked.risky:
        tried = columns.pop(sql)
        if not tried.null_count:
            columns[sql] = tried.field(0)
    return ExpressionBatch(columns, delta[_SIGN].combine_chunks(), few)


def numbered(codes: np.ndarray, space: int) -> tuple[np.ndarray, int]:
    """For each code, all below `space`, its number among those that there are; and how many these are."""
    if space > _DENSE * len(codes):
        found = pa.array(codes).dictionary_encode()
        return np.asarray(found.indices).astype(np.int64), len(found.dictionary)
    there = np.bincount(codes, minlength=space) > 0
    return (np.cumsum(there) - 1)[codes], int(there.sum())


def as_number(column: pa.Array) -> pa.Array:
    return column.cast(pa.int64()) if pa.types.is_boolean(column.type) else column.fill_null(0)


def _whole(column: pa.Array) -> np.ndarray:
    if pa.types.is_decimal(column.type):
        narrowed = narrow(column)
        if narrowed is None:
            raise TooWide
        return narrowed
    return np.asarray(as_number(column)).astype(np.int64)


def _of_column(delta: pa.Table, sql: str) -> pa.Array:
    """An expression that needs no SQL."""
    column = delta[sql.split()[0]].combine_chunks()
    return column.is_valid() if sql.endswith(_KNOWN) else column


def _encoded(column: pa.ChunkedArray) -> pa.DictionaryArray | None:
    """The column by its distinct values, NULL among them, if these are few; 0.0 and -0.0 would be one."""
    if len(column) < _ROWS_MIN or pa.types.is_floating(column.type):
        return None
    sampled = column.slice(0, _ROWS_MIN).combine_chunks()
    if len(sampled.unique()) * _ROWS_OF_VALUE > len(column):
        return None
    encoded = column.combine_chunks().dictionary_encode("encode")
    return encoded if len(encoded.dictionary) * _ROWS_OF_VALUE <= len(column) else None


def _select(sqls: Sequence[str], delta: pa.Table, risky: Collection[str] = ()) -> dict[str, pa.Array]:
    """The values of expressions: NULL for a risky one where it fails."""
    tried = [guarded([sql], _GUARD) if sql in risky else sql for sql in sqls]
    named = ", ".join(f"{sql} AS d{place}" for place, sql in enumerate(tried))
    found = run_row_by_row(f"SELECT {named} FROM delta", delta=delta)
    return {sql: column.combine_chunks() for sql, column in zip(sqls, found.columns, strict=True)}


@dataclass(frozen=True, slots=True)
class _Asked:
    """Distinct expressions: columns, those that cannot fail over one column each, others; and which of them can fail."""

    plain: Sequence[str]
    of_one: Mapping[str, Sequence[str]]
    others: Sequence[str]
    risky: Collection[str]


@lru_cache(maxsize=64)
def _asked(some: tuple[Direct, ...]) -> _Asked:
    plain, of_one, others = list[str](), dict[str, list[str]](), list[str]()
    risky = {sql for direct in some for sql in direct.risky}
    for sql in dict.fromkeys(sql for direct in some for sql in direct.expressions):
        names = set(_NAME.findall(sql))
        if _PLAIN.fullmatch(sql):
            plain.append(sql)
        elif len(names) == 1 and sql not in risky:
            of_one.setdefault(names.pop(), []).append(sql)
        else:
            others.append(sql)
    return _Asked(plain, of_one, others, risky)


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
                with attribute_errors_to(node.table), suppress(TooWide):
                    served[node.table] += (_contributions_of_rows if few else _contributions_of_groups)(
                        node, direct, evaluated
                    )
                    continue
            served.pop(node.table, None)
    return served


def _contributions_of_rows(
    node: AggregateNode, direct: Direct, evaluated: ExpressionBatch
) -> Iterator[tuple[Channel, pa.Table]]:
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


def _contributions_of_groups(
    node: AggregateNode, direct: Direct, evaluated: ExpressionBatch
) -> Iterator[tuple[Channel, pa.Table]]:
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
    yield from _contributions_to_entries(node, direct, evaluated, chosen, places, contribution)
    if node.exact_sums:
        rows = pa.table(_rows(direct, evaluated))
        yield from contribute_sums(node, rows if passes is None else rows.filter(pa.array(passes)))


def _contributions_to_entries(
    node: AggregateNode,
    direct: Direct,
    evaluated: ExpressionBatch,
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


def _rows(direct: Direct, evaluated: ExpressionBatch) -> dict[str, pa.Array]:
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
