"""A tail: what lies ahead in one stream, as far as it has been looked at.

In: a reader of the tables that matter, and a position. Out: where entries of these tables end, how large they are, when they
were written, where single versions are deleted, and HBase's markers among them. Always: cells are not read; every byte
is looked at once. Entries that follow each other within a hundredth of a second are one here, which is never cut: so what is
known of a backlog grows with the time in which it was written, not with its size. A long tail is looked at in
parts. A look changes nothing, so any process may do it: it travels as a value, and what it saw as bytes.
"""

from __future__ import annotations

import json
import sys
from bisect import bisect_right
from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np

from viewkeeper.logs.hbase.entries import Entries
from viewkeeper.logs.hbase.files import WalFile
from viewkeeper.logs.hbase.markers import OPENED, Marker, marker_from_json
from viewkeeper.logs.hbase.reader import Outline, WalReader
from viewkeeper.model.positions import Position, Stream

SLOT_MS = 10
_ENDS = [("first", "i8"), ("position", "i8")]  # where the first entry of a slot ends, and where the last one does
_SUMS = [("entries", "i8"), ("cells", "i8"), ("bytes", "i8")]
_ANYS = [("opens", "?"), ("uncovers", "?")]
ENTRY = np.dtype([*_ENDS, ("written", "i8"), *_SUMS, *_ANYS])  # written: when the slot began
_NONE = np.empty(0, ENTRY)


@dataclass(frozen=True, slots=True)
class Look:
    """At a stream after a position, until about so many entries of `tables` are found, in the files as just listed.

    `told_max`: that are told of, where neighbours are one.
    """

    stream: Stream
    start: Position
    tables: frozenset[str]
    entries_max: int
    files: tuple[WalFile, ...]
    told_max: int = sys.maxsize

    @staticmethod
    def on(tail: Tail, tables: frozenset[str], files: list[WalFile], *, entries_max: int) -> Look:
        """From the end of a tail, until it knows so many entries."""
        first = max(0, bisect_right(files, tail.end, key=lambda file: file.first) - 1)
        room = entries_max - tail.count
        return Look(tail.stream, tail.end, tables, room, tuple(files[first:]))

    @property
    def bytes(self) -> int:
        """How much there is to read; 0 where that is not wanted, or cannot be told."""
        ends = (file.first + file.size - max(file.first, self.start) for file in self.files)
        return sum(max(0, size) for size in ends) if self.entries_max > 0 else 0


@dataclass(frozen=True, slots=True)
class Seen:
    """The entries between the start of a look and `end`. `borders`: where one file ends and the next one begins."""

    end: Position
    entries: np.ndarray
    borders: tuple[Position, ...]
    is_all: bool
    markers: tuple[Marker, ...] = ()

    @property
    def has_opened(self) -> bool:
        """Whether a region was."""
        return len(self.entries) > 0 and bool(self.entries["opens"].any())

    def to_bytes(self) -> bytes:
        told = {"end": int(self.end), "borders": [int(border) for border in self.borders], "is_all": self.is_all}
        told["markers"] = [marker.to_json() for marker in self.markers]
        return json.dumps(told).encode() + b"\n" + self.entries.tobytes()

    @staticmethod
    def from_bytes(value: bytes) -> Seen:
        told, _, entries = value.partition(b"\n")
        facts = json.loads(told)
        borders = tuple(map(Position, facts["borders"]))
        markers = tuple(marker_from_json(told) for told in facts["markers"])
        return Seen(Position(facts["end"]), np.frombuffer(entries, ENTRY), borders, facts["is_all"], markers)


def look_at(reader: WalReader, look: Look) -> Seen:
    """What a look finds, by a reader of its tables."""
    end, count, told, is_all = look.start, 0, 0, True
    found: list[np.ndarray] = []
    borders: list[Position] = []
    markers: list[Marker] = []
    for outline in reader.outline(look.stream, look.start, list(look.files)):
        if count >= look.entries_max or told >= look.told_max:
            is_all = False
            break
        end = outline.position
        if outline.entries is None:
            borders.append(end)
        found.append(_entries(outline))
        markers += outline.markers
        count, told = count + _count(found[-1]), told + len(found[-1])
    return Seen(end, np.concatenate(found) if found else _NONE, tuple(borders), is_all, tuple(markers))


