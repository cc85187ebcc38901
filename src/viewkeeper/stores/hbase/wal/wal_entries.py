"""Entries of a WAL: where they begin and end, their cells as Arrow batches, and HBase's markers among these.

In: bytes that begin at an entry, and which tables are wanted. Out: for the whole entries of these tables their keys as
columns; a batch of CELLS_SCHEMA with their cells, in log order; and a `Marker` for each flush, opening, closing and
bulk load of a region, and for other events (the rows of a bulk load are not in the log, so its readers must know of
it). Always: an entry counts when all of it is there; the rest is left for later. Bytes that no HBase writes are
`CorruptStore`, never a value. A scan of entries steps over their cells and reads none.

    entry    length, key (protobuf WALKey), then as many cells as the key says, each after its length in 4 bytes
    trailer  after the last entry of a file that was closed: four zero bytes and "LAWP"
    cell     length of the key (4), of the value (4), key, value, and perhaps tags, which are left out
    key      length of the row (2), row, length of the family (1), family, qualifier, timestamp (8), kind (1)
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable
from dataclasses import astuple, dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa

from viewkeeper.errors import CorruptStore
from viewkeeper.model.positions import Position
from viewkeeper.model.varbinary import gather, gather_fixed
from viewkeeper.stores.hbase.wal.wal_header import CutOff, fields_of, read_number, read_numbers

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

    `stop`: where the last whole entry of any table ended; `closed`: whether the trailer follows.
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
    """The entries of `wanted` tables in `data`, which begins at `offset` of `file`."""
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
    notes: list[int] = field(default_factory=list)  # of each entry: name, end, where its two numbers are, cells
    cells: list[int] = field(default_factory=list)

    def run(self) -> None:
        """Note every entry in one loop: a call for each would cost as much as its work."""
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
            if key is None or name is None:  # a new region, or a longer key
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
        """A key's name, where its sequence id and its time of writing are, and how many cells follow."""
        numbers, texts = fields_of(self.data, at, stop)
        strings = dict(texts)
        if not {_REGION, _TABLE} <= strings.keys() or not {_SEQUENCE, _WRITTEN} <= numbers.keys():
            raise ValueError("its key lacks a field")
        count = read_number(self.data, numbers[_CELLS])[0] if _CELLS in numbers else 0
        return self._name(strings[_REGION], strings[_TABLE]), numbers[_SEQUENCE], numbers[_WRITTEN], count

    def _name(self, region: bytes, table: bytes) -> int:
        """The number of a region and its table."""
        short = len(region) < 128 and len(table) < 128
        head = b"\x0a%c%b\x12%c%b" % (len(region), region, len(table), table) if short else region + b"\0" + table
        if head not in self.heads:
            text = table.decode()
            self.heads[head] = len(self.names) if self.wanted(text) else _NOT_WANTED
            if self.heads[head] != _NOT_WANTED:
                self.names.append((region.decode(), text))
        return self.heads[head]


MARKER_FAMILY = b"METAFAMILY"
BULK_LOAD, COMPACTION, FLUSHED = "BULK_LOAD", "COMPACTION", "COMMIT_FLUSH"
OPENED, CLOSED = "REGION_OPEN", "REGION_CLOSE"

_PREFIX = "HBASE::"
_STEP = 1  # the field of FlushDescriptor and RegionEventDescriptor with the step
_STEPS = {
    "FLUSH": ("START_FLUSH", FLUSHED, "ABORT_FLUSH", "CANNOT_FLUSH"),
    "REGION_EVENT": (OPENED, CLOSED),
}
_NAME = {"FLUSH": 6, "REGION_EVENT": 7, COMPACTION: 7}  # the field with the region's full name
_STORES = {"FLUSH": 5, "REGION_EVENT": 5, BULK_LOAD: 3}  # that with a family's files, which are its third
_STORE_FILES = 3
_COMPACTED, _MADE = 4, 5  # fields of a CompactionDescriptor


