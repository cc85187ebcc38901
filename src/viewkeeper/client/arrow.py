"""Arrow answers: tables and views as Arrow tables.

In: pairs of key and row bytes. Out: an Arrow table whose columns are those a reader sees. Always: decoded by whole
columns; TIMESTAMP is aware and in UTC.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import pyarrow as pa

from viewkeeper.model.keybatches import decode_keys
from viewkeeper.model.rowbatches import decode_rows
from viewkeeper.model.schema import Column, TableSchema
from viewkeeper.plan.physical import Node, Shown


def table_to_arrow(schema: TableSchema, pairs: Iterable[tuple[bytes, bytes]]) -> pa.Table:
    """Rows of a base table."""
    keys, rows = _columns_of(pairs)
    parts = dict(zip(schema.key, decode_keys(schema.key_columns, keys), strict=True))
    values = decode_rows(schema.value_columns, rows)
    parts |= {column.name: array for column, array in zip(schema.value_columns, values, strict=True)}
    return _to_table(schema.columns, [parts[column.name] for column in schema.columns])


def records_to_arrow(node: Node, shown: Sequence[Shown], keys: pa.Array, rows: pa.Array) -> pa.Table:
    """Records of a view; `rows` has no NULL."""
    _, arrays = _decode(node, shown, keys, rows)
    return _to_table([item.column for item in shown], arrays)


def keys_and_values(node: Node, shown: Sequence[Shown], keys: pa.Array, rows: pa.Array) -> pa.Table:
    """Records of a view with their whole key: `__key_0`, …, `__value_0`, …."""
    parts, arrays = _decode(node, shown, keys, rows)
    columns = {f"__key_{i}": array for i, array in enumerate(parts)}
    return pa.table(columns | {f"__value_{i}": array for i, array in enumerate(arrays)})


def _decode(
    node: Node, shown: Sequence[Shown], keys: pa.Array, rows: pa.Array
) -> tuple[list[pa.Array], list[pa.Array]]:
    """The key's parts, and the values shown."""
    parts = decode_keys(node.key, keys)
    wanted = sorted({item.index for item in shown if item.part == "row"})
    values = dict(zip(wanted, decode_rows(node.row, rows, wanted), strict=True))
    return parts, [parts[item.index] if item.part == "key" else values[item.index] for item in shown]


def _columns_of(pairs: Iterable[tuple[bytes, bytes]]) -> tuple[pa.Array, pa.Array]:
    both = list(pairs)
    keys = pa.array([key for key, _ in both], pa.binary())
    return keys, pa.array([row for _, row in both], pa.binary())


def _to_table(columns: Sequence[Column], arrays: Sequence[pa.Array]) -> pa.Table:
    aware = pa.timestamp("us", "UTC")
    faced = [array.cast(aware) if pa.types.is_timestamp(array.type) else array for array in arrays]
    return pa.table(dict(zip([column.name for column in columns], faced, strict=True)))
