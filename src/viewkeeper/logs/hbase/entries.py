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
_length_at = struct.Struct(">I").unpack_from
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
    try:
        scan.run()
    except CutOff:
        pass
    except ValueError as wrong:
        raise CorruptStore(f"the WAL {file} has no entry at {offset + scan.stop}: {wrong}", DAMAGED) from wrong
    name, ends, sequences_at, written_at, counts = np.array(scan.notes, np.int64).reshape(-1, 5).T
    return Entries(
        scan.names,
        name,
        ends,
        read_numbers(data, sequences_at),
        read_numbers(data, written_at),
        counts,
        np.array(scan.cells, np.int64),
        scan.stop,
        data.startswith(TRAILER, scan.stop),
    )


@dataclass(slots=True)
class _Scan:
    """One pass over the entries of `data`; `stop` is where the last whole one ended."""

    data: bytes
    wanted: Callable[[str], bool]
    stop: int = 0
    heads: dict[bytes, int] = field(default_factory=dict)  # region and table in a key's bytes: which name
    names: list[tuple[str, str]] = field(default_factory=list)
    notes: list[int] = field(
        default_factory=list
    )  # of each entry: name, end, where its two numbers are, count of cells
    cells: list[int] = field(default_factory=list)

    def run(self) -> None:
        """Note every entry, in one loop: a call for each would cost as much as the work in it."""
        data, size, at, heads, match, length_at = self.data, len(self.data), 0, self.heads, _PLAIN_KEY.match, _length_at
        while at < size and (length := data[at]):  # no key is empty: 0 is a trailer, or what a crash left
            self.stop, at = at, at + 1
            if length > 127:
                length, at = read_number(data, self.stop)
            cells_at = at + length
            if cells_at > size:
                raise CutOff
            key = match(data, at, cells_at)
            name = heads.get(key[1]) if key else None
            if key is None or name is None:  # a region that is met for the first time, or a longer key
                name, sequence_at, written_at, count = self._read_key(at, cells_at)
            else:
                _, _, (sequence_at, _), (written_at, _), (count_at, _) = key.regs
                count = data[count_at] if data[count_at] < 128 else read_number(data, count_at)[0]
            at, cells = cells_at, []
            try:
                for _ in range(count):
                    cells.append(at)
                    at += 4 + length_at(data, at)[0]
            except struct.error:
                at = max(at, size + 1)
            if at > size:
                too_long = any(length_at(data, cell)[0] > _LENGTH_MAX for cell in cells if cell + 4 <= size)
                raise ValueError("a cell of more than 2 GiB") if too_long else CutOff
            if name != _NOT_WANTED:
                self.notes += name, at, sequence_at, written_at, count
                self.cells += cells
        self.stop = at

    def _read_key(self, at: int, stop: int) -> tuple[int, int, int, int]:
        """Of any key: the name, where the sequence id and the time of writing are, and how many cells follow."""
        strings, numbers = dict(strings_in(self.data, at, stop)), dict(numbers_in(self.data, at, stop))
        if not {_REGION, _TABLE} <= strings.keys() or not {_SEQUENCE, _WRITTEN} <= numbers.keys():
            raise ValueError("its key lacks a field")
        count = read_number(self.data, numbers[_CELLS])[0] if _CELLS in numbers else 0
        return self._name(strings[_REGION], strings[_TABLE]), numbers[_SEQUENCE], numbers[_WRITTEN], count

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
