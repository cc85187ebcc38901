"""Edges: the rows that an edge of the plan passes on.

In: an edge's SQL, and delta rows. Out: the rows it selects, in any order. Always: the same as DuckDB's; Arrow does it
where the SQL only names columns, or leaves out rows without a value.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from viewkeeper.operators.duck import run_sql

_NAMED = re.compile(r"\b(\w+) AS (\w+)")
_NAMES = re.compile(r"SELECT ord, sign((?:, \w+ AS \w+)*) FROM (delta|\(.*\))")
_PRESENT = re.compile(r"SELECT \* FROM \((.*)\) WHERE (\w+ IS NOT NULL(?: AND \w+ IS NOT NULL)*)")


class _Moves(NamedTuple):
    """The delta's column behind each column of the result, and the columns that must have a value."""

    columns: dict[str, str]
    present: tuple[str, ...]


def run_edge(sql: str, delta: pa.Table) -> pa.Table:
    """The rows that the SQL of an edge selects from `delta`."""
    moves = _moves(sql)
    if moves is None:
        return run_sql(sql, delta=delta)
    rows = pa.table([delta[old] for old in moves.columns.values()], names=list(moves.columns))
    absent = [np.asarray(delta[old].is_null()) for old in moves.present if delta[old].null_count]
    return rows.filter(pa.array(~np.logical_or.reduce(absent))) if absent else rows


def by_sign(rows: pa.Table) -> tuple[pa.Table, pa.Table]:
    """The inserted and the deleted rows; nothing is copied where the inserted ones come first, as they mostly do."""
    is_inserted = np.asarray(rows["sign"]) > 0
    count = int(np.count_nonzero(is_inserted))
    if is_inserted[:count].all():
        return rows.slice(0, count), rows.slice(count)
    return rows.filter(pa.array(is_inserted)), rows.filter(pa.array(~is_inserted))


@lru_cache(maxsize=1024)
def _moves(sql: str) -> _Moves | None:
    """What a SELECT does that only moves columns; None for any other."""
    if found := _PRESENT.fullmatch(sql):
        below = _moves(found[1])
        names = re.findall(r"(\w+) IS", found[2])
        if below is None or not below.columns.keys() >= set(names):
            return None
        return below._replace(present=(*below.present, *(below.columns[name] for name in names)))
    if not (found := _NAMES.fullmatch(sql)):
        return None
    named = [("ord", "ord"), ("sign", "sign"), *_NAMED.findall(found[1])]
    if found[2] == "delta":
        known = all(re.fullmatch(r"c\d+", old) for old, _ in named[2:])
        return _Moves({new: old for old, new in named}, ()) if known else None
    below = _moves(found[2][1:-1])
    if below is None or not below.columns.keys() >= {old for old, _ in named}:
        return None
    return below._replace(columns={new: below.columns[old] for old, new in named})
