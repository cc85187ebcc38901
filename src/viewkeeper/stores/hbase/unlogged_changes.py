"""Unlogged changes: what happened to mapped tables without an entry in their log, as HBase's markers show.

In: the markers of all streams, from the pipeline; the folder of HBase's files. Out: which tables were bulk-loaded, made
anew or restored, and when. Always: only the pipeline writes this down, by test-and-set; following a marker twice
changes nothing. A region keeps its files under rising sequence ids, and younger regions replace it when it is split or
merged. A region that is opened with no past is a new table's; one that lacks a file or goes back is a table's that was
restored, or lost a family. The files that regions had before their table was mapped are read from the folder once: the
newest of each family, because older ones may have been compacted.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from viewkeeper.stores.hbase.store_tables import LOG, OUTSIDE, REGIONS, MetaTable
from viewkeeper.stores.hbase.wal.wal_entries import BULK_LOAD, CLOSED, COMPACTION, FLUSHED, OPENED, Marker
from viewkeeper.stores.hbase.wal.wal_files import WalFolder

LOADED, MADE_ANEW, RESTORED = "bulk-loaded", "truncated or made anew", "restored from a snapshot or rid of a family"
_FOLLOWED = (BULK_LOAD, CLOSED, COMPACTION, FLUSHED, OPENED)
_FIRST_SEQUENCE = 3  # of the marker of a new region's opening; the halves of a split one go on from its sequence


@dataclass(frozen=True, slots=True)
class Region:
    """A region as its last marker shows it: when (ms), its sequence id and full name, and files that it surely has."""

    table: str
    written_ms: int
    sequence: int
    name: str
    files: frozenset[str]

    @property
    def start(self) -> str:
        """The table and the first row key."""
        return self.name.rpartition(",")[0]

    @property
    def made(self) -> int:
        """A number that rises with the time at which regions are made; 0: it is not known."""
        made = self.name.rpartition(",")[2].split(".")[0].split("_")[0]
        return int(made) if made.isdigit() else 0


@dataclass(frozen=True, slots=True)
class UnloggedChange:
    """A change of a table beyond its log: one of the words above."""

    table: str
    what: str
    written_ms: int


def follow(known: Mapping[str, Region], markers: Iterable[Marker]) -> tuple[dict[str, Region], list[UnloggedChange]]:
    """The regions by their encoded names, as the markers change them, and the unlogged changes that these show."""
    regions, found = dict(known), list[UnloggedChange]()
    youngest: dict[str, int] = {}  # of the regions that begin at a row key
    for region in known.values():
        youngest[region.start] = max(youngest.get(region.start, 0), region.made)
    followed = (marker for marker in markers if marker.kind in _FOLLOWED)
    for marker in sorted(followed, key=lambda marker: (marker.written_ms, marker.sequence)):
        if marker.kind == BULK_LOAD:
            found.append(UnloggedChange(marker.table, LOADED, marker.written_ms))
        was = regions.get(marker.region)
        if was is not None and (marker.written_ms, marker.sequence) <= (was.written_ms, was.sequence):
            continue
        files = frozenset() if was is None or marker.kind == OPENED else was.files - set(marker.gone)
        name = marker.name or (was.name if was else "")
        now = Region(marker.table, marker.written_ms, marker.sequence, name, files | set(marker.files))
        if marker.kind == OPENED and (what := _beyond(was, now, marker, youngest.get(now.start, 0))):
            found.append(UnloggedChange(marker.table, what, marker.written_ms))
        regions[marker.region] = now
        youngest[now.start] = max(youngest.get(now.start, 0), now.made)
    return regions, found


def _beyond(was: Region | None, now: Region, marker: Marker, youngest: int) -> str | None:
    """The unlogged change that the opening of a region shows, if any."""
    if marker.sequence <= _FIRST_SEQUENCE:
        return MADE_ANEW
    goes_back = was is not None and (now.sequence <= was.sequence or not was.files <= now.files)
    return RESTORED if goes_back or now.made < youngest else None


_RIGHT = "right/"
_Happened = dict[str, dict[str, int]]  # by table: what, and when (ms) it last did


class UnloggedChanges:
    """The unlogged changes of a store's tables, kept in rows of the meta table."""

    def __init__(self, rows: MetaTable, folder: WalFolder) -> None:
        self._rows, self._folder = rows, folder
        self._followed: tuple[Sequence[Marker], Collection[str]] | None = None

    def follow(self, tables: frozenset[str], markers: Sequence[Marker], now_ms: int) -> None:
        """Write down what the markers show of these tables."""
        if self._followed == (markers, tables):
            return
        stored, known = self._rows.read(OUTSIDE), self._regions()
        happened = _decoded(stored)
        for table in sorted(happened.keys() - tables):
            self._forget(table, known)
        regions = {name: region for name, region in known.items() if region.table in tables}
        for table in sorted(tables - happened.keys()):
            for region, files in self._folder.newest_in(table).items():
                regions[region] = Region(table, now_ms, 0, "", frozenset(files))
        regions, found = follow(regions, markers)
        changed = {name: _packed(region) for name, region in regions.items() if known.get(name) != region}
        if changed:
            self._rows.put(REGIONS, changed)
        changes = _with_changes({table: happened.get(table, {}) for table in tables}, found)
        swaps = [
            self._rows.swap(OUTSIDE, table, stored.get(table, b""), {table: value}, repeats=True)
            for table in sorted(tables)  # after the regions: those of a table without an entry here are read again
            if stored.get(table) != (value := json.dumps(changes[table]).encode())
        ]
        if all(swaps):  # otherwise another pipeline has written, or the reply was lost: the next call looks
            self._followed = (list(markers), tables)

    def happened(self, markers: Sequence[Marker]) -> Mapping[str, Mapping[str, int]]:
        """The changes of each table, also those in markers that the pipeline has not followed yet."""
        return _with_changes(self._happened(), follow(self._regions(), markers)[1] if markers else [])

    def mark_verified(self, tables: Sequence[int], at_ms: int) -> None:
        """Write down that a check found DELTA equal to these mapped tables at that time."""
        if tables:
            self._rows.put(LOG, {f"{_RIGHT}{table}": b"%d" % at_ms for table in tables})

    def verified_at(self, table: int) -> int:
        """When (ms) a check last did; 0: never."""
        return int(self._rows.read(LOG, f"{_RIGHT}{table}").get(f"{_RIGHT}{table}", b"0"))

    def forget_all(self) -> None:
        """Read everything from the folder again, because markers were skipped."""
        known = self._regions()
        for table in self._happened():
            self._forget(table, known)
        self._followed = None

    def _forget(self, table: str, known: Mapping[str, Region]) -> None:
        mine = {name for name, region in known.items() if region.table == table}
        for row, names in ((OUTSIDE, {table}), (REGIONS, mine)):
            stamps = {name: cell.timestamp for name, cell in self._rows.cells(row).items() if name in names}
            if stamps:
                self._rows.delete(row, stamps)

    def _happened(self) -> _Happened:
        return _decoded(self._rows.read(OUTSIDE))

    def _regions(self) -> dict[str, Region]:
        return {name: _unpacked(value) for name, value in self._rows.read(REGIONS).items()}


def _decoded(stored: Mapping[str, bytes]) -> _Happened:
    return {table: json.loads(value) for table, value in stored.items()}


def _with_changes(happened: _Happened, found: Iterable[UnloggedChange]) -> _Happened:
    both = {table: dict(whats) for table, whats in happened.items()}
    for one in found:
        whats = both.setdefault(one.table, {})
        whats[one.what] = max(whats.get(one.what, 0), one.written_ms)
    return both


def _packed(region: Region) -> bytes:
    facts = (region.table, region.written_ms, region.sequence, region.name, sorted(region.files))
    return json.dumps(facts).encode()


def _unpacked(value: bytes) -> Region:
    table, written_ms, sequence, name, files = json.loads(value)
    return Region(table, written_ms, sequence, name, frozenset(files))
