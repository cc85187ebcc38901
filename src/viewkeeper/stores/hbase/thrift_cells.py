"""Versions of records as cells of HBase, and as the structs and bytes that its Thrift 2 interface takes.

In: keys, rows and epochs. Out: HBase's structs, a filter for many key ranges, and the bytes of `putMultiple`; and rows
of HBase's results. Always: the row key is the partition's byte and the key, the timestamp is the epoch, and the value
of the one cell `r:r` is the whole row, after a byte that is one more than the number of versions below it when it was
written that are not listed to be deleted. A tombstone is a value too.

HBase's own definition is loaded with `thriftpy2` when it is first used. Puts are written as bytes, batch by batch and
without work per record: structs for their cells took more time than all the rest, most of it in Python's garbage
collector. They are the bytes that a Thrift library writes of the same puts:

    argument  head (type in 1 byte, id in 2) and value; a struct ends with a zero byte; lengths and counts have 4 bytes
"""

from __future__ import annotations

import struct
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from viewkeeper.errors import StoreError
from viewkeeper.model.read_frontier import EPOCH_MAX

_DEFINITION = Path(__file__).with_name("hbase.thrift")


@cache
def thrift() -> Any:
    """The module with TGet, TPut and the others."""
    try:
        import thriftpy2
    except ImportError:
        raise StoreError(
            "HBase is reached with thriftpy2, which is missing", "pip install 'viewkeeper[hbase]'"
        ) from None
    return thriftpy2.load(str(_DEFINITION), module_name="viewkeeper_hbase_thrift")


_CLASS = b"org.apache.hadoop.hbase.filter.MultiRowRangeFilter"
_INCLUDED, _EXCLUDED = b"\x10\x01", b"\x20\x00"  # field 2: true, of the start; field 4: false, of the stop


def ranges_filter(ranges: Iterable[tuple[bytes, bytes]]) -> bytes:
    """The filter for start <= row < stop of each range, in protobuf."""
    body = b"".join(_field(1, _field(1, start) + _INCLUDED + _field(3, stop) + _EXCLUDED) for start, stop in ranges)
    return _field(1, _CLASS) + _field(2, body)


def _field(number: int, value: bytes) -> bytes:
    head, length = bytearray((number << 3 | 2,)), len(value)
    while length > 0x7F:
        head.append(length & 0x7F | 0x80)
        length >>= 7
    return bytes((*head, length)) + value


RECORD, COLUMNS = b"r", b"c"  # families: of records, and of the columns that views show
VERSIONS_MAX = FOREVER = (1 << 31) - 1
KEY_BYTES_MAX = (1 << 15) - 1 - 14  # HBase's limit of a row key, without what the journal puts before ours
ROW_BYTES_MAX = (10 << 20) - (64 << 10)  # hbase.client.keyvalue.maxsize, without the cell's own head
BATCH_RECORDS, BATCH_BYTES = 1_000, 4 << 20  # of one request
OLDER_MAX = 3  # versions below another one: the next write has them deleted
GONE_VALUE = b""
_One = TypeVar("_One")
# Of a record: the epoch of its newest version, 0 if all are of aborted epochs; and how many are older. A plain tuple, which
# the garbage collector leaves alone, because there are many.
Below = tuple[int, int]
NOTHING: Below = (-1, 0)  # no version at all


def row_key(partition: int, key: bytes) -> bytes:
    return bytes((partition,)) + key


def row_of(value: bytes) -> bytes | None:
    return value[1:] if value else None


def times(since: int, until: int) -> Any:
    """The versions of the epochs from `since` to `until`."""
    return thrift().TTimeRange(since, min(until + 1, EPOCH_MAX))


def record_column() -> list[Any]:
    return [thrift().TColumn(RECORD, RECORD)]


def get_of(row: bytes, time_range: Any, versions: int) -> Any:
    return thrift().TGet(row=row, columns=record_column(), timeRange=time_range, maxVersions=versions)


def delete_of(row: bytes, up_to: int) -> Any:
    """All cells of a row with an epoch up to that one; with `columns` set, HBase would ignore the timestamp."""
    return thrift().TDelete(row=row, timestamp=up_to)


def versions_in(result: Any) -> Iterator[tuple[int, bytes | None]]:
    """(epoch, row) of the versions of one record, newest first."""
    return ((cell.timestamp, row_of(cell.value)) for cell in result.columnValues)


def visible(result: Any, aborted: Collection[int]) -> bytes | None:
    """The row of the newest version that is not aborted."""
    cell = _newest(result, aborted)
    return None if cell is None else row_of(cell.value)


