"""Foreign rows: rows of tables of the store's other users, kept cell by cell, each with its own timestamp.

In: row keys and cells as their own clients encode them, and writes of cells, in any order, some of them twice. Out: keys,
the known state of each row, and the row that a reader of the foreign table sees. Always: merging is associative,
commutative and idempotent. A put with a lower stamp than a delete stays hidden, even if it was written later. Where a cell
was read again, earlier writes do not count, and later ones must not be merged with them first. NULL stands for no cell; a
row exists if one of its cells does and all decode. Only `text` has several encodings of one value ("7", "07"); a row key
that decodes but is not what we encode is no key.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from viewkeeper.errors import InputError, InvariantBroken
from viewkeeper.model import keybatches
from viewkeeper.model.keybatches import order_of_keys
from viewkeeper.model.rowbatches import decode_rows, encode_rows
from viewkeeper.model.schema import Column, Foreign, TableSchema
from viewkeeper.model.types import BIGINT, BINARY, Encoding, SqlType
from viewkeeper.model.varbinary import VarBinary

CELLS_SCHEMA = pa.schema(  # of writes of cells; `order` is greater for what the store wrote later
    [
        *(("position", pa.int64()), ("key", pa.binary()), ("column", pa.int32()), ("kind", pa.int8())),
        *(("stamp", pa.int64()), ("order", pa.int64()), ("value", pa.binary())),
    ]
)
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
        body = np.ascontiguousarray(numbers.astype(_WIDE[type_.kind]))[:, None].view(np.uint8)
        return VarBinary.of_matrix(body).to_arrow(valid=np.asarray(values.is_valid()))
    return values.cast(pa.string()).cast(pa.binary())


def _decode_wide(cells: pa.Array, type_: SqlType) -> tuple[pa.Array, np.ndarray]:
    """Numbers of a fixed width, most significant byte first."""
    kind = np.dtype(_WIDE[type_.kind])
    whole = VarBinary.from_arrow(cells)
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
    return _row_keys(schema, pa.array(keys, pa.binary())).to_pylist()


def _row_keys(schema: TableSchema, keys: pa.Array) -> pa.Array:
    (column,) = schema.key_columns
    (values,) = keybatches.decode_keys((column,), keys)
    return encode_cells(values, column.type, foreign_of(schema).key)


PUT, HIDE = 0, 1  # a value; or: all values up to the stamp are deleted
READ, READ_NONE = 2, 3  # a value, or none, that was found when the cell was read: what was written before is not there
NEVER = np.iinfo(np.int64).min
_KEPT_BYTES_MAX = (10 << 20) - (128 << 10)  # of a row: HBase keeps a record in one cell, which takes 10 MiB


@dataclass(frozen=True, slots=True)
class CellRows:
    """Writes of cells, merged: for each row and column the newest put, and up to which stamp puts are hidden.

    Of two puts with one stamp the one with the greater `order` in the store's log is newer. Those below `read` do not count.
    """

    values: tuple[pa.Array, ...]  # one for each column, NULL where there is no put, or one that is too large to be kept
    stamps: np.ndarray  # of the puts, by column and row
    orders: np.ndarray
    hidden: np.ndarray
    read: np.ndarray

    def __len__(self) -> int:
        return self.stamps.shape[1]

    @staticmethod
    def of_writes(columns: int, writes: pa.RecordBatch) -> CellRows:
        """One row for each write: (`column`, `kind`, `stamp`, `order`, `value`)."""
        column, kind, stamp, order = (np.asarray(writes[name]) for name in ("column", "kind", "stamp", "order"))
        here = column == np.arange(columns)[:, None]
        puts = here & np.isin(kind, (PUT, READ))
        indexes = np.arange(len(column))
        return CellRows(
            tuple(writes["value"].take(pa.array(indexes, mask=~row)) for row in puts),
            np.where(puts, stamp, NEVER),
            np.where(puts, order, NEVER),
            np.where(here & (kind == HIDE), stamp, NEVER),
            np.where(here & np.isin(kind, (READ, READ_NONE)), order, NEVER),
        )

    @staticmethod
    def decode(columns: int, rows: pa.Array) -> CellRows:
        """Of row bytes; NULL: nothing is known of the row."""
        arrays = decode_rows(state_columns(columns), rows)
        parts = [arrays[at : at + columns] for at in range(0, 5 * columns, columns)]
        numbers = (np.stack([np.asarray(array.fill_null(NEVER)) for array in part]) for part in parts[1:])
        return CellRows(tuple(parts[0]), *numbers)

    def encode(self) -> pa.Array:
        numbers = [*self.stamps, *self.orders, *self.hidden, *self.read]
        arrays = [*self.values, *(pa.array(row, mask=row == NEVER) for row in numbers)]
        return encode_rows(state_columns(len(self.values)), arrays, len(self))

    def take(self, chosen: np.ndarray) -> CellRows:
        at = pa.array(chosen)
        values = tuple(value.take(at) for value in self.values)
        numbers = (part[:, chosen] for part in (self.stamps, self.orders, self.hidden, self.read))
        return CellRows(values, *numbers)

    def merged(self, starts: np.ndarray, order: np.ndarray) -> CellRows:
        """The rows of each group as one: groups are the runs of `order` that begin at `starts`."""
        group = np.repeat(np.arange(len(starts)), np.diff(starts, append=len(order)))
        hidden, read = (np.maximum.reduceat(part[:, order], starts, axis=1) for part in (self.hidden, self.read))
        ordered, ends = self.take(order).since(read[:, group]), np.append(starts[1:], len(order)) - 1
        puts = zip(ordered.stamps, ordered.orders, strict=True)
        newest = np.stack([np.lexsort((orders, stamps, group))[ends] for stamps, orders in puts])
        values = tuple(value.take(pa.array(at)) for value, at in zip(ordered.values, newest, strict=True))
        stamps, orders = (np.take_along_axis(part, newest, axis=1) for part in (ordered.stamps, ordered.orders))
        return CellRows(values, stamps, orders, hidden, read)

    def since(self, read: np.ndarray) -> CellRows:
        """Without the puts that were written before cells were read."""
        counts = self.orders >= read
        if counts.all():
            return self
        stamps, orders = (np.where(counts, part, NEVER) for part in (self.stamps, self.orders))
        return replace(self, values=_where(counts, self.values), stamps=stamps, orders=orders)

    def merged_with(self, other: CellRows) -> CellRows:
        """What both say of the same rows."""
        read = np.maximum(self.read, other.read)
        mine, others = self.since(read), other.since(read)
        later = (others.stamps > mine.stamps) | ((others.stamps == mine.stamps) & (others.orders > mine.orders))
        both = zip(later, others.values, mine.values, strict=True)
        values = tuple(pc.if_else(pa.array(chosen), new, old) for chosen, new, old in both)
        stamps, orders = np.where(later, others.stamps, mine.stamps), np.where(later, others.orders, mine.orders)
        return CellRows(values, stamps, orders, np.maximum(self.hidden, other.hidden), read)

    def kept(self) -> CellRows:
        """The same, without the largest values of rows that are too large for a record; their stamps stay."""
        sizes = np.stack([np.asarray(pc.binary_length(value).fill_null(0)) for value in self.values])
        if (sizes.sum(axis=0) <= _KEPT_BYTES_MAX).all():
            return self
        order = np.argsort(sizes, axis=0, kind="stable")
        totals = np.cumsum(np.take_along_axis(sizes, order, 0), axis=0)
        fits = np.empty(sizes.shape, bool)
        np.put_along_axis(fits, order, totals <= _KEPT_BYTES_MAX, axis=0)
        return replace(self, values=_where(fits, self.values))

    @property
    def too_large(self) -> np.ndarray:
        """By column and row, the values that a reader of the base sees and that are not kept."""
        shown = self.stamps > self.hidden
        return shown & np.stack([np.asarray(value.is_null()) for value in self.values])

    @property
    def seen(self) -> tuple[pa.Array, ...]:
        """The values of each column that a reader sees; NULL where there is none."""
        return _where(self.stamps > self.hidden, self.values)


def _where(chosen: np.ndarray, values: Sequence[pa.Array]) -> tuple[pa.Array, ...]:
    """The values that are chosen, by column and row; NULL in place of the others."""
    pairs = zip(chosen, values, strict=True)
    return tuple(pc.if_else(pa.array(row), value, pa.scalar(None, value.type)) for row, value in pairs)


def state_columns(columns: int) -> tuple[Column, ...]:
    """The columns in which what is known of a row is stored."""
    numbers = [Column(f"{name}{i}", BIGINT) for name in ("stamp", "order", "hidden", "read") for i in range(columns)]
    return (*(Column(f"value{i}", BINARY) for i in range(columns)), *numbers)


def merge_by_key(keys: pa.Array, rows: CellRows, groups: np.ndarray) -> tuple[np.ndarray, CellRows]:
    """The index of one row for each key, by `groups` and then by key; and all rows of that key merged."""
    order, starts = order_of_keys(keys, groups=groups)
    return order[starts], rows.take(order) if len(starts) == len(order) else rows.merged(starts, order)


def cell_rows(table: TableSchema, rows: pa.Array) -> CellRows:
    """The cells of rows of a foreign table's DELTA."""
    return CellRows.decode(len(table.value_columns), rows)


