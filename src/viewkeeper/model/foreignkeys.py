"""Row keys of foreign tables: the one key column as its users write it, and as our tables have it.

In: row keys of a foreign table, or our keys. Out: the other. Always: both ways lead back to the same bytes: a row key that
could be written in another way too ("07" for 7) is none, or two rows would have one key.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from viewkeeper.errors import InvariantBroken
from viewkeeper.model.encodings import decode_cells, encode_cells
from viewkeeper.model.keybatches import decode_keys, encode_keys
from viewkeeper.model.schema import Foreign, TableSchema


def keys_of_rows(table: TableSchema, rows: pa.Array) -> tuple[pa.Array, np.ndarray]:
    """Our keys of row keys, any where there is none; and where there is none."""
    (column,), foreign = table.key_columns, _foreign(table)
    values, wrong = decode_cells(rows, column.type, foreign.key)
    wrong |= ~np.asarray(pc.equal(encode_cells(values, column.type, foreign.key), rows).fill_null(False))
    keys, _ = encode_keys(table.key_columns, [values], len(rows))
    return keys, wrong


def rows_of_keys(table: TableSchema, keys: pa.Array) -> pa.Array:
    """The row keys of ours."""
    (column,), foreign = table.key_columns, _foreign(table)
    (values,) = decode_keys(table.key_columns, keys)
    return encode_cells(values, column.type, foreign.key)


def _foreign(table: TableSchema) -> Foreign:
    if table.foreign is None:
        raise InvariantBroken(f"table {table.name} is not foreign")
    return table.foreign
