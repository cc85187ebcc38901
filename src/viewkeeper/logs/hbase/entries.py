"""WAL entries: where they begin and end in a file's bytes, and what their keys say.

In: bytes that begin at an entry. Out: for the whole entries of wanted tables, their keys as columns and where their cells
are. Always: an entry counts when all of it is there, and what is cut off is left for later. Bytes that no HBase writes are
`CorruptStore`. Cells are stepped over, not read.

    entry    length, key (protobuf WALKey), then as many cells as the key says, each after its length in 4 bytes
    trailer  after the last entry of a file that was closed: "\\0\\0\\0\\0LAWP"
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from viewkeeper.errors import CorruptStore
from viewkeeper.logs.hbase.protobuf import CutOff, numbers_in, read_number, read_numbers, strings_in

TRAILER = b"\0\0\0\0LAWP"
DAMAGED = "HBase's WALPrettyPrinter tells how far the file is whole"

_REGION, _TABLE, _SEQUENCE, _WRITTEN, _CELLS = 1, 2, 3, 4, 7  # fields of WALKey
# A key as HBase writes it unless tables are replicated: region and table, which hold no byte below 0x20, then the three
# numbers. What may follow is not needed. Of the first group it is checked once that the two lengths are right.
_PLAIN_KEY = re.compile(
    rb"(\x0a[\x01-\x7f][\x20-\xff]+\x12[\x01-\x7f][\x20-\xff]+)"
    rb"\x18([\x80-\xff]*[\x00-\x7f])\x20([\x80-\xff]*[\x00-\x7f])\x38([\x80-\xff]*[\x00-\x7f])",
)
_LENGTH = struct.Struct(">I")
_LENGTH_MAX = 0x7FFFFFFF
_NOT_WANTED = -1


@dataclass(frozen=True, slots=True)
class Entries:
    """The whole entries of wanted tables, a column for each field.

    `stop`: where the last whole entry ended, wanted or not; `closed`: whether the trailer follows.
    """

    names: list[tuple[str, str]]  # region and table: what `name` counts
    name: np.ndarray
    ends: np.ndarray
    sequences: np.ndarray
    written_ms: np.ndarray
    counts: np.ndarray  # of cells
    cells: np.ndarray  # where each cell's length is, of all entries
    stop: int
    closed: bool


def scan_entries(data: bytes, wanted: Callable[[str], bool], *, file: str, offset: int) -> Entries:
    """The entries of `data`, which begins at `offset` of `file`; `wanted` tells the tables whose entries to keep."""
    scan = _Scan(data, wanted)
    at, closed = 0, False
    try:
        while at < len(data):
            if data[at] == 0:  # no key is empty: this is the trailer, a part of it, or what a crash left
                closed = data.startswith(TRAILER, at)
                break
            at = scan.take_entry(at)
    except CutOff:
        pass
    except ValueError as wrong:
        raise CorruptStore(f"the WAL {file} has no entry at {offset + at}: {wrong}", DAMAGED) from wrong
    return scan.entries(at, closed=closed)


@dataclass(slots=True)
class _Scan:
    """One pass over the entries of `data`; the columns grow by an entry at a time."""

    data: bytes
    wanted: Callable[[str], bool]
    heads: dict[bytes, int] = field(default_factory=dict)  # region and table in a key's bytes: which name
    names: list[tuple[str, str]] = field(default_factory=list)
    name: list[int] = field(default_factory=list)
    ends: list[int] = field(default_factory=list)
    sequences: list[int] = field(default_factory=list)  # where the number is
    written: list[int] = field(default_factory=list)  # where the number is
    counts: list[int] = field(default_factory=list)
    cells: list[int] = field(default_factory=list)

    def take_entry(self, at: int) -> int:
        """Note the entry at `at`, and return where the next one begins."""
        data = self.data
        length, key_at = data[at], at + 1
        if length > 127:
            length, key_at = read_number(data, at)
        cells_at = key_at + length
        if cells_at > len(data):
            raise CutOff
        key = _PLAIN_KEY.match(data, key_at, cells_at)
        name = self.heads.get(key[1]) if key else None
        if key is None or name is None:
            return self._take_by_fields(key_at, cells_at)
        count_at = key.start(4)
        count = data[count_at]
        if count > 127:
            count, _ = read_number(data, count_at)
        return self._take_cells(name, key.start(2), key.start(3), count, cells_at)

    def entries(self, stop: int, *, closed: bool) -> Entries:
        return Entries(
            self.names,
            np.array(self.name, np.int32),
            np.array(self.ends, np.int64),
            read_numbers(self.data, np.array(self.sequences, np.int64)),
            read_numbers(self.data, np.array(self.written, np.int64)),
            np.array(self.counts, np.int64),
            np.array(self.cells, np.int64),
            stop,
            closed,
        )

    def _take_by_fields(self, key_at: int, cells_at: int) -> int:
        """An entry of a region that is met for the first time, or one with a longer key."""
        strings = dict(strings_in(self.data, key_at, cells_at))
        numbers = dict(numbers_in(self.data, key_at, cells_at))
        if not {_REGION, _TABLE} <= strings.keys() or not {_SEQUENCE, _WRITTEN} <= numbers.keys():
            raise ValueError("its key lacks a field")
        name = self._name(strings[_REGION], strings[_TABLE])
        count = read_number(self.data, numbers[_CELLS])[0] if _CELLS in numbers else 0
        return self._take_cells(name, numbers[_SEQUENCE], numbers[_WRITTEN], count, cells_at)

    def _name(self, region: bytes, table: bytes) -> int:
        """The number of a region, whose table is `table`."""
        short = len(region) < 128 and len(table) < 128
        head = b"\x0a%c%b\x12%c%b" % (len(region), region, len(table), table) if short else region + b"\0" + table
        if head not in self.heads:
            text = table.decode()
            self.heads[head] = len(self.names) if self.wanted(text) else _NOT_WANTED
            if self.heads[head] != _NOT_WANTED:
                self.names.append((region.decode(), text))
        return self.heads[head]

    def _take_cells(self, name: int, sequence_at: int, written_at: int, count: int, at: int) -> int:
        """Step over the cells; nothing is noted of an entry that is cut off."""
        cells = []
        for _ in range(count):
            cells.append(at)
            try:
                (length,) = _LENGTH.unpack_from(self.data, at)
            except struct.error:
                raise CutOff from None
            if length > _LENGTH_MAX:
                raise ValueError("a cell of more than 2 GiB")
            at += 4 + length
        if at > len(self.data):
            raise CutOff
        if name != _NOT_WANTED:
            self.name.append(name)
            self.ends.append(at)
            self.sequences.append(sequence_at)
            self.written.append(written_at)
            self.counts.append(count)
            self.cells += cells
        return at
