"""γ over the delta itself: all of them that read one delta have their expressions evaluated by one statement.

In: a delta, and what each of its rows contributes to each γ, as expressions. Out: contributions, as `contributions` makes
them from the rows of an edge. Always: the same totals; an expression that several γ have is evaluated once; a γ of which one
fails on a row is not served, because the failing rows must be found one by one.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from functools import lru_cache

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from viewkeeper.codegen.expression_sql import guarded
from viewkeeper.operators.blame import blamed
from viewkeeper.operators.channels import GROUPS, Channel
from viewkeeper.operators.consolidate import are_few
from viewkeeper.operators.contributions import contribute_each, contribute_sums, keys_of_entries, signed_contribution
from viewkeeper.operators.duck import run_sql
from viewkeeper.operators.exact_sums import narrow, sum_by_place
from viewkeeper.plan.nodes import AggregateNode, Direct

_SIGN, _GUARD, _KNOWN = "sign", "ord", " IS NOT NULL"
_COLUMN = re.compile(rf"c\d+({_KNOWN})?")
_ROWS_AT_ONCE = 1 << 18
_DENSE = 4  # codes for each row, up to which counting them beats looking for the distinct ones


Contributions = list[tuple[Channel, pa.Table]]


def contribute_directly(nodes: Sequence[AggregateNode], delta: pa.Table) -> dict[int, Contributions]:
    """The contributions to each γ that can be served, by its table."""
    few = are_few([delta])
    asked = [(node, node.direct) for node in nodes if node.direct is not None and (few or node.direct.is_whole)]
    served: dict[int, Contributions] = {node.table: [] for node, _ in asked}
    for start in range(0, len(delta) if asked else 0, _ROWS_AT_ONCE):
        evaluated = _evaluate([direct for _, direct in asked], delta.slice(start, _ROWS_AT_ONCE))
        for node, direct in asked:
            is_whole = evaluated is not None and evaluated.columns.keys() >= set(direct.risky)
            if node.table in served and evaluated is not None and is_whole:
                with blamed(node.table), suppress(_TooWide):
                    served[node.table] += (_each if few else _grouped)(node, direct, evaluated)
                    continue
            served.pop(node.table, None)
    return served


class _TooWide(Exception):
    """A number has more than 64 bits."""


class _Evaluated:
    """The expressions of some γ over a delta, and what several of these need of them."""

    def __init__(self, columns: Mapping[str, pa.Array], signs: pa.Array) -> None:
        self.columns = columns
        self.signs = signs
        self._numbers: dict[str, np.ndarray] = {}
        self._signs: dict[str | None, np.ndarray] = {None: np.asarray(signs).astype(np.int64)}
        self._codes: dict[str, tuple[np.ndarray, pa.Array]] = {}

    def signs_where(self, condition: str | None) -> np.ndarray:
        """For each row 1 if it came and -1 if it went, but 0 where the condition is not true."""
        if condition is not None and condition not in self._signs:
            self._signs[condition] = self._signs[None] * np.asarray(self.columns[condition])
        return self._signs[condition]

    def number(self, sql: str) -> np.ndarray:
        if sql not in self._numbers:
            self._numbers[sql] = _whole(self.columns[sql])
        return self._numbers[sql]

    def codes(self, sql: str) -> tuple[np.ndarray, pa.Array]:
        """For each row the place of its value among the distinct ones, and these."""
        if sql not in self._codes:
            found = self.columns[sql].dictionary_encode("encode")
            self._codes[sql] = np.asarray(found.indices).astype(np.int64), found.dictionary
        return self._codes[sql]


def _evaluate(some: Sequence[Direct], delta: pa.Table) -> _Evaluated | None:
    """The value of each expression for each delta row, without those that fail on one; None if nothing can be had."""
    plain, sqls, statement = _statement(tuple(some))
    columns = {sql: _of_column(delta, sql) for sql in plain}
    if sqls:
        try:
            found = run_sql(statement, delta=delta)
        except duckdb.OutOfMemoryException:
            raise
        except duckdb.Error:
            return None
        columns |= {sql: column.combine_chunks() for sql, column in zip(sqls, found.columns, strict=True)}
    for sql in {sql for direct in some for sql in direct.risky}:
        tried = columns.pop(sql)
        if not tried.null_count:
            columns[sql] = tried.field(0)
    return _Evaluated(columns, delta[_SIGN].combine_chunks())


def _of_column(delta: pa.Table, sql: str) -> pa.Array:
    """An expression that needs no SQL."""
    column = delta[sql.split()[0]].combine_chunks()
    return column.is_valid() if sql.endswith(_KNOWN) else column


def _each(node: AggregateNode, direct: Direct, evaluated: _Evaluated) -> Iterator[tuple[Channel, pa.Table]]:
    """The contribution of each row by itself."""
    given, ones = _rows(direct, evaluated), pa.repeat(pa.scalar(1, pa.int64()), len(evaluated.signs))
    for place, (sql, number) in enumerate(direct.states):
        value = ones if sql is None else _number(evaluated.columns[sql])
        if number is not None:
            value = pc.if_else(evaluated.columns[direct.filters[number]], value, pa.scalar(0, value.type))
        given[f"s{place}"] = value
    for entries, (sqls, number) in enumerate(direct.values):
        for place, sql in enumerate(sqls):
            value = evaluated.columns[sql]
            if number is not None:
                value = pc.if_else(evaluated.columns[direct.filters[number]], value, pa.scalar(None, value.type))
            given[f"e{entries}_{place}"] = value
    rows = pa.table(given)
    yield from contribute_each(node, rows if direct.passes is None else rows.filter(evaluated.columns[direct.passes]))


def _grouped(node: AggregateNode, direct: Direct, evaluated: _Evaluated) -> Iterator[tuple[Channel, pa.Table]]:
    """The contributions to groups, in which what came and what went are one, and to all else."""
    passes = None if direct.passes is None else np.asarray(evaluated.columns[direct.passes])
    chosen = slice(None) if passes is None or passes.all() else np.flatnonzero(passes)
    places, keys = _groups([evaluated.codes(sql) for sql in direct.keys], chosen, len(evaluated.signs))
    if not len(places):
        return
    count = len(keys[0]) if keys else 1
    grouped: dict[str, pa.Array] = {f"k{i}": key for i, key in enumerate(keys)}
    for place, (sql, number) in enumerate(direct.states):
        signs = evaluated.signs_where(None if number is None else direct.filters[number])[chosen]
        values = None if sql is None else evaluated.number(sql)[chosen]
        grouped[f"s{place}"] = sum_by_place(places, signs, values, count)
    yield GROUPS, signed_contribution(node, pa.table(grouped), 1)
    for sqls in dict.fromkeys(sqls for sqls, _ in direct.values):
        numbers = [number for number, (others, _) in enumerate(direct.values) if others == sqls]
        filters = [None if (one := direct.values[number][1]) is None else direct.filters[one] for number in numbers]
        counted = [evaluated.signs_where(one)[chosen] for one in filters]
        named, changes = _entries([evaluated.codes(sql) for sql in sqls], chosen, places, keys, counted)
        keyed = keys_of_entries(node, node.entries[numbers[0]], named)
        for number, change in zip(numbers, changes, strict=True):
            changed = np.flatnonzero(change)
            counts = pa.array(change[changed])
            yield Channel("entries", number), keyed.take(pa.array(changed)).append_column("n", counts)
    if node.exact_sums:
        rows = pa.table(_rows(direct, evaluated))
        yield from contribute_sums(node, rows if passes is None else rows.filter(pa.array(passes)))


def _entries(
    values: Sequence[tuple[np.ndarray, pa.Array]],
    chosen: slice | np.ndarray,
    groups: np.ndarray,
    keys: Sequence[pa.Array],
    signs: Sequence[np.ndarray],
) -> tuple[pa.Table, list[np.ndarray]]:
    """The values of groups whose number changes by some of the `signs`, and by how much it does by each."""
    known = np.logical_and.reduce([np.asarray(distinct.is_valid())[codes[chosen]] for codes, distinct in values])
    known = np.flatnonzero(known & np.logical_or.reduce([one != 0 for one in signs]))
    groups, parts = groups[known], [(codes[chosen][known], distinct) for codes, distinct in values]
    places, count = groups, int(groups.max(initial=0)) + 1
    for codes, distinct in parts:
        places, count = _numbered(places * len(distinct) + codes, count * len(distinct))
    changes = [np.bincount(places, one[known], count).astype(np.int64) for one in signs]
    rows_of = np.zeros(count, np.int64)
    rows_of[places] = np.arange(len(places))  # one of each entry
    changed = np.flatnonzero(np.logical_or.reduce([one != 0 for one in changes]))
    rows = rows_of[changed]
    found = {f"k{i}": key.take(pa.array(groups[rows])) for i, key in enumerate(keys)}
    found |= {f"e{i}": distinct.take(pa.array(codes[rows])) for i, (codes, distinct) in enumerate(parts)}
    return pa.table(found), [one[changed] for one in changes]


def _rows(direct: Direct, evaluated: _Evaluated) -> dict[str, pa.Array]:
    """What the node's edge would return, of that only what is not for its states."""
    rows = {_SIGN: evaluated.signs} | {f"k{place}": evaluated.columns[sql] for place, sql in enumerate(direct.keys)}
    rows |= {f"a{place}": evaluated.columns[sql] for place, sql in direct.arguments}
    return rows | ({"fails": pa.repeat(False, len(evaluated.signs))} if direct.risky else {})


