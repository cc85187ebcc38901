"""Puts: versions of many records, as the bytes that HBase's Thrift server reads.

In: row keys, values and columns, as Arrow arrays. Out: the arguments of `putMultiple` in Thrift's binary protocol, batch by
batch. Always: the same bytes that a Thrift library writes of the same puts. Ours to write, because a struct for each cell
took more time than all the rest, most of it in Python's garbage collector; here nothing is done for a single record.

    argument  head (type in 1 byte, id in 2) and value; a struct ends with a zero byte; lengths and counts have 4 bytes
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from viewkeeper.stores.hbase.cells import BATCH_BYTES, BATCH_RECORDS, COLUMNS, RECORD

_STRING, _STRUCT, _I64, _LIST = 11, 12, 10, 15
_END = b"\0"


@dataclass(frozen=True, slots=True)
class Puts:
    """Versions that one epoch writes; a row of each array is one. `columns`: those that people see, by name."""

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
        """The puts in batches of bounded size, beyond one put."""
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
        """Those of `putMultiple`."""
        cells = [(RECORD, RECORD, self.values), *((COLUMNS, name, texts) for name, texts in self.columns)]
        parts = [_head(_STRING, 1), lengths_of(self.rows), self.rows, _head(_LIST, 2) + _list_of(len(cells))]
        for family, name, values in cells:
            named = _head(_STRING, 1) + _sized(family) + _head(_STRING, 2) + _sized(name)
            parts += [named + _head(_STRING, 3), lengths_of(values), values, _END]
        parts.append(_head(_I64, 3) + struct.pack(">q", self.epoch) + _END)
        puts = pc.binary_join_element_wise(*parts, b"")
        head = _head(_STRING, 1) + _sized(table) + _head(_LIST, 2) + _list_of(len(self))
        return head + b"".join(puts.to_pylist()) + _END


def with_first(first: np.ndarray, rest: pa.Array) -> pa.Array:
    """Each value behind a byte."""
    return pc.binary_join_element_wise(_bytes_of(first.astype(np.uint8)), rest, b"")


def lengths_of(values: pa.Array) -> pa.Array:
    return _bytes_of(np.asarray(pc.binary_length(values)).astype(">u4"))


def _bytes_of(numbers: np.ndarray) -> pa.Array:
    """The bytes of each number."""
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
