"""Table batches: columns of tables and views as a reader sees them, over Arrow arrays.

In: key bytes and row bytes. Out: one Arrow array for each wanted column. Always: decoded by whole columns, and no others
than those; TIMESTAMP is aware and in UTC, as everywhere in ViewKeeper's public interfaces.
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from viewkeeper.model.keybatches import decode_keys
from viewkeeper.model.rowbatches import decode_rows
from viewkeeper.model.schema import Column, TableSchema

Place = tuple[str, int]  # where a column is stored: in the "key" or in the "row", at which index


def places_of(schema: TableSchema) -> dict[str, Place]:
    """Where the columns of a table are stored, by name in declared order."""
    stored = {name: ("key", index) for index, name in enumerate(schema.key)}
    stored |= {column.name: ("row", index) for index, column in enumerate(schema.value_columns)}
    return {column.name: stored[column.name] for column in schema.columns}


def decode_places(
    key: tuple[Column, ...], row: tuple[Column, ...], places: Sequence[Place], keys: pa.Array, rows: pa.Array
) -> list[pa.Array]:
    """The columns at those places; inside ViewKeeper, so a TIMESTAMP is naive."""
    wanted = sorted({index for part, index in places if part == "row"})
    values = dict(zip(wanted, decode_rows(row, rows, wanted), strict=True)) if wanted else {}
    parts = decode_keys(key, keys) if any(part == "key" for part, _ in places) else []
    return [parts[index] if part == "key" else values[index] for part, index in places]


def decode_columns(schema: TableSchema, names: Sequence[str], keys: pa.Array, rows: pa.Array) -> list[pa.Array]:
    """The columns of a table with those names."""
    places = places_of(schema)
    wanted = [places[name] for name in names]
    return [face(array) for array in decode_places(schema.key_columns, schema.value_columns, wanted, keys, rows)]


def face(array: pa.Array | pa.ChunkedArray) -> pa.Array | pa.ChunkedArray:
    """An array as users see it: inside ViewKeeper a TIMESTAMP is naive and means UTC."""
    return array.cast(pa.timestamp("us", "UTC")) if pa.types.is_timestamp(array.type) else array