def _number(column: pa.Array) -> pa.Array:
    return column.cast(pa.int64()) if pa.types.is_boolean(column.type) else column.fill_null(0)


def _whole(column: pa.Array) -> np.ndarray:
    if pa.types.is_decimal(column.type):
        narrowed = narrow(column)
        if narrowed is None:
            raise _TooWide
        return narrowed
    return np.asarray(_number(column)).astype(np.int64)


def _groups(
    parts: Sequence[tuple[np.ndarray, pa.Array]], chosen: slice | np.ndarray, rows: int
) -> tuple[np.ndarray, list[pa.Array]]:
    """For each chosen row the place of its group, and the keys of the groups that there are."""
    if len(parts) == 1 and isinstance(chosen, slice):
        return parts[0][0], [parts[0][1]]
    places, count = np.zeros(rows, np.int64)[chosen], 1
    for codes, distinct in parts:  # numbered anew with each part, so that no number leaves its bits
        places, count = _numbered(places * len(distinct) + codes[chosen], count * len(distinct))
    rows_of = np.zeros(count, np.int64)
    rows_of[places] = np.arange(len(places))  # one of each group
    return places, [distinct.take(pa.array(codes[chosen][rows_of])) for codes, distinct in parts]


def _numbered(codes: np.ndarray, space: int) -> tuple[np.ndarray, int]:
    """For each code, all below `space`, its number among those that there are; and how many these are."""
    if space > _DENSE * len(codes):
        found = pa.array(codes).dictionary_encode()
        return np.asarray(found.indices).astype(np.int64), len(found.dictionary)
    there = np.bincount(codes, minlength=space) > 0
    return (np.cumsum(there) - 1)[codes], int(there.sum())


@lru_cache(maxsize=64)
def _statement(some: tuple[Direct, ...]) -> tuple[tuple[str, ...], tuple[str, ...], str]:
    """The distinct expressions that are columns, the others, and the statement for these: NULL for a risky one that fails."""
    distinct = dict.fromkeys(sql for direct in some for sql in direct.expressions)
    plain = tuple(sql for sql in distinct if _COLUMN.fullmatch(sql))
    sqls = tuple(sql for sql in distinct if sql not in plain)
    risky = {sql for direct in some for sql in direct.risky}
    tried = [guarded([sql], _GUARD) if sql in risky else sql for sql in sqls]
    return plain, sqls, f"SELECT {', '.join(f'{sql} AS d{place}' for place, sql in enumerate(tried))} FROM delta"
