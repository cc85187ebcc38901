"""Cells of a WAL as Arrow batches, all of a block at once.

In: the bytes of a block and where the cells of wanted entries are in it. Out: a batch of CELLS_SCHEMA, in log order, and the
markers that HBase logged among them. Always: a cell whose lengths contradict one another is `CorruptStore`, never a value.

    cell  length of the key (4), of the value (4), key, value, and perhaps tags, which are left out
    key   length of the row (2), row, length of the family (1), family, qualifier, timestamp (8), kind (1)
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from viewkeeper.errors import CorruptStore
from viewkeeper.logs.hbase.entries import Entries
from viewkeeper.logs.hbase.markers import MARKER_FAMILY, Marker, marker_of
from viewkeeper.model.positions import Position
from viewkeeper.model.ragged import gather, gather_fixed

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
    """Where the parts of each cell begin, and how long they are."""

    key: np.ndarray
    row_length: np.ndarray
    family: np.ndarray
    family_length: np.ndarray
    qualifier_length: np.ndarray
    value: np.ndarray
    value_length: np.ndarray


def decode_cells(data: bytes, entries: Entries, start: Position, file: str) -> tuple[pa.RecordBatch, list[Marker]]:
    """The cells and markers of `entries`; `start` is the position at which `data` begins."""
    raw = np.frombuffer(data, np.uint8)
    parts = _parts(raw, entries.cells, file)
    owner = np.repeat(np.arange(len(entries.counts)), entries.counts)
    marks = _are_markers(raw, parts)
    markers = [
        _marker(data, entries, parts, int(owner[index]), index, start) for index in np.flatnonzero(marks).tolist()
    ]
    if markers:
        owner, parts = owner[~marks], _chosen(parts, ~marks)
    return _batch(raw, entries, parts, owner, start), markers


def outline_cells(data: bytes, entries: Entries, start: Position, file: str) -> tuple[list[Marker], np.ndarray]:
    """The markers alone; and which entries delete single versions."""
    raw = np.frombuffer(data, np.uint8)
    parts = _parts(raw, entries.cells, file)
    owner = np.repeat(np.arange(len(entries.counts)), entries.counts)
    marks = np.flatnonzero(_are_markers(raw, parts)).tolist()
    markers = [_marker(data, entries, parts, int(owner[mark]), mark, start) for mark in marks]
    kinds = raw[parts.value - 1]
    return markers, np.unique(owner[(kinds == DELETE_VERSION) | (kinds == DELETE_FAMILY_VERSION)])


def _parts(raw: np.ndarray, cells: np.ndarray, file: str) -> _Parts:
    """The layout of every cell; each length is checked before what lies at its end is looked at."""
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


def _are_markers(raw: np.ndarray, parts: _Parts) -> np.ndarray:
    marks = parts.family_length == len(MARKER_FAMILY)
    named = np.flatnonzero(marks)
    if len(named):
        families = gather_fixed(raw, parts.family[named], len(MARKER_FAMILY))
        marks[named] = (families == np.frombuffer(MARKER_FAMILY, np.uint8)).all(axis=1)
    return marks


def _chosen(parts: _Parts, kept: np.ndarray) -> _Parts:
    return _Parts(*(getattr(parts, name)[kept] for name in _Parts.__slots__))


def _marker(data: bytes, entries: Entries, parts: _Parts, entry: int, cell: int, start: Position) -> Marker:
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
        _named([region for region, _ in entries.names], name),
        pa.array(entries.sequences[owner], pa.int64()),
        _named([table for _, table in entries.names], name),
        gather(raw, parts.key + 2, parts.row_length).to_arrow(),
        gather(raw, parts.family, parts.family_length).to_arrow(),
        gather(raw, qualifier, parts.qualifier_length).to_arrow(),
        pa.array(_big_endian(raw, parts.value - 9, 8), pa.int64()),
        pa.array(raw[parts.value - 1].astype(np.int8), pa.int8()),
        gather(raw, parts.value, parts.value_length).to_arrow(),
        pa.array(entries.written_ms[owner], pa.int64()),
    ]
    return pa.record_batch(columns, schema=CELLS_SCHEMA)


def _named(names: list[str], chosen: np.ndarray) -> pa.DictionaryArray:
    """`names[i]` for each i of `chosen`; each name is in the dictionary once, as kernels that group by it expect."""
    places = {name: place for place, name in enumerate(dict.fromkeys(names))}
    indices = np.array([places[name] for name in names], np.int32)[chosen]
    return pa.DictionaryArray.from_arrays(pa.array(indices), pa.array(list(places), pa.string()))
