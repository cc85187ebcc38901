"""Table batches: rows of a base table as a reader sees them, over Arrow arrays.

In: key bytes and row bytes. Out: one Arrow array for each declared column. Always: decoded by whole columns; TIMESTAMP
is aware and in UTC, as everywhere in ViewKeeper's public interfaces.
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from viewkeeper.model.keybatches import decode_keys
from viewkeeper.model.rowbatches import decode_rows
from viewkeeper.model.schema import TableSchema


def decode_table(schema: TableSchema, keys: pa.Array, rows: pa.Array) -> dict[str, pa.Array]:
    """The columns of a table in declared order, by name."""
    names = [column.name for column in schema.columns]
    return dict(zip(names, decode_columns(schema, names, keys, rows), strict=True))


def decode_columns(schema: TableSchema, names: Sequence[str], keys: pa.Array, rows: pa.Array) -> list[pa.Array]:
    """The columns with those names; no others are decoded."""
    values = schema.value_columns
    wanted = [place for place, column in enumerate(values) if column.name in names]
    decoded = decode_rows(values, rows, wanted) if wanted else []
    arrays = {values[place].name: array for place, array in zip(wanted, decoded, strict=True)}
    if not set(names).isdisjoint(schema.key):
        arrays |= zip(schema.key, decode_keys(schema.key_columns, keys), strict=True)
    return [face(arrays[name]) for name in names]


def face(array: pa.Array | pa.ChunkedArray) -> pa.Array | pa.ChunkedArray:
    """An array as users see it: inside ViewKeeper a TIMESTAMP is naive and means UTC."""
    return array.cast(pa.timestamp("us", "UTC")) if pa.types.is_timestamp(array.type) else array
