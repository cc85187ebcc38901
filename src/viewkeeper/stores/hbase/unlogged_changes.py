"""Unlogged changes: what happened to mapped tables without an entry in their log, as HBase's markers show.

In: the markers of all streams, from the pipeline; the folder of HBase's files. Out: which tables were bulk-loaded, made
anew or restored, and when. Always: the pipeline alone writes it down; a marker that was followed before changes
nothing. A region goes on with the files that it had, under greater sequence ids, and is followed by younger ones when
it is split or merged. One that is opened without a past is that of a new table; one that lacks a file, or goes back,
that of one that was restored or lost a family. What regions had before their table was mapped is taken from the folder,
once: the newest file of each family, because older ones may have been compacted.
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
_FIRST_SEQUENCE = (
    3  # of the marker with which a region is opened for the first time; a half of another one goes on from it
)


@dataclass(frozen=True, slots=True)
class Region:
    """As last heard of: when (ms), and under which sequence id; its full name; files that it has, perhaps among others."""

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
        """A number that rises with the time at which regions are made; 0 where the name is not known."""
        made = self.name.rpartition(",")[2].split(".")[0].split("_")[0]
        return int(made) if made.isdigit() else 0


@dataclass(frozen=True, slots=True)
class UnloggedChange:
    """Something happened to a table beyond its log: one of the words above."""

    table: str
    what: str
    written_ms: int


def follow(known: Mapping[str, Region], markers: Iterable[Marker]) -> tuple[dict[str, Region], list[UnloggedChange]]:
    """The regions that were heard of, by their encoded names, with what is new; and what happened."""
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
        now = _after_marker(was, marker)
        if marker.kind == OPENED and (what := _beyond(was, now, marker, youngest.get(now.start, 0))):
            found.append(UnloggedChange(marker.table, what, marker.written_ms))
        regions[marker.region] = now
        youngest[now.start] = max(youngest.get(now.start, 0), now.made)
    return regions, found


def _after_marker(was: Region | None, marker: Marker) -> Region:
    files = frozenset() if was is None or marker.kind == OPENED else was.files - set(marker.gone)
    name = marker.name or (was.name if was else "")
    return Region(marker.table, marker.written_ms, marker.sequence, name, files | set(marker.files))


def _beyond(was: Region | None, now: Region, marker: Marker, youngest: int) -> str | None:
    """What an opened region shows."""
    if marker.sequence <= _FIRST_SEQUENCE:
        return MADE_ANEW
    goes_back = was is not None and (now.sequence <= was.sequence or not was.files <= now.files)
    return RESTORED if goes_back or now.made < youngest else None


_RIGHT = "right/"
_Happened = dict[str, dict[str, int]]  # by table: what, and when (ms) it last did


class UnloggedChanges:
    """The rows of a store's facts that tell of it."""

    def __init__(self, rows: MetaTable, folder: WalFolder) -> None:
        self._rows, self._folder = rows, folder
        self._followed: tuple[Sequence[Marker], Collection[str]] | None = None

    def follow(self, tables: frozenset[str], markers: Sequence[Marker], now_ms: int) -> None:
        """Remember what the markers show of these tables."""
        if self._followed == (markers, tables):
            return
        happened, known = self._happened(), self._regions()
        for table in sorted(happened.keys() - tables):
            self._forget(table, known)
        regions = {name: region for name, region in known.items() if region.table in tables}
        for table in sorted(tables - happened.keys()):
            for region, files in self._folder.newest_in(table).items():
                regions[region] = Region(table, now_ms, 0, "", frozenset(files))
        regions, found = follow(regions, markers)
        changed = {name: _packed(region) for name, region in regions.items() if known.get(name) != region}
        if changed:
            self._rows.put_all(REGIONS, changed)
        told = _with_changes({table: happened.get(table, {}) for table in tables}, found)
        new = {table: json.dumps(told[table]).encode() for table in tables if happened.get(table) != told[table]}
        if new:  # behind the regions: a table without a row here is looked at again
            self._rows.put_all(OUTSIDE, new)
        self._followed = (list(markers), tables)

    def happened(self, markers: Sequence[Marker]) -> Mapping[str, Mapping[str, int]]:
        """What did to each table, and what markers show that the pipeline has not followed yet."""
        happened = self._happened()
        return _with_changes(happened, follow(self._regions(), markers)[1] if markers else [])

    def mark_verified(self, tables: Sequence[int], at_ms: int) -> None:
        """Remember that what is known of these mapped tables was found to be all that they had then."""
        if tables:
            self._rows.put_all(LOG, {f"{_RIGHT}{table}": b"%d" % at_ms for table in tables})

    def verified_at(self, table: int) -> int:
        """When (ms) that last was; 0: never."""
        return int(self._rows.read(LOG, f"{_RIGHT}{table}").get(f"{_RIGHT}{table}", b"0"))

    def forget_all(self) -> None:
        """Markers were passed over: take everything from the folder again."""
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
        return {table: json.loads(value) for table, value in self._rows.read(OUTSIDE).items()}

    def _regions(self) -> dict[str, Region]:
        return {name: _unpacked(value) for name, value in self._rows.read(REGIONS).items()}


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
