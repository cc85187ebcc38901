"""The WAL reader: cells and markers of a stream, from any position on, through all its files.

In: a folder of WALs, wanted tables, positions. Out: blocks of whole entries, in log order. Always: a range (start,
stop] gives the same cells each time, wherever its files are moved. The last file of a live server is read as far as it
is whole; a file is begun when the one before is complete.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from viewkeeper.errors import CorruptStore, PositionLost, StoreUnavailable
from viewkeeper.model.positions import Position, Positions, Stream
from viewkeeper.stores.hbase.wal.wal_entries import (
    CELLS_SCHEMA,
    DAMAGED,
    TRAILER,
    Entries,
    Marker,
    decode_cells,
    outline_cells,
    scan_entries,
)
from viewkeeper.stores.hbase.wal.wal_files import WalFile, WalFolder, check_order
from viewkeeper.stores.hbase.wal.wal_header import HEADER_BYTES_MAX, read_header

BLOCK_BYTES = 8 << 20
_NO_CELLS = pa.RecordBatch.from_pylist([], CELLS_SCHEMA)
RETENTION = "viewkeeper rebuild URL VIEW fills views anew; raise hbase.master.logcleaner.ttl, and ?retention with it"


@dataclass(frozen=True, slots=True)
class Block:
    """Cells (CELLS_SCHEMA) and markers of some entries; everything up to `position` has been seen, wanted or not."""

    cells: pa.RecordBatch
    markers: list[Marker]
    position: Position


@dataclass(frozen=True, slots=True)
class Outline:
    """Entries from `start` to `position`, without their cells; `uncovering`: those that delete single versions."""

    start: Position
    entries: Entries | None
    markers: list[Marker]
    uncovering: np.ndarray
    position: Position


@dataclass(frozen=True, slots=True)
class WalReader:
    """Reads the WALs of `folder`, of all tables or of `tables` ("table" or "namespace:table")."""

    folder: WalFolder
    tables: Collection[str] | None = None
    block_bytes: int = BLOCK_BYTES
    _headers: dict[str, int] = field(default_factory=dict)  # where the entries of a file begin

    def last_entries(self) -> Positions:
        """Up to where every stream can be read: to the end of its last whole entry, or the start of a later file."""
        found: Positions = {}
        for stream, files in self.folder.files().items():
            found[stream] = files[0].first
            # files without entries are not reached while one before them may still get some
            for file in reversed(files):
                has_entries, position = False, found[stream]
                for outline in self.outline(stream, file.first, files):
                    has_entries, position = has_entries or outline.entries is not None, outline.position
                if has_entries or file is files[0]:
                    found[stream] = position
                    break
        return found

    def read(self, stream: Stream, start: Position, stop: Position | None = None) -> Iterator[Block]:
        """All blocks of (start, stop], or an error; without `stop`, of all that is there.

        Position 0 is before everything; other positions are those of blocks.
        """
        files = self.folder.files().get(stream, [])
        reached = start if start or not files else files[0].first  # a server that has just started has logged nothing
        for piece in self._pieces(stream, start, stop, files):
            yield piece.decode()
            reached = piece.position
        if stop is not None and reached < stop:
            raise StoreUnavailable(f"the WAL of {stream} cannot be read up to {stop}: it ends at {reached}")

    def outline(self, stream: Stream, start: Position, files: list[WalFile]) -> Iterator[Outline]:
        """The stream after `start` in the files as just listed, without the cells."""
        return (piece.outline() for piece in self._pieces(stream, start, None, files))

    def _pieces(self, stream: Stream, start: Position, stop: Position | None, files: list[WalFile]) -> Iterator[_Piece]:
        index, offset = locate(files, start, stream)
        while index < len(files):
            reading = _Reading(self, files[index], offset)
            yield from reading.pieces(stop)
            following = files[index + 1] if index + 1 < len(files) else None
            if following is None:
                yield from reading.rest(stop)
                return
            if (stop is not None and stop < following.first) or not reading.is_done(files[index + 1 :]):
                return
            yield from reading.pieces(stop)  # what came between the last look and the one that found it done
            if not following.archived:  # a folder that grows while it is listed may lack a file and show the next one
                files = self.folder.files().get(stream, files)
                index = bisect_right(files, reading.file.first, key=lambda file: file.first) - 1
                following = files[index + 1]
            reading.check_end(following)
            yield _Piece(following.name, following.first, following.first)
            index, offset = index + 1, 0

    def is_wanted(self, table: str) -> bool:
        return self.tables is None or table in self.tables

    def first_entry(self, file: WalFile) -> int | None:
        """Where the entries of a file begin; None if its header is not all there yet."""
        if file.name not in self._headers:
            data, _ = self.folder.read(file, 0, HEADER_BYTES_MAX)
            found = read_header(data, file.name)
            if found is None:
                return None
            self._headers[file.name] = found
        return self._headers[file.name]


def locate(files: list[WalFile], position: Position, stream: Stream) -> tuple[int, int]:
    """The index of the file that a position is in, and the offset."""
    if not position:
        return 0, 0
    index = bisect_right(files, position, key=lambda file: file.first) - 1
    if index < 0 or position - files[index].first > files[index].size:
        raise PositionLost(f"the log of region server {stream} that was being read is gone", RETENTION)
    return index, position - files[index].first


@dataclass(frozen=True, slots=True)
class _Piece:
    """The bytes of a file from `start` to `position`, and the entries in them, if there are any."""

    file: str
    start: Position
    position: Position
    data: bytes = b""
    entries: Entries | None = None

    def decode(self) -> Block:
        if self.entries is None:
            return Block(_NO_CELLS, [], self.position)
        return Block(*decode_cells(self.data, self.entries, self.start, self.file), self.position)

    def outline(self) -> Outline:
        if self.entries is None:
            return Outline(self.start, None, [], np.empty(0, np.int64), self.position)
        found = outline_cells(self.data, self.entries, self.start, self.file)
        return Outline(self.start, self.entries, *found, self.position)


@dataclass(slots=True)
class _Reading:
    """One file, and how far it has been read; `closed`: up to its trailer."""

    reader: WalReader
    file: WalFile
    offset: int
    closed: bool = False

    def pieces(self, stop: Position | None) -> Iterator[_Piece]:
        """The file after `offset`, up to the position `stop`."""
        first = self.reader.first_entry(self.file)
        if first is None:
            return
        self.offset = max(self.offset, first)
        size, at_end = self.reader.block_bytes, False
        while not at_end and not self.closed:
            left = size if stop is None else max(0, min(size, stop - self.file.first - self.offset))
            data, self.file = self.reader.folder.read(self.file, self.offset, left)
            at_end = self.offset + len(data) >= self.file.size or left < size
            entries = scan_entries(data, self.reader.is_wanted, file=self.file.name, offset=self.offset)
            if entries.stop:
                start = Position(self.file.first + self.offset)
                self.offset += entries.stop
                yield _Piece(self.file.name, start, Position(start + entries.stop), data, entries)
            elif data[:1] == b"\0":
                at_end = True
            else:
                size *= 2  # an entry that is larger than a block
            self.closed = entries.closed

    def rest(self, stop: Position | None) -> Iterator[_Piece]:
        """The end of an archived file after its last entry: a trailer, or what a crash left."""
        end = Position(self.file.first + self.file.size)
        if self.file.archived and self.file.first + self.offset < end and (stop is None or end <= stop):
            yield _Piece(self.file.name, end, end)

    def is_done(self, following: list[WalFile]) -> bool:
        """Whether the file is complete: a later file gets its first entry after this one's last."""
        return self.closed or self.file.archived or any(map(self._has_entries, following))

    def _has_entries(self, file: WalFile) -> bool:
        begin = self.reader.first_entry(file)
        if begin is None:
            return False
        data, _ = self.reader.folder.read(file, begin, self.reader.block_bytes)
        return scan_entries(data, lambda table: False, file=file.name, offset=begin).stop > 0

    def check_end(self, following: WalFile) -> None:
        """Raise unless the file was read up to its trailer, if it has one, and its positions are below the next file's."""
        check_order(self.file.name, self.file.size, self.file.first, following.first)
        if not self.closed:
            end, _ = self.reader.folder.read(self.file, max(self.offset, self.file.size - len(TRAILER)), len(TRAILER))
            if end == TRAILER:
                raise CorruptStore(f"the WAL {self.file.name} has no entry at {self.offset}", DAMAGED)
