"""Arrow results: tables and views as Arrow tables.

In: pairs of key and row bytes. Out: an Arrow table with the columns that a reader sees. Always: decoded by whole
columns; TIMESTAMP is aware and in UTC.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import pyarrow as pa

from viewkeeper.catalog.catalog import StoredNode
from viewkeeper.model.keybatches import decode_keys
from viewkeeper.model.pairs import pairs_to_arrow
from viewkeeper.model.rowbatches import decode_rows
from viewkeeper.model.schema import TableSchema
from viewkeeper.model.tablebatches import decode_table, face
from viewkeeper.plan.nodes import OutputColumn


def table_to_arrow(schema: TableSchema, pairs: Iterable[tuple[bytes, bytes]]) -> pa.Table:
    """Rows of a base table."""
    return pa.table(decode_table(schema, *pairs_to_arrow(list(pairs))))


def records_to_arrow(node: StoredNode, shown: Sequence[OutputColumn], keys: pa.Array, rows: pa.Array) -> pa.Table:
    """Records of a view; `rows` has no NULL."""
    _, arrays = _decode(node, shown, keys, rows)
    return pa.table({item.column.name: face(array) for item, array in zip(shown, arrays, strict=True)})


def keys_and_values(node: StoredNode, shown: Sequence[OutputColumn], keys: pa.Array, rows: pa.Array) -> pa.Table:
    """Records of a view with their whole key: the values `c0`, …, then the parts of the key."""
    parts, arrays = _decode(node, shown, keys, rows)
    return pa.table({f"c{place}": array for place, array in enumerate([*arrays, *parts])})


def _decode(
    node: StoredNode, shown: Sequence[OutputColumn], keys: pa.Array, rows: pa.Array
) -> tuple[list[pa.Array], list[pa.Array]]:
    """The key's parts, and the values shown."""
    parts = decode_keys(node.key, keys)
    wanted = sorted({item.index for item in shown if item.part == "row"})
    values = dict(zip(wanted, decode_rows(node.row, rows, wanted), strict=True))
    return parts, [parts[item.index] if item.part == "key" else values[item.index] for item in shown]
