"""A tail: what lies ahead in one stream, as far as it has been looked at.

In: a reader of the tables that matter, and a position. Out: where entries of these tables end, how large they are, when they
were written, which regions were opened between them, and where single versions are deleted. Always: cells are not read;
every byte is looked at once. A tail of a long backlog is looked at in parts.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np

from viewkeeper.logs.hbase.entries import Entries
from viewkeeper.logs.hbase.files import WalFile
from viewkeeper.logs.hbase.markers import Marker
from viewkeeper.logs.hbase.reader import Outline, WalReader
from viewkeeper.model.positions import Position, Stream

ENTRY = np.dtype(
    [("position", "i8"), ("cells", "i8"), ("bytes", "i8"), ("written", "i8"), ("opens", "?"), ("uncovers", "?")]
)
_NONE = np.empty(0, ENTRY)
_REGION_OPEN = "REGION_OPEN"


@dataclass(slots=True, eq=False)
class Tail:
    """The entries of (`start`, `end`] that matter, in order. `borders`: where one file ends and the next one begins."""

    reader: WalReader
    stream: Stream
    start: Position
    end: Position
    entries: np.ndarray = field(default_factory=lambda: _NONE)
    borders: list[Position] = field(default_factory=list)

    @staticmethod
    def at(reader: WalReader, stream: Stream, start: Position) -> Tail:
        return Tail(reader, stream, start, start)

    def look(self, entries_max: int, files: list[WalFile] | None = None) -> tuple[bool, int]:
        """Look on, until about so many entries are known; whether that was all there is, and how many regions opened.

        `files`: the stream's, if somebody has just listed them.
        """
        found, count, opened = [self.entries], len(self.entries), 0
        for outline in self.reader.outline(self.stream, self.end, files):
            if count >= entries_max:
                break
            self.end = outline.position
            more = _entries(outline)
            if outline.entries is None:
                self.borders.append(outline.position)
            count, opened = count + len(more), opened + int(more["opens"].sum())
            found.append(more)
        else:
            self.entries = np.concatenate(found)
            return True, opened
        self.entries = np.concatenate(found)
        return False, opened

    def begin_at(self, start: Position) -> None:
        """Forget what lies before."""
        self.entries = self.entries[self.entries["position"] > start]
        self.borders = [border for border in self.borders if border > start]
        self.start = start

    def upto(self, stop: Position) -> np.ndarray:
        """The entries up to a position."""
        return self.entries[: np.searchsorted(self.entries["position"], stop, "right")]

    def between(self, start: Position, stop: Position) -> np.ndarray:
        """The entries of (start, stop]."""
        entries = self.upto(stop)
        return entries[np.searchsorted(entries["position"], start, "right") :]

    def has_rolled(self, stop: Position) -> bool:
        """Whether the files change between start and `stop`: those before will be deleted."""
        return any(border <= stop for border in self.borders)


def _entries(outline: Outline) -> np.ndarray:
    entries = outline.entries
    if entries is None:
        return _NONE
    found = np.empty(len(entries.ends), ENTRY)
    found["position"] = outline.start + entries.ends
    found["cells"] = entries.counts
    found["bytes"] = _sizes(entries)
    found["written"] = entries.written_ms
    found["opens"] = np.isin(found["position"], _positions(m for m in outline.markers if m.kind == _REGION_OPEN))
    found["cells"][np.isin(found["position"], _positions(outline.markers))] = 0
    found["uncovers"] = False
    found["uncovers"][outline.uncovering] = True
    return found


def _sizes(entries: Entries) -> np.ndarray:
    """The bytes of the cells of each entry."""
    first = np.cumsum(entries.counts) - entries.counts
    begins = np.append(entries.cells, entries.stop)[first]
    return np.where(entries.counts, entries.ends - begins, 0)


def _positions(markers: Iterable[Marker]) -> list[int]:
    return [marker.position for marker in markers]
