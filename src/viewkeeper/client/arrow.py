"""Arrow results: tables and views as Arrow tables.

In: pairs of key and row bytes. Out: an Arrow table with the columns that a reader sees. Always: decoded by whole
columns; TIMESTAMP is aware and in UTC.
"""

from __future__ import annotations

from collections.abc import Iterable

import pyarrow as pa

from viewkeeper.catalog.catalog import ViewDefinition
from viewkeeper.model.pairs import pairs_to_arrow
from viewkeeper.model.schema import TableSchema
from viewkeeper.model.tablebatches import decode_columns, decode_places, face
from viewkeeper.model.texts import DAMAGE, record_damaged, require_texts


def table_to_arrow(schema: TableSchema, pairs: Iterable[tuple[bytes, bytes]]) -> pa.Table:
    """Rows of a base table."""
    names = [column.name for column in schema.columns]
    return pa.table(require_texts(decode_columns(schema, names, *pairs_to_arrow(list(pairs)))), names=names)


def records_to_arrow(view: ViewDefinition, keys: pa.Array, rows: pa.Array) -> pa.Table:
    """Records of a view; `rows` has no NULL."""
    places = [(item.part, item.index) for item in view.shown]
    try:
        arrays = require_texts(decode_places(view.node.key, view.node.row, places, keys, rows))
    except DAMAGE as error:
        raise record_damaged(view.name) from error
    return pa.table({item.column.name: face(array) for item, array in zip(view.shown, arrays, strict=True)})


def keys_and_values(view: ViewDefinition, keys: pa.Array, rows: pa.Array) -> pa.Table:
    """Records of a view with their whole key: the values `c0`, …, then the parts of the key."""
    places = [(item.part, item.index) for item in view.shown]
    places += [("key", index) for index in range(len(view.node.key))]
    arrays = require_texts(decode_places(view.node.key, view.node.row, places, keys, rows))
    return pa.table({f"c{place}": array for place, array in enumerate(arrays)})
