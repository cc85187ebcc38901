"""Lookahead: what lies ahead in each stream of the log, and where an epoch is cut off it.

In: a reader of the mapped tables, and a position. Out: where entries of these tables end, their sizes and times of
writing, where single versions are deleted, and HBase's markers; positions of a cut. Always: cells are not read; every
byte is scanned once, by a look whether there are changes or by the cut that goes on from it. Entries of one hundredth
of a second are one here, which is never cut: so the memory for a backlog grows with the time in which it was written,
not with its size. A long tail is scanned in parts. A scan changes nothing, so any process may do it: the request
travels as a value, and the result as bytes.

A cut that has a write to a region after a server opened it has all earlier writes to it, on any server. Two scans of
all streams, between which no region was opened, are such a cut: what the second found of a region's earlier log was
there before the first found it opened. A long backlog is cut by the time of writing; servers' clocks differ by less
than `SKEW_MS`, or HBase refuses them. Where not all is known yet, a cut ends before the opening of a region whose
earlier writes may not all be known.
"""

from __future__ import annotations

import json
import sys
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from viewkeeper.model.positions import Position, Positions, Stream
from viewkeeper.stores.hbase.wal.wal_entries import OPENED, Marker, marker_from_json
from viewkeeper.stores.hbase.wal.wal_files import WalFile
from viewkeeper.stores.hbase.wal.wal_reader import Outline, WalReader

SLOT_MS = 10
_ENDS = [("first", "i8"), ("position", "i8")]  # where the first entry of a slot ends, and where the last one does
_SUMS = [("entries", "i8"), ("cells", "i8"), ("bytes", "i8")]
_ANYS = [("opens", "?"), ("uncovers", "?")]
ENTRY = np.dtype([*_ENDS, ("written", "i8"), *_SUMS, *_ANYS])  # written: when the slot began
_NONE = np.empty(0, ENTRY)


@dataclass(frozen=True, slots=True)
class LookaheadRequest:
    """Asks for about `entries_max` entries of `tables` after a position, in the files as just listed.

    `told_max` bounds the entries of the result, where neighbours are one.
    """

    stream: Stream
    start: Position
    tables: frozenset[str]
    entries_max: int
    files: tuple[WalFile, ...]
    told_max: int = sys.maxsize

    @staticmethod
    def on(tail: Tail, tables: frozenset[str], files: list[WalFile], *, entries_max: int) -> LookaheadRequest:
        """From the end of a tail, until it knows `entries_max` entries."""
        first = max(0, bisect_right(files, tail.end, key=lambda file: file.first) - 1)
        room = entries_max - tail.count
        return LookaheadRequest(tail.stream, tail.end, tables, room, tuple(files[first:]))

    @property
    def bytes(self) -> int:
        """How much there is to read; 0 where no entries are asked for."""
        ends = (file.first + file.size - max(file.first, self.start) for file in self.files)
        return sum(max(0, size) for size in ends) if self.entries_max > 0 else 0


@dataclass(frozen=True, slots=True)
class LookaheadResult:
    """The entries from the request's start to `end`. `borders`: where one file ends and the next one begins."""

    end: Position
    entries: np.ndarray
    borders: tuple[Position, ...]
    is_all: bool  # nothing was there after `end`; that is not looked at where as much was found as was asked for
    markers: tuple[Marker, ...] = ()

    def to_bytes(self) -> bytes:
        facts = {"end": int(self.end), "borders": [int(border) for border in self.borders], "is_all": self.is_all}
        facts["markers"] = [marker.to_json() for marker in self.markers]
        return json.dumps(facts).encode() + b"\n" + self.entries.tobytes()

    @staticmethod
    def from_bytes(value: bytes) -> LookaheadResult:
        head, _, entries = value.partition(b"\n")
        facts = json.loads(head)
        borders, markers = tuple(map(Position, facts["borders"])), tuple(map(marker_from_json, facts["markers"]))
        return LookaheadResult(Position(facts["end"]), np.frombuffer(entries, ENTRY), borders, facts["is_all"], markers)


def scan_ahead(reader: WalReader, look: LookaheadRequest) -> LookaheadResult:
    """Scan as requested, with a reader of the request's tables."""
    end, count, told = look.start, 0, 0
    found: list[np.ndarray] = []
    borders: list[Position] = []
    markers: list[Marker] = []
    outlines = reader.outline(look.stream, look.start, list(look.files))
    while is_all := count < look.entries_max and told < look.told_max:  # else the next one is not read
        if (outline := next(outlines, None)) is None:
            break
        end = outline.position
        if outline.entries is None:
            borders.append(end)
        found.append(_entries(outline))
        markers += outline.markers
        count, told = count + _count(found[-1]), told + len(found[-1])
    return LookaheadResult(end, np.concatenate(found) if found else _NONE, tuple(borders), is_all, tuple(markers))


