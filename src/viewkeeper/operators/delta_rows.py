"""Delta rows: rows of a source before and after changes as a relation, and the rows of it that pass an edge.

In: key bytes and row bytes of a base table, or the output of a node. Out: an Arrow table with the wanted columns `c0`,
`c1`, …, `sign` (1: the row was inserted, -1: it was deleted) and `ord`, the order of the delta rows in time; the rows
that an edge selects from it, in any order. Always: only wanted columns are decoded; an absent row is not in the relation;
no two rows have the same `ord`. Where an edge only moves columns, Arrow does the work of DuckDB.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from viewkeeper.model.keybatches import decode_keys, encode_keys, hashes_of_keys
from viewkeeper.model.rowbatches import decode_rows, encode_rows
from viewkeeper.model.schema import Column, TableSchema
from viewkeeper.model.varbinary import flat
from viewkeeper.operators.duck import as_type, run_sql
from viewkeeper.plan.nodes import Edge


def run_edge(edge: Edge, delta: pa.Table) -> pa.Table:
    if edge.rows is not None:
        return run_sql(edge.rows, delta=delta)
    if edge.moves is None:
        return delta
    names = {"ord": "ord", "sign": "sign"} | dict(edge.moves.columns)
    rows = pa.table([delta[old] for old in names.values()], names=list(names))
    absent = [np.asarray(delta[old].is_null()) for old in edge.moves.present if delta[old].null_count]
    return rows.filter(pa.array(~np.logical_or.reduce(absent))) if absent else rows


def by_sign(rows: pa.Table) -> tuple[pa.Table, pa.Table]:
    """The inserted and the deleted rows; nothing is copied where the inserted ones come first, as they mostly do."""
    is_inserted = np.asarray(rows["sign"]) > 0
    count = int(np.count_nonzero(is_inserted))
    if is_inserted[:count].all():
        return rows.slice(0, count), rows.slice(count)
    return rows.filter(pa.array(is_inserted)), rows.filter(pa.array(~is_inserted))


_BEFORE_ALL = -(1 << 62)  # rows of a backfill come before every change
_AFTER_ALL_DELETED = 1 << 40


@dataclass(frozen=True, slots=True)
class Delta:
    """Inserted rows, then deleted ones, with their row keys; a row changed twice appears twice with each sign."""

    relation: pa.Table
    key_columns: Sequence[Column]
    keys: Callable[[], pa.Array | pa.ChunkedArray]

    def passing(self, edge: Edge) -> tuple[pa.Table, pa.Table | None]:
        """The rows that pass an edge; and, if its expressions fail on any, the events that set those aside.

        A row that no longer fails leaves the list in the same epoch (`architecture.md`, section 4).
        """
        rows = run_edge(edge, self.relation)
        if edge.aside is None or not len(failing := rows.filter(rows["fails"])):
            return rows, None
        return rows.filter(pc.invert(rows["fails"])), self.failure_events(failing)

    def failure_events(self, failing: pa.Table) -> pa.Table:
        """The events (key, hash, ord, row) that set rows (`ord`, `sign`) aside."""
        keys = self.keys_at(np.asarray(failing["ord"]))
        hashes = pa.array(hashes_of_keys(self.key_columns, keys))
        inserted = pa.array(np.asarray(failing["sign"]) > 0)
        states = pc.if_else(inserted, encode_rows((), [], len(keys)), pa.scalar(None, pa.binary()))
        return pa.table({"key": keys, "hash": hashes, "ord": failing["ord"], "row": states})

    def keys_at(self, order: np.ndarray) -> pa.Array:
        """The row keys of the delta rows with the given `ord`."""
        known = np.asarray(self.relation["ord"])
        by_order = np.argsort(known)
        indexes = by_order[np.searchsorted(known, order, sorter=by_order)]
        return flat(self.keys().take(pa.array(indexes)))


def delta_of_changes(
    schema: TableSchema, changes: pa.RecordBatch | pa.Table, wanted: Sequence[int], *, rows_max: int
) -> Delta:
    """The delta rows of log changes, decoded `rows_max` at a time.

    Of the two delta rows of a change, the old row has the smaller `ord`.
    """
    pieces = [changes.slice(start, rows_max) for start in range(0, len(changes), rows_max)]
    inserted = [_present(schema, piece["key"], piece["after"], _order(piece) + 1, 1, wanted) for piece in pieces]
    deleted = [_present(schema, piece["key"], piece["before"], _order(piece), -1, wanted) for piece in pieces]
    keys = pa.concat_tables([pa.table({"key": keys}) for _, keys in (*inserted, *deleted)])["key"]
    return Delta(pa.concat_tables([side for side, _ in (*inserted, *deleted)]), schema.key_columns, lambda: keys)


def delta_of_rows(schema: TableSchema, rows: pa.RecordBatch, wanted: Sequence[int]) -> Delta:
    """The delta of rows that existed before: a backfill inserts them and deletes nothing."""
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
    """The delta of a node's output: columns by position, and the counts of inserted and deleted rows, which may have none.

    Every inserted row is later than all deleted ones, so that of a row that moves between managers the new one is last.
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
