"""Images: the rows of a base table before and after changes, as relations that a plan's SQL can read.

In: key bytes and row bytes. Out: an Arrow table with the columns `c0`, `c1`, … that are wanted, and `ord`, the order of
the images in time. Always: only wanted columns are decoded, an absent image is not a row of the relation, and `ord` grows
from row to row, so that it also names an image.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from viewkeeper.model.keybatches import decode_keys
from viewkeeper.model.rowbatches import decode_rows
from viewkeeper.model.schema import Column, TableSchema

_BEFORE_ALL = -(1 << 62)  # rows of a backfill come before every change


@dataclass(frozen=True, slots=True)
class ImageTable:
    """Images of one side: the relation, and the base key of each row of it."""

    relation: pa.Table
    keys: pa.Array
    key_columns: tuple[Column, ...]

    def __len__(self) -> int:
        return len(self.relation)


@dataclass(frozen=True, slots=True)
class Images:
    """What changes took away and what they brought; a row changed twice is in each of them twice."""

    before: ImageTable
    after: ImageTable


def images_of_changes(schema: TableSchema, changes: pa.RecordBatch | pa.Table, wanted: Sequence[int]) -> Images:
    """The images of a batch of log changes; of two images of one change the one before has the smaller `ord`."""
    order = np.asarray(changes["position"]) * 2
    before = _present(schema, changes["key"], changes["before"], order, wanted)
    return Images(before, _present(schema, changes["key"], changes["after"], order + 1, wanted))


def images_of_rows(schema: TableSchema, rows: pa.RecordBatch, wanted: Sequence[int]) -> Images:
    """Rows that are there from the start: a backfill brings them and takes nothing away."""
    after = _present(schema, rows["key"], rows["row"], np.arange(len(rows)) + _BEFORE_ALL, wanted)
    nothing = ImageTable(after.relation.slice(0, 0), after.keys.slice(0, 0), after.key_columns)
    return Images(nothing, after)


def _present(
    schema: TableSchema, keys: pa.Array, rows: pa.Array, order: np.ndarray, wanted: Sequence[int]
) -> ImageTable:
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
    return ImageTable(pa.table(arrays), keys, tuple(schema.key_columns))
