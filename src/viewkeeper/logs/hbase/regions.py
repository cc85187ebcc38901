"""Regions: what happened to tables beyond their log, as the markers in it show.

In: what is known of regions, and markers of all streams. Out: what is known then; and which tables were bulk-loaded, made
anew or restored, and when. Always: pure; a marker that was followed before changes nothing. A region goes on with the files
that it had, under greater sequence ids, and is followed by younger ones when it is split or merged. One that is opened
without a past is that of a new table; one that lacks a file, or goes back, that of one that was restored or lost a family.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from viewkeeper.logs.hbase.markers import BULK_LOAD, CLOSED, COMPACTION, FLUSHED, OPENED, Marker

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
class Beyond:
    """Something happened to a table beyond its log: one of the words above."""

    table: str
    what: str
    written_ms: int


def follow(known: Mapping[str, Region], markers: Iterable[Marker]) -> tuple[dict[str, Region], list[Beyond]]:
    """The regions that were heard of, by their encoded names, with what is new; and what happened."""
    regions, found = dict(known), list[Beyond]()
    youngest: dict[str, int] = {}  # of the regions that begin at a row key
    for region in known.values():
        youngest[region.start] = max(youngest.get(region.start, 0), region.made)
    followed = (marker for marker in markers if marker.kind in _FOLLOWED)
    for marker in sorted(followed, key=lambda marker: (marker.written_ms, marker.sequence)):
        if marker.kind == BULK_LOAD:
            found.append(Beyond(marker.table, LOADED, marker.written_ms))
        was = regions.get(marker.region)
        if was is not None and (marker.written_ms, marker.sequence) <= (was.written_ms, was.sequence):
            continue
        now = _with(was, marker)
        if marker.kind == OPENED and (what := _beyond(was, now, marker, youngest.get(now.start, 0))):
            found.append(Beyond(marker.table, what, marker.written_ms))
        regions[marker.region] = now
        youngest[now.start] = max(youngest.get(now.start, 0), now.made)
    return regions, found


def _with(was: Region | None, marker: Marker) -> Region:
    files = frozenset() if was is None or marker.kind == OPENED else was.files - set(marker.gone)
    name = marker.name or (was.name if was else "")
    return Region(marker.table, marker.written_ms, marker.sequence, name, files | set(marker.files))


def _beyond(was: Region | None, now: Region, marker: Marker, youngest: int) -> str | None:
    """What an opened region shows."""
    if marker.sequence <= _FIRST_SEQUENCE:
        return MADE_ANEW
    goes_back = was is not None and (now.sequence <= was.sequence or not was.files <= now.files)
    return RESTORED if goes_back or now.made < youngest else None
