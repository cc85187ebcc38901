"""Delta rows: rows of a source before and after changes, as a relation that a plan's SQL reads, and what its edges let
pass.

In: key bytes and row bytes of a base table, or the output of a node. Out: an Arrow table with the columns `c0`, `c1`, …
that are wanted, `sign` (1: the row was inserted, -1: it was deleted) and `ord`, the order of the delta rows in time;
the rows that the SQL of an edge selects from it, in any order. Always: only wanted columns are decoded, an absent delta
row is not a row of the relation, and no two delta rows of a relation have the same `ord`. Arrow does what DuckDB would
do where an edge only names columns, or leaves out rows without a value.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from viewkeeper.model.keybatches import decode_keys, encode_keys, hashes_of_keys
from viewkeeper.model.rowbatches import decode_rows, encode_rows
from viewkeeper.model.schema import Column, TableSchema
from viewkeeper.operators.duck import as_type, run_sql
from viewkeeper.plan.nodes import Edge

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


_BEFORE_ALL = -(1 << 62)  # rows of a backfill come before every change
_AFTER_ALL_DELETED = 1 << 40


@dataclass(frozen=True, slots=True)
class Delta:
    """Inserted and deleted rows: the relation, and the row key of each of its rows.

    A row changed twice appears twice with each sign. Inserted rows come before deleted ones.
    """

    relation: pa.Table
    key_columns: Sequence[Column]
    keys: Callable[[], pa.Array | pa.ChunkedArray]

    def passing(self, edge: Edge) -> tuple[pa.Table, pa.Table | None]:
        """The rows that pass an edge; and, if its expressions fail on any, the events that set those aside.

        A row that no longer fails after a change leaves the list in the same epoch (`architecture.md`, section 4).
        """
        rows = run_edge(edge.rows, self.relation)
        if edge.aside is None or not len(failing := rows.filter(rows["fails"])):
            return rows, None
        keys = self.keys_at(np.asarray(failing["ord"]))
        hashes = pa.array(hashes_of_keys(self.key_columns, keys))
        inserted = pa.array(np.asarray(failing["sign"]) > 0)
        states = pc.if_else(inserted, encode_rows((), [], len(keys)), pa.scalar(None, pa.binary()))
        events = pa.table({"key": keys, "hash": hashes, "ord": failing["ord"], "row": states})
        return rows.filter(pc.invert(rows["fails"])), events

    def keys_at(self, order: np.ndarray) -> pa.Array:
        """The row keys of the delta rows with the given `ord`."""
        known = np.asarray(self.relation["ord"])
        by_order = np.argsort(known)
        places = by_order[np.searchsorted(known, order, sorter=by_order)]
        keys = self.keys().take(pa.array(places))
        return keys.combine_chunks() if isinstance(keys, pa.ChunkedArray) else keys


def delta_of_changes(
    schema: TableSchema, changes: pa.RecordBatch | pa.Table, wanted: Sequence[int], *, rows_max: int
) -> Delta:
    """The delta rows of log changes, decoded `rows_max` at a time.

    Of the two delta rows of a change, the old row has the smaller `ord`.
    """
    pieces = [changes.slice(start, rows_max) for start in range(0, len(changes), rows_max)]
    inserted = [_present(schema, piece["key"], piece["after"], _order(piece) + 1, 1, wanted) for piece in pieces]
    deleted = [_present(schema, piece["key"], piece["before"], _order(piece), -1, wanted) for piece in pieces]
    keys = pa.chunked_array([chunk for _, keys in (*inserted, *deleted) for chunk in _chunks(keys)], pa.binary())
    return Delta(pa.concat_tables([side for side, _ in (*inserted, *deleted)]), schema.key_columns, lambda: keys)


def delta_of_rows(schema: TableSchema, rows: pa.RecordBatch, wanted: Sequence[int]) -> Delta:
    """Rows that existed before: a backfill inserts them and deletes nothing."""
    order = np.arange(len(rows)) + _BEFORE_ALL
    relation, keys = _present(schema, rows["key"], rows["row"], order, 1, wanted)
    return Delta(relation, schema.key_columns, lambda: keys)


def delta_of_output(
    inserted: Mapping[int, pa.Array],
    deleted: Mapping[int, pa.Array],
    columns: Mapping[int, Column],
    key: Sequence[int],
    *,
    counts: tuple[int, int],
) -> Delta:
    """A node's output, by position: rows inserted and rows deleted, and how many, because they may have no columns.

    Every inserted row is later than all deleted ones, whichever manager emits it: when a row moves from one manager to
    another, the new row is the last.
    """
    sides = []
    for arrays, count, sign, start in ((inserted, counts[0], 1, _AFTER_ALL_DELETED), (deleted, counts[1], -1, 0)):
        given = {f"c{position}": as_type(arrays[position], columns[position].type.arrow) for position in arrays}
        order = {"ord": pa.array(np.arange(count) + start), "sign": pa.array(np.full(count, sign, np.int32))}
        sides.append(pa.table(order | given))
    relation = pa.concat_tables(sides)
    key_columns = [columns[position] for position in key]

    def keys() -> pa.Array:
        return encode_keys(key_columns, [relation[f"c{position}"] for position in key], len(relation))[0]

    return Delta(relation, key_columns, keys)


def _order(changes: pa.RecordBatch | pa.Table) -> np.ndarray:
    return np.asarray(changes["position"]) * 2


def _present(
    schema: TableSchema,
    keys: pa.Array | pa.ChunkedArray,
    rows: pa.Array | pa.ChunkedArray,
    order: np.ndarray,
    sign: int,
    wanted: Sequence[int],
) -> tuple[pa.Table, pa.Array | pa.ChunkedArray]:
    """The relation of the rows that are present, and their keys."""
    if rows.null_count:
        there = rows.is_valid()
        keys, rows, order = keys.filter(there), rows.filter(there), order[np.asarray(there)]
    names = [schema.columns[position].name for position in wanted]
    stored = [column.name for column in schema.value_columns]
    read = [name for name in names if name in stored]
    found = dict(zip(read, decode_rows(schema.value_columns, rows, [stored.index(name) for name in read]), strict=True))
    if len(read) < len(names):
        found |= zip(schema.key, decode_keys(schema.key_columns, keys), strict=True)
    arrays = {"ord": pa.array(order), "sign": pa.array(np.full(len(order), sign, np.int32))}
    return pa.table(arrays | {f"c{at}": found[name] for at, name in zip(wanted, names, strict=True)}), keys


def _chunks(array: pa.Array | pa.ChunkedArray) -> list[pa.Array]:
    return array.chunks if isinstance(array, pa.ChunkedArray) else [array]