@dataclass(frozen=True, slots=True)
class Marker:
    """An event of a region: START_FLUSH, COMMIT_FLUSH, REGION_OPEN, REGION_CLOSE, COMPACTION, BULK_LOAD or another one.

    `name`: the region's full name, a character for each byte. `files`: all files of an opened region, else its new ones;
    `gone`: those that it no longer needs.
    """

    position: Position
    region: str
    table: str
    sequence: int
    kind: str
    written_ms: int = 0
    name: str = ""
    files: tuple[str, ...] = ()
    gone: tuple[str, ...] = ()

    def to_json(self) -> list[Any]:
        return list(astuple(self))


def marker_from_json(values: list[Any]) -> Marker:
    position, region, table, sequence, kind, written_ms, name, files, gone = values
    return Marker(position, region, table, sequence, kind, written_ms, name, tuple(files), tuple(gone))


def marker_of(
    qualifier: bytes, value: bytes, *, position: Position, region: str, table: str, sequence: int, written_ms: int
) -> Marker:
    what = qualifier.decode(errors="replace").removeprefix(_PREFIX).split("::")[0]
    steps = _STEPS.get(what, ())
    numbers, texts = fields_of(value, 0, len(value)) if what in _NAME or what in _STORES else ({}, [])
    step = read_number(value, numbers[_STEP])[0] if steps and _STEP in numbers else len(steps)
    kind = steps[step] if step < len(steps) else what
    stores = [text for field, text in texts if field == _STORES.get(what)]
    files = [text for store in stores for field, text in fields_of(store, 0, len(store))[1] if field == _STORE_FILES]
    gone = [text for field, text in texts if what == COMPACTION and field == _COMPACTED]
    files += [text for field, text in texts if what == COMPACTION and field == _MADE]
    name = next((text for field, text in texts if field == _NAME.get(what)), b"").decode("latin-1")
    return Marker(position, region, table, sequence, kind, written_ms, name, _file_names(files), _file_names(gone))


def _file_names(files: list[bytes]) -> tuple[str, ...]:
    return tuple(file.decode(errors="replace") for file in files)


PUT, DELETE_VERSION, DELETE_FAMILY_VERSION, DELETE_COLUMN, DELETE_FAMILY = 4, 8, 10, 12, 14  # kinds
_NAMES = pa.dictionary(pa.int32(), pa.string())
CELLS_SCHEMA = pa.schema(
    [
        ("position", pa.int64()),  # where the entry ends: cells of one entry share it
        ("region", _NAMES),
        ("sequence", pa.int64()),
        ("table", _NAMES),
        ("row", pa.binary()),
        ("family", pa.binary()),
        ("qualifier", pa.binary()),
        ("timestamp", pa.int64()),
        ("kind", pa.int8()),
        ("value", pa.binary()),
        ("written_ms", pa.int64()),
    ]
)
_FIXED = 12  # bytes of a key besides row, family and qualifier
_BEFORE_KEY = 12  # a cell's length and the two in it


@dataclass(frozen=True, slots=True)
class _Parts:
    """Where the parts of each cell begin, and their lengths."""

    key: np.ndarray
    row_length: np.ndarray
    family: np.ndarray
    family_length: np.ndarray
    qualifier_length: np.ndarray
    value: np.ndarray
    value_length: np.ndarray


def decode_cells(data: bytes, entries: Entries, start: Position, file: str) -> tuple[pa.RecordBatch, list[Marker]]:
    """The cells and markers of `entries`; `start` is the position at which `data` begins."""
    raw, parts, owner, marks = _cells_in(data, entries, file)
    markers = [_marker(data, entries, parts, owner, mark, start) for mark in np.flatnonzero(marks).tolist()]
    if markers:
        owner, parts = owner[~marks], _Parts(*(getattr(parts, name)[~marks] for name in _Parts.__slots__))
    return _batch(raw, entries, parts, owner, start), markers


def outline_cells(data: bytes, entries: Entries, start: Position, file: str) -> tuple[list[Marker], np.ndarray]:
    """The markers of `entries`, and which entries delete single versions."""
    raw, parts, owner, marks = _cells_in(data, entries, file)
    markers = [_marker(data, entries, parts, owner, mark, start) for mark in np.flatnonzero(marks).tolist()]
    kinds = raw[parts.value - 1]
    return markers, np.unique(owner[(kinds == DELETE_VERSION) | (kinds == DELETE_FAMILY_VERSION)])


