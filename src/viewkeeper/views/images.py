"""Images: the rows of a base table before and after changes, as relations that a plan's SQL can read.

In: key bytes and row bytes. Out: an Arrow table with the columns `c0`, `c1`, … that are wanted, and `ord`, the order of
the images in time. Always: only wanted columns are decoded, and an absent image is not a row of the relation.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from viewkeeper.model.keybatches import decode_keys
from viewkeeper.model.rowbatches import decode_rows
from viewkeeper.model.schema import TableSchema


@dataclass(frozen=True, slots=True)
class Images:
    """What changes took away and what they brought; a row changed twice is in each of them twice."""

    before: pa.Table
    after: pa.Table


def images_of_changes(schema: TableSchema, changes: pa.RecordBatch, wanted: Sequence[int]) -> Images:
    """The images of a batch of log changes; of two images of one change the one before has the smaller `ord`."""
    order = np.asarray(changes["position"]) * 2
    before = _present(schema, changes["key"], changes["before"], order, wanted)
    return Images(before, _present(schema, changes["key"], changes["after"], order + 1, wanted))


def images_of_rows(schema: TableSchema, rows: pa.RecordBatch, wanted: Sequence[int]) -> Images:
    """Rows that are there from the start: a backfill brings them and takes nothing away."""
    order = np.zeros(len(rows), np.int64)
    after = _present(schema, rows["key"], rows["row"], order, wanted)
    return Images(after.slice(0, 0), after)


def _present(schema: TableSchema, keys: pa.Array, rows: pa.Array, order: np.ndarray, wanted: Sequence[int]) -> pa.Table:
    if rows.null_count:
        there = rows.is_valid()
        keys, rows, order = keys.filter(there), rows.filter(there), order[np.asarray(there)]
    key_names = list(schema.key)
    value_names = [column.name for column in schema.value_columns]
    names = {position: schema.columns[position].name for position in wanted}
    from_rows = [position for position in wanted if names[position] not in key_names]
    arrays = {"ord": pa.array(order)}
    if len(from_rows) < len(wanted):
        parts = decode_keys(schema.key_columns, keys)
        for position in wanted:
            if names[position] in key_names:
                arrays[f"c{position}"] = parts[key_names.index(names[position])]
    indexes = [value_names.index(names[position]) for position in from_rows]
    for position, array in zip(from_rows, decode_rows(schema.value_columns, rows, indexes), strict=True):
        arrays[f"c{position}"] = array
    return pa.table(arrays)
