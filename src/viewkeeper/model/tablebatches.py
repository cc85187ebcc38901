"""Table batches: rows of a base table as a reader sees them, over Arrow arrays.

In: key bytes and row bytes. Out: one Arrow array for each declared column. Always: decoded by whole columns; TIMESTAMP is
aware and in UTC, as it is on every face of ViewKeeper.
"""

from __future__ import annotations

import pyarrow as pa

from viewkeeper.model.keybatches import decode_keys
from viewkeeper.model.rowbatches import decode_rows
from viewkeeper.model.schema import TableSchema


def decode_table(schema: TableSchema, keys: pa.Array, rows: pa.Array) -> dict[str, pa.Array]:
    """The columns of a table in declared order, by name."""
    values = schema.value_columns
    arrays = dict(zip(schema.key, decode_keys(schema.key_columns, keys), strict=True))
    arrays |= {c.name: array for c, array in zip(values, decode_rows(values, rows), strict=True)}
    return {column.name: face(arrays[column.name]) for column in schema.columns}


def face(array: pa.Array | pa.ChunkedArray) -> pa.Array | pa.ChunkedArray:
    """An array as users see it: inside ViewKeeper a TIMESTAMP is naive and means UTC."""
    return array.cast(pa.timestamp("us", "UTC")) if pa.types.is_timestamp(array.type) else array
