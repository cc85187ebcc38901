"""The grouping kernel: what the rows of a delta contribute to all γ that read it.

In: a delta, and the terms over its columns that each γ adds up. Out: contributions to groups, entries and exact sums; the
rows that are set aside. Always: DuckDB evaluates the terms row by row, numpy adds up. A term that several γ have is
evaluated once; a term over one column with few distinct values, once for each value. A row on which a term fails
contributes nothing to any γ that has the term and that the row reaches.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

import duckdb
import numpy as np
import pyarrow as pa

from viewkeeper.codegen.expression_sql import guarded
from viewkeeper.operators.contributions import contribution, entry_changes
from viewkeeper.operators.delta_rows import Delta, run_edge
from viewkeeper.operators.duck import run_row_by_row
from viewkeeper.operators.exact_sums import DOUBLE_SUMS, are_exact, sum_any, sum_exact, whole_of
from viewkeeper.operators.messages import GROUPS, Channel, Input
from viewkeeper.operators.operator import attribute_errors_to
from viewkeeper.plan.nodes import AggregateNode, Given, Term

_GUARD = "ord"
_ROWS_AT_ONCE = 1 << 18
_ROWS_MIN = 1 << 15  # of a delta in which looking for distinct values can pay
_ROWS_OF_VALUE = 8  # rows for each distinct value, from which on it does
_DENSE = 4  # codes for each row, up to which counting them beats looking for the distinct ones
_UNITS = 1 << 13  # more than there are

Readers = Sequence[tuple[AggregateNode, int]]
Chosen = slice | np.ndarray


class State(NamedTuple):
    """What is to be added up: the numbers of a term, 1 if there is none or where it has a value, under a condition."""

    sql: str | None
    is_count: bool
    condition: str | None


class ExpressionBatch:
    """The terms of some γ over delta rows."""

    def __init__(
        self,
        columns: Mapping[str, pa.Array],
        signs: pa.Array,
        few: Mapping[str, _Few] | None = None,
        failed: Mapping[str, np.ndarray] | None = None,
    ) -> None:
        self.failed = failed or {}  # by term the rows on which it fails, if any
        self._columns = dict(columns)
        self._few = dict(few or {})
        self._signs: dict[str | None, np.ndarray] = {None: np.asarray(signs).astype(np.float64)}
        self._complete: dict[str, bool] = {}  # whether there is no NULL
        self._numbers: dict[tuple[str, bool], tuple[np.ndarray, bool]] = {}  # and whether they are exact as doubles
        self._doubles: dict[State, np.ndarray] = {}
        self._sums: dict[tuple[State, str], np.ndarray] = {}
        self._codes: dict[str, tuple[np.ndarray, pa.Array]] = {}

    def column(self, sql: str) -> pa.Array:
        if sql not in self._columns:
            self._columns[sql] = self._few[sql].values.take(pa.array(self._few[sql].places))
        return self._columns[sql]

    def is_true(self, condition: str) -> np.ndarray:
        return np.asarray(self.column(condition).fill_null(False))

    def signs_where(self, condition: str | None) -> np.ndarray:
        """For each row 1.0 if it came and -1.0 if it went, but 0.0 where the condition is not true."""
        if condition is not None and condition not in self._signs:
            self._signs[condition] = self._signs[None] * self.is_true(condition)
        return self._signs[condition]

    def state(self, given: Given, terms: Sequence[Term]) -> State:
        """What is to be added up: the same for all whose number is 1 for every row."""
        condition = None if given.filter is None else terms[given.filter].sql
        sql = None if given.term is None else terms[given.term].sql
        if sql is not None and given.is_count:
            if sql not in self._complete:
                self._complete[sql] = not self.column(sql).null_count
            sql = None if self._complete[sql] else sql
        return State(sql, given.is_count and sql is not None, condition)

    def sums(self, state: State, chosen: Chosen, indexes: np.ndarray, count: int) -> pa.Array:
        """The sum of a state at each of `count` places, of the chosen rows."""
        doubles = self._exact(state)
        if doubles is not None:
            return sum_exact(indexes, doubles[chosen], count)
        assert state.sql is not None  # 1 is exact
        numbers, _ = self._numbers[state.sql, state.is_count]
        return sum_any(indexes, self.signs_where(state.condition)[chosen], numbers[chosen], count)

    def sums_by(self, key: str, state: State) -> pa.Array | None:
        """The sum of a state for each code of a key, from the sums for each value of the key's column; None where these are
        many, or a double would be rounded."""
        if (few := self._few.get(key)) is None or (doubles := self._exact(state)) is None:
            return None
        if (state, few.column) not in self._sums:
            self._sums[state, few.column] = np.bincount(few.places, doubles, len(few.values))
        distinct = few.distinct
        return sum_exact(np.asarray(distinct.indices), self._sums[state, few.column], len(distinct.dictionary))

    def codes(self, sql: str) -> tuple[np.ndarray, pa.Array]:
        """For each row the index of its value among the distinct ones, and these."""
        if sql not in self._codes:
            few = self._few.get(sql)
            found = self.column(sql).dictionary_encode("encode") if few is None else few.distinct
            codes = np.asarray(found.indices).astype(np.int64)
            self._codes[sql] = codes if few is None else codes[few.places], found.dictionary
        return self._codes[sql]

    def _exact(self, state: State) -> np.ndarray | None:
        """What each row gives to a state, as doubles, unless one would be rounded."""
        if state.sql is not None and not self._number(state.sql, is_count=state.is_count)[1]:
            return None
        if state not in self._doubles:
            signs = self.signs_where(state.condition)
            self._doubles[state] = signs if state.sql is None else self._numbers[state.sql, state.is_count][0] * signs
        return self._doubles[state]

    def _number(self, sql: str, *, is_count: bool) -> tuple[np.ndarray, bool]:
        if (sql, is_count) not in self._numbers:
            column = self.column(sql)
            numbers = np.asarray(column.is_valid()) if is_count else whole_of(column)
            self._numbers[sql, is_count] = numbers, is_count or (numbers.ndim == 1 and are_exact(numbers))
        return self._numbers[sql, is_count]


class _Few:
    """A term of one column that has few distinct values: its value for each of these, and which of them each row has."""

    def __init__(self, column: str, indexes: np.ndarray, values: pa.Array) -> None:
        self.column, self.places, self.values = column, indexes, values
        self.distinct = values.dictionary_encode("encode")  # values of the term may be equal where its column's differ


def evaluate(terms: Sequence[tuple[Term, ...]], rows: pa.Table) -> ExpressionBatch:
    """The values of terms for each row."""
    asked = _asked(tuple(terms))
    columns = {sql: rows[sql].combine_chunks() for sql in asked.plain}
    few, failed, left = dict[str, _Few](), dict[str, np.ndarray](), [*asked.others]
    for name, sqls in asked.of_one.items():
        if (encoded := _encoded(rows[name])) is None:
            left += sqls
            continue
        distinct = pa.table({"ord": pa.array(np.arange(len(encoded.dictionary))), name: encoded.dictionary})
        indexes = np.asarray(encoded.indices).astype(np.int64)
        of_column = {name: encoded.dictionary} | _select(sqls, distinct)
        few |= {sql: _Few(name, indexes, values) for sql, values in of_column.items()}
    if left:
        columns |= _select(left, rows, asked.risky)
    for sql in asked.risky:
        tried = columns[sql]
        columns[sql] = tried.flatten()[0]
        if tried.null_count:
            failed[sql] = np.asarray(tried.is_null())
    return ExpressionBatch(columns, rows["sign"].combine_chunks(), few, failed)


def numbered(codes: np.ndarray, space: int) -> tuple[np.ndarray, int]:
    """For each code, all below `space`, its number among those that there are; and how many these are."""
    if space > _DENSE * len(codes):
        found = pa.array(codes).dictionary_encode()
        return np.asarray(found.indices).astype(np.int64), len(found.dictionary)
    there = np.bincount(codes, minlength=space) > 0
    return (np.cumsum(there) - 1)[codes], int(there.sum())


def _encoded(column: pa.ChunkedArray) -> pa.DictionaryArray | None:
    """The column by its distinct values, NULL among them, if these are few; 0.0 and -0.0 would be one."""
    if len(column) < _ROWS_MIN or pa.types.is_floating(column.type):
        return None
    sampled = column.slice(0, _ROWS_MIN).combine_chunks()
    if len(sampled.unique()) * _ROWS_OF_VALUE > len(column):
        return None
    encoded = column.combine_chunks().dictionary_encode("encode")
    return encoded if len(encoded.dictionary) * _ROWS_OF_VALUE <= len(column) else None


def _select(sqls: Sequence[str], rows: pa.Table, risky: Collection[str] = ()) -> dict[str, pa.Array]:
    """The values of expressions; of risky ones a struct, which is NULL where it fails."""
    tried = [guarded([sql], _GUARD) if sql in risky else sql for sql in sqls]
    named = ", ".join(f"{sql} AS d{index}" for index, sql in enumerate(tried))
    found = run_row_by_row(f"SELECT {named} FROM delta", delta=rows)
    return {sql: column.combine_chunks() for sql, column in zip(sqls, found.columns, strict=True)}


@dataclass(frozen=True, slots=True)
class _Asked:
    """Distinct terms: columns, those that cannot fail over one column each, others; and which of them can fail."""

    plain: Sequence[str]
    of_one: Mapping[str, Sequence[str]]
    others: Sequence[str]
    risky: Collection[str]


@lru_cache(maxsize=64)
def _asked(some: tuple[tuple[Term, ...], ...]) -> _Asked:
    plain, of_one, others = list[str](), dict[str, list[str]](), list[str]()
    terms = {term.sql: term for part in some for term in part}
    for sql, term in terms.items():
        if term.is_column:
            plain.append(sql)
        elif len(term.columns) == 1 and not term.can_fail:
            of_one.setdefault(f"c{term.columns[0]}", []).append(sql)
        else:
            others.append(sql)
    return _Asked(plain, of_one, others, [sql for sql, term in terms.items() if term.can_fail])


def contribute(readers: Readers, delta: Delta) -> Iterator[Input]:
    """What a delta contributes to each γ that reads it, and its rows that are set aside."""
    shared: dict[object, list[tuple[AggregateNode, int]]] = {}
    for node, number in readers:
        edge = node.edges[number]
        shared.setdefault((edge.rows, edge.moves, node.table if node.alone else None), []).append((node, number))
    for some in shared.values():
        (first, number), *_ = some
        with attribute_errors_to(first.table):
            rows = run_edge(first.edges[number], delta.relation)
        for start in range(0, len(rows), _ROWS_AT_ONCE):
            yield from _contribute(some, rows.slice(start, _ROWS_AT_ONCE), delta)


def _contribute(readers: Readers, rows: pa.Table, delta: Delta) -> Iterator[Input]:
    try:
        evaluated = evaluate([(*node.conditions[number], *node.each.terms) for node, number in readers], rows)
    except duckdb.OutOfMemoryException:
        raise
    except duckdb.Error:
        if len(readers) > 1:  # so that the one that is to blame is found
            for reader in readers:
                yield from _contribute([reader], rows, delta)
            return
        with attribute_errors_to(readers[0][0].table):
            raise
    for node, number in readers:
        with attribute_errors_to(node.table):
            passing, failing = _passing(node, number, evaluated, rows)
            if failing is not None and failing.any():
                yield Input(node.table, Channel("aside", number), delta.failure_events(rows.filter(pa.array(failing))))
            chosen = slice(None) if passing is None or passing.all() else np.flatnonzero(passing)
            for channel, given in contributions(node, evaluated, chosen, len(rows)):
                yield Input(node.table, channel, given)


def _passing(
    node: AggregateNode, number: int, evaluated: ExpressionBatch, rows: pa.Table
) -> tuple[np.ndarray | None, np.ndarray | None]:
    """Which rows count, and which fail: a row that failed, or that a condition left out, is evaluated no further."""
    failing = np.asarray(rows["fails"]) if "fails" in rows.column_names else None
    passing = None if failing is None else ~failing
    for term in (*node.conditions[number], *node.each.terms):
        if (failed := evaluated.failed.get(term.sql)) is not None:
            new = failed if passing is None else failed & passing
            failing, passing = new if failing is None else failing | new, ~new if passing is None else passing & ~new
        if term in node.conditions[number]:
            meets = evaluated.is_true(term.sql)
            passing = meets if passing is None else passing & meets
    return passing, failing


def contributions(
    node: AggregateNode, evaluated: ExpressionBatch, chosen: Chosen, rows: int
) -> Iterator[tuple[Channel, pa.Table]]:
    """The contributions of the chosen rows, in which what came and what went are one."""
    each = node.each
    indexes, keys = _groups([evaluated.codes(each.terms[at].sql) for at in each.keys], chosen, rows)
    if not len(indexes):
        return
    count = len(keys[0]) if keys else 1
    states = [evaluated.state(given, each.terms) for given in each.states]
    sums: dict[State, pa.Array] = {}
    for state in states:
        if state not in sums:
            is_whole = len(keys) == 1 and isinstance(chosen, slice)
            known = evaluated.sums_by(each.terms[each.keys[0]].sql, state) if is_whole else None
            sums[state] = evaluated.sums(state, chosen, indexes, count) if known is None else known
    groups = contribution(node, keys, [sums[state] for state in states], count)
    yield GROUPS, groups
    yield from _contributions_to_entries(node, evaluated, chosen, indexes, groups)
    yield from _contributions_to_sums(node, evaluated, chosen, indexes, groups)


def _contributions_to_entries(
    node: AggregateNode, evaluated: ExpressionBatch, chosen: Chosen, indexes: np.ndarray, groups: pa.Table
) -> Iterator[tuple[Channel, pa.Table]]:
    """The contributions to entries; those of the same values under several filters are found together."""
    terms, values = node.each.terms, node.each.values
    for some in dict.fromkeys(some for some, _ in values):
        numbers = [number for number, (others, _) in enumerate(values) if others == some]
        filters = [None if (at := values[number][1]) is None else terms[at].sql for number in numbers]
        counted = [evaluated.signs_where(one)[chosen] for one in filters]
        owners, distinct, changes = _changed([evaluated.codes(terms[at].sql) for at in some], chosen, indexes, counted)
        keys, hashes = (groups[name].take(pa.array(owners)).combine_chunks() for name in ("key", "hash"))
        whole = entry_changes(node.entries[numbers[0]], keys, hashes, distinct, pa.array(changes[0]))
        for number, change in zip(numbers, changes, strict=True):
            rows = pa.array(np.flatnonzero(change))
            yield Channel("entries", number), whole.set_column(3, "n", pa.array(change)).take(rows)


def _contributions_to_sums(
    node: AggregateNode, evaluated: ExpressionBatch, chosen: Chosen, indexes: np.ndarray, groups: pa.Table
) -> Iterator[tuple[Channel, pa.Table]]:
    """The contributions to exact sums of DOUBLE: mantissas by group and unit."""
    for number, (one, argument) in enumerate(zip(node.exact_sums, node.each.arguments, strict=True)):
        column = evaluated.column(node.each.terms[argument].sql)
        there = np.flatnonzero(np.asarray(column.is_valid())[chosen])
        values = np.asarray(column.fill_null(0.0)).astype(np.float64)[chosen][there]
        parts = DOUBLE_SUMS[one.kind](values)
        signs = np.tile(evaluated.signs_where(None)[chosen][there], len(parts))
        units, mantissas = (np.concatenate([part[at] for part in parts]).astype(np.int64) for at in (0, 1))
        codes = np.tile(indexes[there], len(parts)) * _UNITS + units
        by_code, count = numbered(codes, len(groups) * _UNITS)
        found = np.zeros(count, np.int64)
        found[by_code] = codes
        owners = groups.select(["key", "hash"]).take(pa.array(found // _UNITS))
        total = sum_any(by_code, signs, mantissas, count)
        given = owners.append_column("unit", pa.array((found % _UNITS).astype(np.int16))).append_column("m", total)
        yield Channel("sums", number), given


def _changed(
    values: Sequence[tuple[np.ndarray, pa.Array]], chosen: Chosen, groups: np.ndarray, signs: Sequence[np.ndarray]
) -> tuple[np.ndarray, list[pa.Array], list[np.ndarray]]:
    """The groups and the values whose number changes by some of the `signs`, and by how much it does by each."""
    known = np.logical_and.reduce([np.asarray(distinct.is_valid())[codes[chosen]] for codes, distinct in values])
    known = np.flatnonzero(known & np.logical_or.reduce([one != 0 for one in signs]))
    groups, parts = groups[known], [(codes[chosen][known], distinct) for codes, distinct in values]
    indexes, count = groups, int(groups.max(initial=0)) + 1
    for codes, distinct in parts:
        indexes, count = numbered(indexes * len(distinct) + codes, count * len(distinct))
    changes = [np.bincount(indexes, one[known], count).astype(np.int64) for one in signs]
    rows_of = np.zeros(count, np.int64)
    rows_of[indexes] = np.arange(len(indexes))  # one of each entry
    changed = np.flatnonzero(np.logical_or.reduce([one != 0 for one in changes]))
    rows = rows_of[changed]
    found = [distinct.take(pa.array(codes[rows])) for codes, distinct in parts]
    return groups[rows], found, [one[changed] for one in changes]


def _groups(
    parts: Sequence[tuple[np.ndarray, pa.Array]], chosen: Chosen, rows: int
) -> tuple[np.ndarray, list[pa.Array]]:
    """For each chosen row the index of its group, and the keys of the groups that there are."""
    if not parts:
        return np.zeros(rows, np.int64)[chosen], []
    if len(parts) == 1 and isinstance(chosen, slice):
        return parts[0][0], [parts[0][1]]
    indexes, count = np.zeros(1, np.int64), 1
    for codes, distinct in parts:  # numbered anew with each part, so that no number leaves its bits
        indexes, count = numbered(indexes * len(distinct) + codes[chosen], count * len(distinct))
    rows_of = np.zeros(count, np.int64)
    rows_of[indexes] = np.arange(len(indexes))  # one of each group
    return indexes, [distinct.take(pa.array(codes[chosen][rows_of])) for codes, distinct in parts]
