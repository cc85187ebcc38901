"""Row keys of foreign tables: the one key column as a table's users write it, and as our tables have it.

In: row keys of a foreign table, or keys of ours. Out: the others. Always: a row key and a key say the same, both ways: a row
key that is written otherwise ("07") or that does not decode is nobody's key.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from viewkeeper.errors import InvariantBroken
from viewkeeper.model import keybatches
from viewkeeper.model.encodings import decode_cells, encode_cells
from viewkeeper.model.schema import Foreign, TableSchema

KEY_BYTES_MAX = 32_740  # of our keys: HBase takes 32,767 bytes, and we put some before each
_AS_THEY_ARE = ("STRING", "BINARY")  # the value is the row key, byte for byte


def foreign_of(schema: TableSchema) -> Foreign:
    if schema.foreign is None:
        raise InvariantBroken(f"table {schema.name} is not mapped to a foreign table")
    return schema.foreign


def decode_row_keys(schema: TableSchema, row_keys: pa.Array) -> tuple[pa.Array, np.ndarray]:
    """Our keys, NULL where a row key is none, or too long for a view's records; and where it is so."""
    (column,) = schema.key_columns
    values, wrong = decode_cells(row_keys, column.type, foreign_of(schema).key)
    keys, _ = keybatches.encode_keys((column,), [values], len(row_keys))
    if column.type.kind not in _AS_THEY_ARE:
        same = pc.equal(_row_keys(schema, keys), row_keys).fill_null(False)
        wrong = wrong | ~np.asarray(same)
    wrong = wrong | np.asarray(pc.greater(pc.binary_length(keys), KEY_BYTES_MAX).fill_null(False))
    return pc.if_else(pa.array(~wrong), keys, pa.scalar(None, keys.type)), wrong


def fits(row_key: bytes) -> bool:
    """Whether our key of it is not too long; a zero byte takes two there."""
    return 0 < len(row_key) and len(row_key) + row_key.count(0) + 4 <= KEY_BYTES_MAX


def encode_row_keys(schema: TableSchema, keys: Sequence[bytes]) -> list[bytes]:
    """The row keys of our keys."""
    return _row_keys(schema, pa.array(keys, pa.binary())).to_pylist()


def _row_keys(schema: TableSchema, keys: pa.Array) -> pa.Array:
    (column,) = schema.key_columns
    (values,) = keybatches.decode_keys((column,), keys)
    return encode_cells(values, column.type, foreign_of(schema).key)
