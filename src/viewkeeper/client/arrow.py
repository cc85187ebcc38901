"""Arrow and pandas: tables and views as Arrow tables, and these as data frames.

In: pairs of key and row bytes, Arrow tables, data frames. Out: an Arrow table with the columns that a reader sees; a
data frame, or the Arrow data of one. Always: decoded by whole columns; TIMESTAMP is aware and in UTC; pandas is
imported when it is first needed.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from viewkeeper.catalog.catalog import ViewDefinition
from viewkeeper.errors import BadRow, StoreError
from viewkeeper.model.rowbatches import as_users_see, decode_columns, decode_indexes
from viewkeeper.model.schema import TableSchema
from viewkeeper.model.stored_rows import pairs_to_arrow
from viewkeeper.model.stored_values import DAMAGE, record_damaged, require_texts

if TYPE_CHECKING:
    import pandas as pd


def table_to_arrow(schema: TableSchema, pairs: Iterable[tuple[bytes, bytes]]) -> pa.Table:
    names = [column.name for column in schema.columns]
    return pa.table(require_texts(decode_columns(schema, names, *pairs_to_arrow(list(pairs)))), names=names)


def records_to_arrow(view: ViewDefinition, keys: pa.Array, rows: pa.Array) -> pa.Table:
    """Records of a view; `rows` has no NULL."""
    positions = [(item.part, item.index) for item in view.shown]
    try:
        arrays = require_texts(decode_indexes(view.node.key, view.node.row, positions, keys, rows))
    except DAMAGE as error:
        raise record_damaged(view.name) from error
    return pa.table({item.column.name: as_users_see(array) for item, array in zip(view.shown, arrays, strict=True)})


def keys_and_values(view: ViewDefinition, keys: pa.Array, rows: pa.Array) -> pa.Table:
    """Records of a view with their whole key: the values `c0`, …, then the parts of the key."""
    positions = [(item.part, item.index) for item in view.shown]
    positions += [("key", index) for index in range(len(view.node.key))]
    arrays = require_texts(decode_indexes(view.node.key, view.node.row, positions, keys, rows))
    return pa.table({f"c{position}": array for position, array in enumerate(arrays)})


def arrow_to_frame(table: pa.Table) -> pd.DataFrame:
    """A DataFrame with nullable dtypes.

    BOOLEAN, INT, BIGINT, DOUBLE and STRING become boolean, Int32, Int64, Float64 and string; TIMESTAMP becomes
    datetime64[us, UTC]; DECIMAL, DATE and BINARY stay Python's Decimal, date and bytes, because pandas has no type
    that holds all of their values.
    """
    try:
        import pandas as pd
    except ImportError:
        raise StoreError("to_pandas needs pandas, which is not installed", "pip install 'viewkeeper[pandas]'") from None
    dtypes = {
        pa.bool_(): pd.BooleanDtype(),
        pa.int32(): pd.Int32Dtype(),
        pa.int64(): pd.Int64Dtype(),
        pa.float64(): pd.Float64Dtype(),
        pa.string(): pd.StringDtype(),
    }
    return table.to_pandas(types_mapper=dtypes.get, date_as_object=True, ignore_metadata=True)


def frame_to_arrow(frame: Any) -> pa.Table:
    """The frame's columns, and those of its index if they have names; NaN and NA are NULL."""
    has_names = all(name is not None for name in frame.index.names)
    try:
        return pa.Table.from_pandas(frame, preserve_index=has_names)
    except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError, ValueError) as error:
        reason = " ".join(str(part) for part in error.args).splitlines()[0]
        fact = f"the DataFrame cannot be read as columns: {reason}"
        raise BadRow(fact, "give each column values of one type") from None
