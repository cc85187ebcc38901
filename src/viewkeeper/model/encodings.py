"""Encodings: how a foreign store's cells hold values, as its own clients write them.

In: the bytes of cells, a SQL type and the name of an encoding. Out: typed values, and which bytes are none; or the other
way round. Always: NULL stands for no cell; what is decoded and encoded again is the same bytes, but for `text`, in which one
value can be written in several ways ("7", "07").
"""

from __future__ import annotations

from contextlib import suppress

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from viewkeeper.errors import InputError
from viewkeeper.model.ragged import Ragged
from viewkeeper.model.types import Encoding, SqlType

_WIDE = {"INT": ">i4", "BIGINT": ">i8", "DOUBLE": ">f8", "BOOLEAN": "u1"}  # as HBase's Bytes.toBytes writes them

_DAY_US = 86_400_000_000
_FIRST_DAY, _LAST_DAY = -719_162, 2_932_896  # 0001-01-01 and 9999-12-31
_YEARS = {"DATE": (_FIRST_DAY, _LAST_DAY), "TIMESTAMP": (_FIRST_DAY * _DAY_US, (_LAST_DAY + 1) * _DAY_US - 1)}


def require_encoding(type_: SqlType, encoding: Encoding) -> None:
    """Raise where values of a type cannot be encoded so."""
    if encoding == "bytes" and type_.kind not in (*_WIDE, "STRING", "BINARY"):
        raise InputError(f"a {type_} has no encoding as bytes", "use encoding 'text' for this column")


def decode_cells(cells: pa.Array, type_: SqlType, encoding: Encoding) -> tuple[pa.Array, np.ndarray]:
    """The values, NULL where there is no cell or it does not decode; and where it does not."""
    if type_.kind == "BINARY":
        return cells, np.zeros(len(cells), bool)
    if encoding == "bytes" and type_.kind in _WIDE:
        return _decode_wide(cells, type_)
    text, wrong = _decode_text(cells)
    if type_.kind == "STRING":
        return text, wrong
    values = _cast(text, type_)
    return values, wrong | (np.asarray(values.is_null()) & np.asarray(text.is_valid()))


def encode_cells(values: pa.Array, type_: SqlType, encoding: Encoding) -> pa.Array:
    """The bytes of cells; NULL where there is none."""
    if type_.kind == "BINARY":
        return values
    if encoding == "bytes" and type_.kind in _WIDE:
        numbers = np.asarray(values.fill_null(False if type_.kind == "BOOLEAN" else 0))
        if type_.kind == "BOOLEAN":
            numbers = np.where(numbers, 0xFF, 0)
        width = np.dtype(_WIDE[type_.kind]).itemsize
        data = np.ascontiguousarray(numbers.astype(_WIDE[type_.kind])).view(np.uint8)
        offsets = np.arange(len(values) + 1) * width
        return Ragged(data, offsets).to_arrow(valid=np.asarray(values.is_valid()))
    return values.cast(pa.string()).cast(pa.binary())


def _decode_wide(cells: pa.Array, type_: SqlType) -> tuple[pa.Array, np.ndarray]:
    """Numbers of a fixed width, most significant byte first."""
    kind = np.dtype(_WIDE[type_.kind])
    whole = Ragged.from_arrow(cells)
    there = np.asarray(cells.is_valid())
    fits = there & (whole.lengths == kind.itemsize)
    found = np.zeros((len(cells), kind.itemsize), np.uint8)
    found[fits] = whole.data[whole.offsets[:-1][fits, None] + np.arange(kind.itemsize)]
    numbers = found.view(kind)[:, 0]
    if type_.kind == "BOOLEAN":  # any byte but 0 is true, as Bytes.toBoolean reads it
        return pa.array(numbers != 0, mask=~fits), there & ~fits
    return pa.array(numbers.astype(kind.newbyteorder("=")), type_.arrow, mask=~fits), there & ~fits


def _decode_text(cells: pa.Array) -> tuple[pa.Array, np.ndarray]:
    """UTF-8; one cell after the other only where one of them is none."""
    try:
        return cells.cast(pa.string()), np.zeros(len(cells), bool)
    except pa.ArrowInvalid:
        texts = [None if cell is None else _text(cell) for cell in cells.to_pylist()]
    found = pa.array(texts, pa.string())
    return found, np.asarray(found.is_null()) & np.asarray(cells.is_valid())


def _text(cell: bytes) -> str | None:
    try:
        return cell.decode()
    except UnicodeDecodeError:
        return None


def _cast(text: pa.Array, type_: SqlType) -> pa.Array:
    """Values of text, NULL where it is none; one after the other only where one of them is none."""
    trimmed = pc.utf8_trim_whitespace(text)
    try:
        values = trimmed.cast(type_.arrow)
    except pa.ArrowInvalid:
        values = pa.array([_value(one, type_) for one in trimmed], type_.arrow)
    if type_.kind not in _YEARS:
        return values
    least, most = _YEARS[type_.kind]
    numbers = values.view(pa.int32() if type_.kind == "DATE" else pa.int64())
    is_year = pc.and_(pc.greater_equal(numbers, least), pc.less_equal(numbers, most))
    return pc.if_else(is_year, values, pa.scalar(None, values.type))


def _value(text: pa.Scalar, type_: SqlType) -> pa.Scalar | None:
    """A TIMESTAMP may have an offset; without one it is in UTC."""
    for kind in (type_.arrow, pa.timestamp("us", "UTC")) if type_.kind == "TIMESTAMP" else (type_.arrow,):
        with suppress(pa.ArrowInvalid):
            return text.cast(kind).cast(type_.arrow)
    return None
