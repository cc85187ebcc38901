"""The journal: which records epochs wrote, for the purge of old versions and for readers of changes.

In: records with older versions or tombstones, as they are written. Out: those that the floor has passed. Always: an entry is
put before the version it tells of, so none is forgotten; one too many does no harm, because what it makes the purge delete
is surplus all the same. Entries are rows: partition, kind, epoch, table, key.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from viewkeeper.model.moments import EPOCH_MAX
from viewkeeper.stores.hbase.cells import delete_of, row_key, times
from viewkeeper.stores.hbase.rowranges import ranges_filter
from viewkeeper.stores.hbase.scans import Look, pages
from viewkeeper.stores.hbase.site import Site
from viewkeeper.stores.hbase.tables import JOURNAL

WRITTEN, GONE = b"w", b"x"  # a row was put over an older version, or for an index; a tombstone was put
_HEAD = struct.Struct(">QI")
_ALL = 1 << 62


@dataclass(frozen=True, slots=True)
class Entry:
    """That an epoch wrote a record."""

    partition: int
    kind: bytes
    epoch: int
    table: int
    key: bytes

    @property
    def row(self) -> bytes:
        return row_key(self.partition, self.kind + _HEAD.pack(self.epoch, self.table) + self.key)

    @staticmethod
    def of(row: bytes) -> Entry:
        epoch, table = _HEAD.unpack_from(row, 2)
        return Entry(row[0], row[1:2], epoch, table, row[2 + _HEAD.size :])


def entries(
    site: Site, kinds: dict[bytes, tuple[int, int]], partitions: Iterable[int] | None = None, *, first: int = 1_000
) -> Iterator[list[Entry]]:
    """The entries of each kind from one epoch to another, of all kinds and partitions in one scan."""
    ranges = [
        (row_key(partition, kind + _HEAD.pack(low, 0)), row_key(partition, kind + _HEAD.pack(high + 1, 0)))
        for partition in sorted(range(site.partitions) if partitions is None else partitions)
        for kind, (low, high) in sorted(kinds.items())
        if low <= high
    ]
    if ranges:
        look = Look(times(0, EPOCH_MAX), ranges=ranges_filter(ranges))
        for page in pages(site, JOURNAL, (ranges[0][0], ranges[-1][1]), look, first=first):
            yield [Entry.of(result.row) for result in page]


class Purge:
    """Deletes versions that no reader needs; see `docs/epochs.md`, section 4."""

    def __init__(self, site: Site) -> None:
        self._site = site
        self._from = {WRITTEN: 0, GONE: 0}  # before that the journal is empty: HBase walks over deleted entries

    def run(self, floor: int, settled: int, aborted: Sequence[int], records_max: int) -> int:
        """Delete what the entries up to the floor tell of; tombstones only of epochs before `settled`."""
        upto = {WRITTEN: floor, GONE: min(floor, settled - 1)}
        kinds = {kind: (self._from[kind], last) for kind, last in upto.items()}
        most = max(2, records_max)
        found = next(entries(self._site, kinds, first=most), [])
        by_table: dict[int, list[Any]] = {}
        for entry in found:
            if entry.epoch not in aborted:
                last = entry.epoch if entry.kind == GONE else entry.epoch - 1
                by_table.setdefault(entry.table, []).append(delete_of(row_key(entry.partition, entry.key), last))
        for table, deletes in by_table.items():
            self._site.ask(table, "deleteMultiple", deletes, absent=[])
        if found:
            self._site.ask(JOURNAL, "deleteMultiple", [delete_of(entry.row, entry.epoch) for entry in found])
        if len(found) < most:
            self._from = {kind: max(self._from[kind], last + 1) for kind, last in upto.items()}
        return len(found)


def written_between(site: Site, partitions: Sequence[int], table: int, since: int, until: int) -> list[Entry]:
    """The records of a table that the epochs after `since` up to `until` wrote, where they were indexed."""
    kinds = dict.fromkeys((WRITTEN, GONE), (since + 1, min(until, _ALL)))
    found = (entry for page in entries(site, kinds, partitions) for entry in page if entry.table == table)
    return sorted(found, key=lambda entry: entry.key)
