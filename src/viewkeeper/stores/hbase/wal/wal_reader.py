"""The WAL reader: cells and markers of a stream, from any position on, through all its files.

In: a folder of WALs, wanted tables, positions. Out: blocks of whole entries, in log order. Always: a range (start,
stop] gives the same cells each time, wherever the files are by then. The last file of a live server is read as far as
it is whole; the next one is begun when the one before is at its end for good.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
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
RETENTION = "raise hbase.master.logcleaner.ttl; viewkeeper rebuild fills views anew"


@dataclass(frozen=True, slots=True)
class Block:
    """Cells (CELLS_SCHEMA) and markers of some entries; everything up to `position` has been seen, wanted or not."""

    cells: pa.RecordBatch
    markers: list[Marker]
    position: Position


@dataclass(frozen=True, slots=True)
class Outline:
    """Entries without their cells, which begin at `start`; everything up to `position` has been seen, wanted or not.

    `uncovering`: those of them that delete single versions.
    """

    start: Position
    entries: Entries | None
    markers: list[Marker]
    uncovering: np.ndarray
    position: Position


@dataclass(frozen=True, slots=True)
class WalReader:
    """Reads the WALs of `folder`; of `tables` alone, if they are named ("table" or "namespace:table")."""

    folder: WalFolder
    tables: Collection[str] | None = None
    block_bytes: int = BLOCK_BYTES
    _headers: dict[str, int] = field(default_factory=dict)  # where the entries of a file begin

    def ends(self) -> Positions:
        """Where the files of every stream end now; in the middle of an entry, if one is just being written."""
        return {stream: Position(files[-1].first + files[-1].size) for stream, files in self.folder.files().items()}

    def last_entries(self) -> Positions:
        """Up to where every stream can be read: where its last whole entry ends, or a file after that one begins."""
        found: Positions = {}
        for stream, files in self.folder.files().items():
            found[stream] = files[0].first
            # a last file without entries is not reached while the one before may still get some
            for file in reversed(files):
                outlines = deque(self.outline(stream, file.first, files), maxlen=1)
                if outlines:
                    found[stream] = outlines[0].position
                    break
        return found

    def read(self, stream: Stream, start: Position, stop: Position | None = None) -> Iterator[Block]:
        """The blocks of (start, stop], all of them or an error; without `stop`, of all that is there.

        Position 0 is before everything; others are those of blocks.
        """
        files = self.folder.files().get(stream, [])
        reached = start if start or not files else files[0].first  # a server that has just started has logged nothing
        for piece in self._pieces(stream, start, stop, files):
            cells, markers = piece.decode()
            yield Block(cells, markers, piece.position)
            reached = piece.position
        if stop is not None and reached < stop:
            raise StoreUnavailable(f"the WAL of {stream} cannot be read up to {stop}: it ends at {reached}")

    def outline(self, stream: Stream, start: Position, files: list[WalFile] | None = None) -> Iterator[Outline]:
        """What is there after `start`, without the cells. `files`: the stream's, if somebody has just listed them."""
        for piece in self._pieces(stream, start, None, files):
            yield Outline(piece.start, piece.entries, *piece.outline(), piece.position)

    def _pieces(
        self, stream: Stream, start: Position, stop: Position | None, files: list[WalFile] | None = None
    ) -> Iterator[_Piece]:
        files = self.folder.files().get(stream, []) if files is None else files
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
            if (
                not following.archived
            ):  # a folder that grows while it is listed may show a new file and not the one before
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
    """Which of a stream's files a position is in, and at which offset."""
    if not position:
        return 0, 0
    index = bisect_right(files, position, key=lambda file: file.first) - 1
    if index < 0 or position - files[index].first > files[index].size:
        raise PositionLost(f"the WAL of {stream} that was being read is gone", RETENTION)
    return index, position - files[index].first


@dataclass(frozen=True, slots=True)
class _Piece:
    """Some bytes of a file, from `start` to `position`, and the entries in them; none where there is nothing to read."""

    file: str
    start: Position
    position: Position
    data: bytes = b""
    entries: Entries | None = None

    def decode(self) -> tuple[pa.RecordBatch, list[Marker]]:
        if self.entries is None:
            return _NO_CELLS, []
        return decode_cells(self.data, self.entries, self.start, self.file)

    def outline(self) -> tuple[list[Marker], np.ndarray]:
        if self.entries is None:
            return [], np.empty(0, np.int64)
        return outline_cells(self.data, self.entries, self.start, self.file)


@dataclass(slots=True)
class _Reading:
    """One file, and how far it has been read; `closed`: up to its trailer."""

    reader: WalReader
    file: WalFile
    offset: int
    closed: bool = False

    def pieces(self, stop: Position | None) -> Iterator[_Piece]:
        """What is there after `offset`, up to the position `stop`."""
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
                yield self._piece(data, entries)
            elif data[:1] == b"\0":
                at_end = True
            else:
                size *= 2  # an entry that is larger than a block
            self.closed = entries.closed

    def rest(self, stop: Position | None) -> Iterator[_Piece]:
        """What follows the last entry of an archived file: a trailer, or what a crash left. Nothing will come after it."""
        end = Position(self.file.first + self.file.size)
        if self.file.archived and self.file.first + self.offset < end and (stop is None or end <= stop):
            yield _Piece(self.file.name, end, end)

    def is_done(self, following: list[WalFile]) -> bool:
        """Whether nothing more can come: a later file gets its first entry when this one has its last."""
        return self.closed or self.file.archived or any(map(self._has_entries, following))

    def _has_entries(self, file: WalFile) -> bool:
        begin = self.reader.first_entry(file)
        if begin is None:
            return False
        data, _ = self.reader.folder.read(file, begin, self.reader.block_bytes)
        return scan_entries(data, lambda table: False, file=file.name, offset=begin).stop > 0

    def check_end(self, following: WalFile) -> None:
        """A file with a trailer has been read up to it, and all its positions are before the next file's."""
        check_order(self.file.name, self.file.size, self.file.first, following.first)
        if not self.closed:
            end, _ = self.reader.folder.read(self.file, max(self.offset, self.file.size - len(TRAILER)), len(TRAILER))
            if end == TRAILER:
                raise CorruptStore(f"the WAL {self.file.name} has no entry at {self.offset}", DAMAGED)

    def _piece(self, data: bytes, entries: Entries) -> _Piece:
        start = Position(self.file.first + self.offset)
        self.offset += entries.stop
        return _Piece(self.file.name, start, Position(self.file.first + self.offset), data, entries)
