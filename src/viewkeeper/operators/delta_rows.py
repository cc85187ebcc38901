"""Delta rows: rows of a source before and after changes, as a relation that a plan's SQL can read.

In: key bytes and row bytes of a base table, or the output of a node. Out: an Arrow table with the columns `c0`, `c1`, …
that are wanted, `sign` (1: the row was inserted, -1: it was deleted) and `ord`, the order of the delta rows in time.
Always: only wanted columns are decoded, an absent delta row is not a row of the relation, and no two delta rows of a
relation have the same `ord`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
import pyarrow as pa

from viewkeeper.model.keybatches import decode_keys, encode_keys
from viewkeeper.model.rowbatches import decode_rows
from viewkeeper.model.schema import Column, TableSchema
from viewkeeper.operators.duck import as_type

_BEFORE_ALL = -(1 << 62)  # rows of a backfill come before every change
_AFTER_ALL_DELETED = 1 << 40


class Delta:
    """Inserted and deleted rows: the relation, and the row key of each of its rows.

    A row changed twice appears twice with each sign. Inserted rows come before deleted ones.
    """

    def __init__(
        self, relation: pa.Table, key_columns: Sequence[Column], keys: Callable[[], pa.Array | pa.ChunkedArray]
    ) -> None:
        self.relation = relation
        self.key_columns = tuple(key_columns)
        self._keys = keys

    def keys_at(self, order: np.ndarray) -> pa.Array:
        """The row keys of the delta rows with the given `ord`."""
        known = np.asarray(self.relation["ord"])
        by_order = np.argsort(known)
        places = by_order[np.searchsorted(known, order, sorter=by_order)]
        keys = self._keys().take(pa.array(places))
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
    key_names = list(schema.key)
    value_names = [column.name for column in schema.value_columns]
    names = {position: schema.columns[position].name for position in wanted}
    from_rows = [position for position in wanted if names[position] not in key_names]
    parts = decode_keys(schema.key_columns, keys) if len(from_rows) < len(wanted) else []
    indexes = [value_names.index(names[position]) for position in from_rows]
    values = dict(zip(from_rows, decode_rows(schema.value_columns, rows, indexes), strict=True))
    arrays = {"ord": pa.array(order), "sign": pa.array(np.full(len(order), sign, np.int32))}
    for position in wanted:
        from_key = names[position] in key_names
        arrays[f"c{position}"] = parts[key_names.index(names[position])] if from_key else values[position]
    return pa.table(arrays), keys


def _chunks(array: pa.Array | pa.ChunkedArray) -> list[pa.Array]:
    return array.chunks if isinstance(array, pa.ChunkedArray) else [array]
