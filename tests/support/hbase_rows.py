"""The rows of a table of a small HBase: what its memory and its files hold, and what of it readers see.

In: cells, deletes among them, in the order in which they are stored. Out: cells, newest first within a column. Always: as
HBase reads them: a delete hides what has its timestamp or an older one, also what is put later, until a major compaction
removes both the delete and what it hides; of a column no more versions are seen than its family keeps, and none past its
family's time to live. Row keys stay sorted, so a scan costs what it returns.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from tests.support import wal_files as wal
from tests.support.wal_files import DELETE, DELETE_FAMILY, DELETE_FAMILY_VERSION, PUT

Place = tuple[bytes, bytes]  # family and qualifier
_FOREVER = (1 << 31) - 1


@dataclass(frozen=True, slots=True)
class Stored:
    """A cell, a delete among them; `sequence` rises with each entry of the log."""

    cell: wal.Cell
    sequence: int

    @property
    def place(self) -> Place:
        return self.cell.family, self.cell.qualifier


@dataclass(slots=True)
class Row:
    """All cells of a row, and what a read looks at: of each column the last put of each timestamp, and the deletes."""

    stored: list[Stored] = field(default_factory=list)
    puts: dict[Place, dict[int, wal.Cell]] = field(default_factory=dict)
    deletes: list[wal.Cell] = field(default_factory=list)

    def add(self, one: Stored) -> None:
        self.stored.append(one)
        if one.cell.kind == PUT:
            self.puts.setdefault(one.place, {})[one.cell.timestamp] = one.cell
        else:
            self.deletes.append(one.cell)

    def versions(self, place: Place, low: int, high: int) -> list[wal.Cell]:
        """Those of a column with low <= timestamp < high that no delete hides, newest first."""
        cells = self.puts[place]
        shown = [cells[at] for at in sorted(cells, reverse=True) if low <= at < high]
        if not self.deletes:
            return shown
        return [cell for cell in shown if not any(_hides(delete, cell) for delete in self.deletes)]


@dataclass(slots=True)
class Table:
    """A table: its regions, by the row keys where all but the first begin, and its rows."""

    described: Any
    borders: list[bytes]
    number: int
    is_enabled: bool = True
    rows: dict[bytes, Row] = field(default_factory=dict)
    keys: list[bytes] = field(default_factory=list)  # of the rows, sorted

    def region(self, row: bytes) -> str:
        """The encoded name of the region that holds a row."""
        return f"{self.number:016x}{bisect_right(self.borders, row):016x}"

    def store(self, cells: Sequence[Stored]) -> None:
        for one in cells:
            row = self.rows.get(one.cell.row)
            if row is None:
                row = self.rows[one.cell.row] = Row()
                insort(self.keys, one.cell.row)
            row.add(one)

    def clear(self) -> None:
        self.rows, self.keys = {}, []

    def walk(self, start: bytes, stop: bytes | None) -> Iterator[bytes]:
        """Row keys from `start` to before `stop`, ascending."""
        end = len(self.keys) if not stop else bisect_left(self.keys, stop)
        return iter(self.keys[bisect_left(self.keys, start) : end])

    def walk_back(self, start: bytes, stop: bytes | None) -> Iterator[bytes]:
        """Row keys from `start` down to before `stop`; an empty start is the end of the table."""
        end = bisect_right(self.keys, start) if start else len(self.keys)
        first = 0 if stop is None else bisect_right(self.keys, stop)
        return reversed(self.keys[first:end])

    def visible(self, row: bytes, columns: Any, times: Any, versions: int, now_ms: int) -> list[wal.Cell]:
        """The cells of a row that a reader sees, up to so many of each column."""
        known = self.rows.get(row)
        if known is None:
            return []
        low, high = (0, 1 << 63) if times is None else (times.minStamp, times.maxStamp)
        found: list[wal.Cell] = []
        for place in sorted(known.puts) if len(known.puts) > 1 else known.puts:
            if columns and not any(place[0] == c.family and c.qualifier in (None, place[1]) for c in columns):
                continue
            most, seconds = self._limits(place[0])
            since = low if seconds is None else max(low, now_ms - seconds * 1_000 + 1)
            found += known.versions(place, since, high)[: min(versions, most)]
        return found

    def compact(self, now_ms: int) -> None:
        """A major compaction: deletes go, and with them what they hide, what expired, and versions beyond those kept."""
        for key in self.keys:
            self._compact_row(key, now_ms)
        self.keys = [key for key in self.keys if key in self.rows]

    def _compact_row(self, key: bytes, now_ms: int) -> None:
        shown = {id(cell) for cell in self.visible(key, None, None, _FOREVER, now_ms)}
        kept = [one for one in self.rows.pop(key).stored if id(one.cell) in shown]
        if kept:
            row = self.rows[key] = Row()
            for one in kept:
                row.add(one)

    def _limits(self, family: bytes) -> tuple[int, int | None]:
        """How many versions a family keeps, and for how many seconds; None: for ever."""
        described = next(one for one in self.described.columns if one.name == family)
        seconds = described.timeToLive
        return described.maxVersions or 1, None if seconds in (None, _FOREVER) else seconds


def raw_cells(row: Row, families: set[bytes]) -> list[wal.Cell]:
    """All cells, newest first within a column; of several with one timestamp deletes come first.

    Of one kind with one timestamp the last: HBase's `ScanWildcardColumnTracker` skips the others.
    """
    last = {(one.place, one.cell.timestamp, one.cell.kind): one for one in row.stored if one.cell.family in families}
    ordered = sorted(last.values(), key=lambda one: (one.place, -one.cell.timestamp, -one.cell.kind))
    return [one.cell for one in ordered]


def _hides(delete: wal.Cell, cell: wal.Cell) -> bool:
    if delete.family != cell.family:
        return False
    is_older = cell.timestamp <= delete.timestamp
    if delete.kind in (DELETE, DELETE_FAMILY_VERSION):
        is_older = cell.timestamp == delete.timestamp
    return is_older and (delete.kind in (DELETE_FAMILY, DELETE_FAMILY_VERSION) or delete.qualifier == cell.qualifier)