def below(result: Any, aborted: Collection[int]) -> Below:
    """The newest version of a record, and how many are older, as its next version finds them."""
    cell = _newest(result, aborted)
    if cell is None:
        return (0, 0) if result.columnValues else NOTHING
    return cell.timestamp, cell.value[0] - 1 if cell.value else OLDER_MAX


def _newest(result: Any, aborted: Collection[int]) -> Any | None:
    return next((cell for cell in result.columnValues if cell.timestamp not in aborted), None)


def versions_needed(until: int, aborted: Collection[int]) -> int:
    """How many versions to ask for to find one that is not aborted."""
    return 1 + sum(epoch <= until for epoch in aborted)


def in_batches(values: Sequence[_One], most: int) -> Iterator[Sequence[_One]]:
    return (values[start : start + most] for start in range(0, len(values), most))


def by_size(puts: Iterable[Any]) -> Iterator[list[Any]]:
    """The puts in batches of bounded size, of one put at least."""
    batch: list[Any] = []
    size = 0
    for put in puts:
        batch.append(put)
        size += len(put.row) + sum(len(cell.value) for cell in put.columnValues)
        if len(batch) == BATCH_RECORDS or size >= BATCH_BYTES:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch


_STRING, _STRUCT, _I64, _LIST = 11, 12, 10, 15
_END = b"\0"


@dataclass(frozen=True, slots=True)
class Puts:
    """Versions that one epoch writes, one in each row of the arrays. `columns`: those that views show, by name."""

    epoch: int
    rows: pa.Array
    values: pa.Array
    columns: tuple[tuple[bytes, pa.Array], ...] = ()

    @staticmethod
    def of_rows(epoch: int, rows: list[bytes]) -> Puts:
        """Versions without a value."""
        return Puts(epoch, pa.array(rows, pa.binary()), pa.array([b""] * len(rows), pa.binary()))

    def __len__(self) -> int:
        return len(self.rows)

    def batches(self) -> Iterator[Puts]:
        """The puts in batches of bounded size, of one put at least."""
        arrays = [self.rows, self.values, *(texts for _, texts in self.columns)]
        ends = np.cumsum(sum(np.asarray(pc.binary_length(array)).astype(np.int64) for array in arrays))
        start = 0
        while start < len(self):
            done = ends[start - 1] if start else 0
            full = int(np.searchsorted(ends, done + BATCH_BYTES)) + 1
            stop = min(start + BATCH_RECORDS, full, len(self))
            columns = tuple((name, texts[start:stop]) for name, texts in self.columns)
            yield Puts(self.epoch, self.rows[start:stop], self.values[start:stop], columns)
            start = stop

    def arguments(self, table: bytes) -> bytes:
        """The bytes of the arguments of `putMultiple`."""
        cells = [(RECORD, RECORD, self.values), *((COLUMNS, name, texts) for name, texts in self.columns)]
        parts = [_head(_STRING, 1), _lengths_of(self.rows), self.rows, _head(_LIST, 2) + _list_of(len(cells))]
        for family, name, values in cells:
            named = _head(_STRING, 1) + _sized(family) + _head(_STRING, 2) + _sized(name)
            parts += [named + _head(_STRING, 3), _lengths_of(values), values, _END]
        parts.append(_head(_I64, 3) + struct.pack(">q", self.epoch) + _END)
        puts = pc.binary_join_element_wise(*parts, b"")
        head = _head(_STRING, 1) + _sized(table) + _head(_LIST, 2) + _list_of(len(self))
        return head + b"".join(puts.to_pylist()) + _END


def with_first(first: np.ndarray, rest: pa.Array) -> pa.Array:
    """Each value after a byte."""
    return pc.binary_join_element_wise(_bytes_of(first.astype(np.uint8)), rest, b"")


def _lengths_of(values: pa.Array) -> pa.Array:
    return _bytes_of(np.asarray(pc.binary_length(values)).astype(">u4"))


def _bytes_of(numbers: np.ndarray) -> pa.Array:
    width = numbers.dtype.itemsize
    buffer = pa.py_buffer(np.ascontiguousarray(numbers))
    return pa.FixedSizeBinaryArray.from_buffers(pa.binary(width), len(numbers), [None, buffer]).cast(pa.binary())


def _head(kind: int, number: int) -> bytes:
    return struct.pack(">bh", kind, number)


def _sized(value: bytes) -> bytes:
    return struct.pack(">I", len(value)) + value


def _list_of(count: int) -> bytes:
    """The head of a list of structs."""
    return struct.pack(">bI", _STRUCT, count)
