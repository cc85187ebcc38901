"""DataFrames: conversion to and from pandas.

In: an Arrow table, or a DataFrame. Out: the other. Always: a column's dtype follows from its SQL type alone, never from
the values in it, and no NULL turns an integer into a float; pandas is imported only here, and the error names it when
it is not installed.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from viewkeeper.errors import BadRow, StoreError

if TYPE_CHECKING:
    import pandas as pd


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


def is_frame(value: object) -> bool:
    """Whether the value is a DataFrame; without pandas imported, none is."""
    pandas = sys.modules.get("pandas")
    return pandas is not None and isinstance(value, pandas.DataFrame)


def frame_to_arrow(frame: Any) -> pa.Table:
    """The frame's columns, and those of its index if they have names; NaN and NA are NULL."""
    has_names = all(name is not None for name in frame.index.names)
    try:
        return pa.Table.from_pandas(frame, preserve_index=has_names)
    except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError, ValueError) as error:
        reason = " ".join(str(part) for part in error.args).splitlines()[0]
        raise BadRow(
            f"the DataFrame cannot be read as columns: {reason}", "give each column values of one type"
        ) from None