def _cells_in(data: bytes, entries: Entries, file: str) -> tuple[np.ndarray, _Parts, np.ndarray, np.ndarray]:
    """The bytes as an array; of every cell its parts, the index of its entry, and whether it is a marker."""
    raw = np.frombuffer(data, np.uint8)
    parts = _parts(raw, entries.cells, file)
    marks = parts.family_length == len(MARKER_FAMILY)
    if len(named := np.flatnonzero(marks)):
        families = gather_fixed(raw, parts.family[named], len(MARKER_FAMILY))
        marks[named] = (families == np.frombuffer(MARKER_FAMILY, np.uint8)).all(axis=1)
    return raw, parts, np.repeat(np.arange(len(entries.counts)), entries.counts), marks


def _parts(raw: np.ndarray, cells: np.ndarray, file: str) -> _Parts:
    """The layout of every cell; each length is checked before the bytes at its end are read."""
    length = _big_endian(raw, cells, 4)
    _check(length >= 8 + _FIXED, file)
    key_length, value_length = _big_endian(raw, cells + 4, 4), _big_endian(raw, cells + 8, 4)
    _check(key_length >= _FIXED, file)
    tags = length - 8 - key_length - value_length
    _check((tags == 0) | (tags >= 2), file)
    key = cells + _BEFORE_KEY
    row_length = _big_endian(raw, key, 2)
    _check(row_length + _FIXED <= key_length, file)
    family = key + 2 + row_length + 1
    family_length = raw[family - 1].astype(np.int64)
    qualifier_length = key_length - _FIXED - row_length - family_length
    _check(qualifier_length >= 0, file)
    return _Parts(key, row_length, family, family_length, qualifier_length, key + key_length, value_length)


def _check(right: np.ndarray, file: str) -> None:
    if not right.all():
        raise CorruptStore(f"the WAL {file} has a cell whose lengths do not fit")


def _big_endian(raw: np.ndarray, starts: np.ndarray, width: int) -> np.ndarray:
    return gather_fixed(raw, starts, width).reshape(-1).view(f">u{width}").astype(np.int64)


def _marker(data: bytes, entries: Entries, parts: _Parts, owner: np.ndarray, cell: int, start: Position) -> Marker:
    entry = int(owner[cell])
    region, table = entries.names[entries.name[entry]]
    qualifier = int(parts.family[cell] + parts.family_length[cell])
    value = int(parts.value[cell])
    return marker_of(
        data[qualifier : qualifier + int(parts.qualifier_length[cell])],
        data[value : value + int(parts.value_length[cell])],
        position=Position(start + int(entries.ends[entry])),
        region=region,
        table=table,
        sequence=int(entries.sequences[entry]),
        written_ms=int(entries.written_ms[entry]),
    )


def _batch(raw: np.ndarray, entries: Entries, parts: _Parts, owner: np.ndarray, start: Position) -> pa.RecordBatch:
    name = entries.name[owner]
    qualifier = parts.family + parts.family_length
    columns = [
        pa.array(start + entries.ends[owner], pa.int64()),
        _dictionary_of([region for region, _ in entries.names], name),
        pa.array(entries.sequences[owner], pa.int64()),
        _dictionary_of([table for _, table in entries.names], name),
        gather(raw, parts.key + 2, parts.row_length).to_arrow(),
        gather(raw, parts.family, parts.family_length).to_arrow(),
        gather(raw, qualifier, parts.qualifier_length).to_arrow(),
        pa.array(_big_endian(raw, parts.value - 9, 8), pa.int64()),
        pa.array(raw[parts.value - 1].astype(np.int8), pa.int8()),
        gather(raw, parts.value, parts.value_length).to_arrow(),
        pa.array(entries.written_ms[owner], pa.int64()),
    ]
    return pa.record_batch(columns, schema=CELLS_SCHEMA)


def _dictionary_of(names: list[str], chosen: np.ndarray) -> pa.DictionaryArray:
    """`names[i]` for each i of `chosen`; each name is in the dictionary once, as kernels that group by it expect."""
    index_of = {name: index for index, name in enumerate(dict.fromkeys(names))}
    indices = np.array([index_of[name] for name in names], np.int32)[chosen]
    return pa.DictionaryArray.from_arrays(pa.array(indices), pa.array(list(index_of), pa.string()))