@dataclass(slots=True, eq=False)
class Tail:
    """The entries of mapped tables in (`start`, `end`], in order, and the borders of files."""

    stream: Stream
    start: Position
    end: Position
    entries: np.ndarray = field(default_factory=lambda: _NONE)
    borders: list[Position] = field(default_factory=list)
    markers: list[Marker] = field(default_factory=list)

    @property
    def count(self) -> int:
        """How many entries HBase wrote."""
        return _count(self.entries)

    def add(self, seen: LookaheadResult) -> None:
        """Append the result of a scan from the tail's end."""
        self.end = seen.end
        if len(seen.entries):
            self.entries = np.concatenate([self.entries, seen.entries])
        self.borders.extend(seen.borders)
        self.markers.extend(seen.markers)

    def begin_at(self, start: Position) -> None:
        """Forget what lies before `start`."""
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
        """The entries that end after `start` and begin up to `stop`."""
        entries = self.upto(stop)
        return entries[np.searchsorted(entries["position"], start, "right") :]


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
    first = np.cumsum(entries.counts) - entries.counts
    begins = np.append(entries.cells, entries.stop)[first]
    found["bytes"] = np.where(entries.counts, entries.ends - begins, 0)  # of the cells
    found["written"] = entries.written_ms - entries.written_ms % SLOT_MS
    opened = [marker.position for marker in outline.markers if marker.kind == OPENED]
    found["opens"] = np.isin(found["position"], opened)
    found["cells"][np.isin(found["position"], [marker.position for marker in outline.markers])] = 0
    found["uncovers"] = False
    found["uncovers"][outline.uncovering] = True
    return _by_slots(found)


def _by_slots(entries: np.ndarray) -> np.ndarray:
    """Entries with neighbours of one slot made one."""
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


SKEW_MS = 30_000 + SLOT_MS  # hbase.master.maxclockskew, between the beginnings of two slots
_EVER = 1 << 62


def cut_tails(
    tails: Sequence[Tail], known: Sequence[Tail], *, changes_max: int, bytes_max: int
) -> tuple[Positions, int]:
    """Positions of about so many changes or bytes, and the time (ms) up to which they hold everything.

    `known`: the tails that are scanned to their ends. Of the others a cut takes in nothing later than what is known.
    """
    last = _known_until(tails, known)
    until = min(last, _last_time(tails, changes_max, bytes_max))
    positions: Positions = {}
    while (found := {tail.stream: _before(tail, until) for tail in tails}) != positions:
        positions = found
        until = min(last, max(until, _opened_by(tails, positions) + SKEW_MS))
    return positions, until


def _known_until(tails: Sequence[Tail], known: Sequence[Tail]) -> int:
    """The last time up to which all earlier writes of the regions opened by then are known."""
    last = min((int(_times(tail)[-1]) for tail in tails if tail not in known), default=_EVER)
    opened = np.concatenate([_times(tail)[tail.entries["opens"]] for tail in tails])
    while (late := opened[(opened > last - SKEW_MS) & (opened <= last)]).size:
        last = int(late.min()) - 1
    return last


def _last_time(tails: Sequence[Tail], changes_max: int, bytes_max: int) -> int:
    """The time of writing of the entry that reaches one of the limits, or of the last one."""
    times = np.concatenate([_times(tail) for tail in tails])
    order = np.argsort(times, kind="stable")
    entries = np.concatenate([tail.entries for tail in tails])[order]
    reached = (np.cumsum(entries["cells"]) >= changes_max) | (np.cumsum(entries["bytes"]) >= bytes_max)
    last = int(np.argmax(reached)) if reached.any() else len(order) - 1
    return int(times[order[last]])


def _times(tail: Tail) -> np.ndarray:
    """When entries were written; made to rise, because a server's clock may go back."""
    return np.maximum.accumulate(tail.entries["written"])


def _before(tail: Tail, until: int) -> Position:
    count = int(np.searchsorted(_times(tail), until, "right"))
    return Position(int(tail.entries["position"][count - 1])) if count else tail.start


def _opened_by(tails: Sequence[Tail], positions: Positions) -> int:
    """When the last region was opened up to `positions`; long ago if none was."""
    found = [tail.upto(positions[tail.stream]) for tail in tails]
    return max((int(one["written"][one["opens"]].max(initial=-SKEW_MS)) for one in found), default=-SKEW_MS)