@dataclass(slots=True, eq=False)
class Tail:
    """The entries of (`start`, `end`] that matter, in order, and the borders of files."""

    stream: Stream
    start: Position
    end: Position
    entries: np.ndarray = field(default_factory=lambda: _NONE)
    borders: list[Position] = field(default_factory=list)
    markers: list[Marker] = field(default_factory=list)

    @property
    def count(self) -> int:
        """Of entries as HBase wrote them."""
        return _count(self.entries)

    def add(self, seen: Seen) -> None:
        """What a look from the tail's end saw."""
        self.end = seen.end
        if len(seen.entries):
            self.entries = np.concatenate([self.entries, seen.entries])
        self.borders.extend(seen.borders)
        self.markers.extend(seen.markers)

    def begin_at(self, start: Position) -> None:
        """Forget what lies before."""
        self.entries = self.entries[self.entries["position"] > start]
        self.borders = [border for border in self.borders if border > start]
        self.markers = [marker for marker in self.markers if marker.position > start]
        self.start = start

    def knows(self, position: Position) -> bool:
        """Whether it is in the tail, and not within entries that are one here."""
        behind = self.entries[np.searchsorted(self.entries["position"], position, "right") :]
        return self.start <= position <= self.end and not (len(behind) and behind["first"][0] <= position)

    def upto(self, stop: Position) -> np.ndarray:
        """The entries that begin up to a position."""
        return self.entries[: np.searchsorted(self.entries["first"], stop, "right")]

    def between(self, start: Position, stop: Position) -> np.ndarray:
        """Those that end after another one."""
        entries = self.upto(stop)
        return entries[np.searchsorted(entries["position"], start, "right") :]

    def has_rolled(self, stop: Position) -> bool:
        """Whether the files change between start and `stop`: those before will be deleted."""
        return any(border <= stop for border in self.borders)


def _count(entries: np.ndarray) -> int:
    return int(entries["entries"].sum())


def _entries(outline: Outline) -> np.ndarray:
    entries = outline.entries
    if entries is None:
        return _NONE
    found = np.empty(len(entries.ends), ENTRY)
    found["first"] = found["position"] = outline.start + entries.ends
    found["entries"] = 1
    found["cells"] = entries.counts
    found["bytes"] = _sizes(entries)
    found["written"] = entries.written_ms - entries.written_ms % SLOT_MS
    found["opens"] = np.isin(found["position"], _positions(m for m in outline.markers if m.kind == OPENED))
    found["cells"][np.isin(found["position"], _positions(outline.markers))] = 0
    found["uncovers"] = False
    found["uncovers"][outline.uncovering] = True
    return _by_slots(found)


def _by_slots(entries: np.ndarray) -> np.ndarray:
    """Neighbours of one slot as one."""
    begins = np.flatnonzero(np.diff(entries["written"], prepend=-1))
    if len(begins) == len(entries):
        return entries
    found = entries[begins]
    found["position"] = entries["position"][np.append(begins[1:], len(entries)) - 1]
    for name, _ in _SUMS:
        found[name] = np.add.reduceat(entries[name], begins)
    for name, _ in _ANYS:
        found[name] = np.logical_or.reduceat(entries[name], begins)
    return found


def _sizes(entries: Entries) -> np.ndarray:
    """The bytes of the cells of each entry."""
    first = np.cumsum(entries.counts) - entries.counts
    begins = np.append(entries.cells, entries.stop)[first]
    return np.where(entries.counts, entries.ends - begins, 0)


def _positions(markers: Iterable[Marker]) -> list[int]:
    return [marker.position for marker in markers]