def rows_of_cells(table: TableSchema, cells: Sequence[pa.Array], count: int) -> pa.Array:
    """The rows that cells make, of which there is an array for each value column; NULL where there is none."""
    return rows_and_reasons(table, cells, count)[0]


def rows_and_reasons(
    table: TableSchema, cells: Sequence[pa.Array], count: int, too_large: np.ndarray | None = None
) -> tuple[pa.Array, pa.Array]:
    """The rows; and why there is none where a cell does not decode, or is too large to be kept."""
    arrays, there = [], np.zeros(count, bool)
    reasons, mapped = pa.nulls(count, pa.binary()), foreign_of(table).cells
    for number, (column, cell, seen) in enumerate(zip(table.value_columns, mapped, cells, strict=True)):
        values, failed = decode_cells(seen, column.type, cell.encoding)
        arrays.append(values)
        there |= np.asarray(seen.is_valid())
        if failed.any():
            reason = f"the cell of {column.name} is no {column.type}".encode()
            reasons = pc.if_else(pa.array(failed), pa.scalar(reason, pa.binary()), reasons)
        if too_large is not None and too_large[number].any():
            reason = f"the cell of {column.name} is too large: a row has 10 MB at most".encode()
            reasons = pc.if_else(pa.array(too_large[number]), pa.scalar(reason, pa.binary()), reasons)
    encoded = encode_rows(table.value_columns, arrays, count)
    there &= np.asarray(reasons.is_null())
    return pc.if_else(pa.array(there), encoded, pa.scalar(None, encoded.type)), reasons


def foreign_row_batch(table: TableSchema, batch: pa.RecordBatch) -> pa.RecordBatch:
    """The rows of a batch (key, row) of a foreign table's DELTA."""
    cells = cell_rows(table, batch["row"])
    rows, _ = rows_and_reasons(table, cells.seen, len(cells), cells.too_large)
    there = rows.is_valid()
    return pa.record_batch([batch["key"].filter(there), rows.filter(there)], ["key", "row"])
