"""Records in HBase: the port `VersionedTables` over cells (`docs/epochs.md`, section 4), and their journal.

In: keys and rows, by epoch. Out: rows as of the epoch before. Always: versions are put blindly, in batches, each with
the epoch as its timestamp; the epoch record is asked what is in flight after the last read and before the first put of
a batch (VALIDATE), and again where a put would be issued later than T after that. `applied` is never known.

The journal lists records with older versions or tombstones, for the purge and for readers of changes. An entry (a row:
partition, kind, epoch, table, key) is put before its version, so none is missing; a surplus one does no harm.
"""

from __future__ import annotations

import struct
import threading
import time
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import repeat
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from viewkeeper.catalog.catalog import Catalog
from viewkeeper.errors import ViewFailed
from viewkeeper.model.epochs import EpochRecord, Inflight
from viewkeeper.model.keys import after_prefix
from viewkeeper.model.positions import SplitPoints
from viewkeeper.model.read_frontier import EPOCH_MAX
from viewkeeper.ports.records import StoredVersions, VersionWrite
from viewkeeper.stores.hbase.mapping import shown_of
from viewkeeper.stores.hbase.meta import MetaPart
from viewkeeper.stores.hbase.record_cache import CachedVersion, RecordCache, RecordKey
from viewkeeper.stores.hbase.store_tables import JOURNAL, STORE, is_shown
from viewkeeper.stores.hbase.table_requests import Site, VersionRange, gets, pages, span_of
from viewkeeper.stores.hbase.thrift_cells import (
    BATCH_RECORDS,
    GONE_VALUE,
    KEY_BYTES_MAX,
    NOTHING,
    OLDER_MAX,
    ROW_BYTES_MAX,
    Puts,
    below,
    delete_of,
    in_batches,
    ranges_filter,
    row_key,
    times,
    versions_needed,
    visible,
    with_first,
)
from viewkeeper.stores.split_points import find_split_points

WRITTEN, GONE = b"w", b"x"  # a row was put over an older version, or for an index; a tombstone was put
_HEAD = struct.Struct(">QI")
_ALL = 1 << 62


@dataclass(frozen=True, slots=True)
class JournalEntry:
    partition: int
    kind: bytes
    epoch: int
    table: int
    key: bytes

    @property
    def row(self) -> bytes:
        return row_key(self.partition, self.kind + _HEAD.pack(self.epoch, self.table) + self.key)

    @staticmethod
    def of(row: bytes) -> JournalEntry:
        epoch, table = _HEAD.unpack_from(row, 2)
        return JournalEntry(row[0], row[1:2], epoch, table, row[2 + _HEAD.size :])


def journal_entries(
    site: Site, kinds: dict[bytes, tuple[int, int]], partitions: Iterable[int] | None = None, *, first: int = 1_000
) -> Iterator[list[JournalEntry]]:
    """The entries of each kind from one epoch to another, in one scan of all kinds and partitions."""
    ranges = [
        (row_key(partition, kind + _HEAD.pack(low, 0)), row_key(partition, kind + _HEAD.pack(high + 1, 0)))
        for partition in sorted(range(site.partitions) if partitions is None else partitions)
        for kind, (low, high) in sorted(kinds.items())
        if low <= high
    ]
    if ranges:
        look = VersionRange(times(0, EPOCH_MAX), ranges=ranges_filter(ranges))
        for page in pages(site, JOURNAL, (ranges[0][0], ranges[-1][1]), look, first=first):
            yield [JournalEntry.of(result.row) for result in page]


def rows_written(site: Site, partitions: Sequence[int], table: int, since: int, until: int) -> list[bytes]:
    """The row keys that indexed epochs wrote after `since` up to `until`, in order."""
    kinds = dict.fromkeys((WRITTEN, GONE), (since + 1, min(until, _ALL)))
    found = (entry for page in journal_entries(site, kinds, partitions) for entry in page if entry.table == table)
    return sorted({row_key(entry.partition, entry.key) for entry in found})


PUT_SECONDS = 30.0  # T: how long after a VALIDATE puts are issued
_PREFIXES_MAX = 500
_ADMITTED = "admitted"
_NO_TABLE = "no table"


@dataclass(frozen=True, slots=True)
class _Mutations:
    """What a write does to a table: `deletes` is for versions that no reader sees any more."""

    table: int
    places: list[RecordKey]
    puts: Puts
    written: list[CachedVersion]
    deletes: list[tuple[bytes, int]]  # row, and the last epoch
    entries: list[bytes]  # rows of the journal


class RecordsPart(MetaPart):
    """The port `VersionedTables`."""

    def __init__(self) -> None:
        self._journal_from = {WRITTEN: 0, GONE: 0}  # empty before: a scan would pass over deleted entries
        self._recent = RecordCache(self._site.rows)
        self._seen: dict[int, float] = {}  # the last epoch begun -> when a purge first saw it
        self._catalog = (-1, Catalog())  # as last read, under its version

    @property
    def partitions(self) -> int:
        return self._site.partitions

    # epochs

    def admit(self, epoch: Inflight) -> None:
        """Note the epoch for `written_epochs`, and let views start anew; the epoch record decides who writes."""
        if self.written_epochs()[1] < epoch.anew:
            self._start_anew(epoch.anew)
        self._site.rows.put(STORE, {_ADMITTED: b"%d" % epoch.epoch}, epoch.epoch)  # the greatest one is seen

    def _start_anew(self, epoch: int) -> None:
        """Delete the versions of earlier epochs, and none of later ones: a pipeline that was fenced off may do it late."""
        old = VersionRange(times(0, epoch - 1))
        for table in self._site.tables.start_anew(epoch):
            for page in pages(self._site, table, (b"", bytes((self.partitions,))), old) if table != JOURNAL else ():
                deletes = [delete_of(one.row, epoch - 1) for one in page]
                self._site.ask_each(table, "deleteMultiple", in_batches(deletes, BATCH_RECORDS))

    def written_epochs(self) -> tuple[int, int]:
        admitted = int(self._site.rows.read(STORE, _ADMITTED).get(_ADMITTED, b"0"))
        return admitted, admitted

    # reads of tasks

    def read_versions(self, table: int, keys: pa.Array, partitions: np.ndarray, epoch: Inflight) -> StoredVersions:
        record_keys = list(zip(partitions.tolist(), keys.to_pylist(), strict=True))
        known = self._recent.find(table, record_keys, epoch, self._anew(epoch))
        asked = [at for at, kept in enumerate(known) if kept is None and len(record_keys[at][1]) <= KEY_BYTES_MAX]
        lower = [kept[1:3] if kept else NOTHING for kept in known]
        rows = [kept[3] if kept else None for kept in known]
        if asked:
            look = VersionRange(
                times(self._anew(epoch), epoch.epoch - 1), versions_needed(epoch.epoch - 1, epoch.aborted)
            )
            wanted = [record_keys[at] for at in asked]
            for at, result in zip(asked, gets(self._site, table, [row_key(*one) for one in wanted], look), strict=True):
                if result is not None:
                    rows[at], lower[at] = visible(result, epoch.aborted), below(result, epoch.aborted)
            self._recent.keep_read(table, wanted, [(epoch.epoch, *lower[at], rows[at]) for at in asked], epoch)
        before = pa.array(rows, pa.binary())
        return StoredVersions(keys, partitions, before, np.zeros(len(keys), bool), before, lower)

    def scan_prefixes(
        self, partition: int, table: int, prefixes: Sequence[bytes], epoch: Inflight, *, rows_max: int | None = None
    ) -> Iterator[pa.RecordBatch]:
        until = epoch.epoch - 1
        for start, group in _apart(prefixes):
            short = [prefix for prefix in group if len(prefix) <= KEY_BYTES_MAX]
            spans = [span_of(partition, prefix, after_prefix(prefix)) for prefix in short]
            if not spans:
                continue
            ranges = ranges_filter(spans) if len(spans) > 1 else None
            look = VersionRange(times(self._anew(epoch), until), versions_needed(until, epoch.aborted), ranges)
            for page in pages(self._site, table, (spans[0][0], spans[-1][1]), look):
                found = [(result.row[1:], visible(result, epoch.aborted)) for result in page]
                there = [
                    (start + bisect_right(group, key) - 1, key, row) for key, row in found if row is not None
                ]  # a prefix is not greater than its keys, and the next one is
                for part in in_batches(there, rows_max or len(there) or 1):
                    yield _batch(("prefix", "key", "row"), part)

    def scan_versions(
        self,
        partition: int,
        table: int,
        epoch: int,
        aborted: tuple[int, ...],
        low: bytes = b"",
        high: bytes | None = None,
    ) -> Iterator[pa.RecordBatch]:
        span = _after(partition, low, high)
        for page in pages(self._site, table, span, VersionRange(self._times(epoch), versions_needed(epoch, aborted))):
            found = [(result.row[1:], visible(result, aborted)) for result in page]
            yield _batch(("key", "row"), [pair for pair in found if pair[1] is not None])

    def record_borders(
        self, table: int, part: int, after: bytes, *, rows_max: int, bytes_max: int, pieces: int
    ) -> SplitPoints:
        found = pages(self._site, table, _after(part, after, None), VersionRange(self._times(EPOCH_MAX)))
        lists = ([(result.row[1:], visible(result, ()) or b"") for result in page] for page in found)
        return find_split_points(lists, after, rows_max=rows_max, bytes_max=bytes_max, pieces=pieces)

    # writes

    def write_versions(self, writes: Sequence[VersionWrite], epoch: Inflight) -> None:
        validate = self._validated(epoch.epoch)
        if self._catalog[0] != (version := validate()):
            self._catalog = (version, Catalog.from_json(self.read_catalog()))
        catalog = self._catalog[1]
        ready = [self._mutations(write, epoch, catalog) for write in writes if len(write.chosen)]
        journal = [entry for one in ready for entry in one.entries]
        if journal:
            self._site.tables.name_of(JOURNAL) or self._site.tables.make(JOURNAL, shows=False)
            self._put(JOURNAL, Puts.of_rows(epoch.epoch, journal), validate)
        for one in ready:
            self._recent.tell(one.table, {partition for partition, _ in one.places}, epoch)
            if len(one.puts) and self._put(one.table, one.puts, validate):
                self._recent.keep(one.table, one.places, one.written, epoch)
            else:
                self._recent.forget(one.table)
            batches = in_batches(one.deletes, BATCH_RECORDS)
            self._site.ask_each(
                one.table, "deleteMultiple", batches, make=lambda batch: [delete_of(*facts) for facts in batch]
            )

    def _validated(self, epoch: int) -> Callable[[], int]:
        """A function that VALIDATEs if the last time was T ago or more, and returns the catalog's version."""
        seen, version, lock = -PUT_SECONDS, 0, threading.Lock()

        def validate() -> int:
            nonlocal seen, version
            with lock:  # others may not put while one is asking: the answer may be no
                while (now := time.monotonic()) >= seen + PUT_SECONDS:
                    version = self.validate(epoch)
                    seen = now
                return version

        return validate

    def _mutations(self, write: VersionWrite, epoch: Inflight, catalog: Catalog) -> _Mutations:
        """The mutations of a write; none for a dropped table."""
        table, tables, chosen = write.table, self._site.tables, pa.array(write.chosen)
        shown = shown_of(catalog, table)
        name = tables.name_of(table) or tables.make(table, shows=shown is not None)
        if name is None:
            return _Mutations(table, [], Puts.of_rows(epoch.epoch, []), [], [], [])
        keys, images, partitions = write.found.keys.take(chosen), write.rows, write.found.partitions[write.chosen]
        _require_room(table, keys, images)
        newest, there = np.array(write.found.raw, np.int64).reshape(-1, 2)[write.chosen].T
        is_gone = np.asarray(images.is_null())
        is_listed, is_deleted, older = _older(newest, there, is_gone, epoch.floor, is_indexed=table in epoch.indexed)
        rows, record_keys = with_first(partitions, keys), list(zip(partitions.tolist(), keys.to_pylist(), strict=True))
        values = pc.if_else(pa.array(is_gone), GONE_VALUE, with_first(1 + older, images.fill_null(b"")))
        texts = shown.texts(keys, images) if shown is not None and is_shown(name) else ()
        entries = [
            JournalEntry(
                record_keys[at][0], GONE if is_gone[at] else WRITTEN, epoch.epoch, table, record_keys[at][1]
            ).row
            for at in np.flatnonzero(is_listed)
        ]
        ends = (newest[is_deleted] - 1).tolist()
        deletes = list(zip(rows.filter(pa.array(is_deleted)).to_pylist(), ends, strict=True))
        written = list(zip(repeat(epoch.epoch), repeat(epoch.epoch), older.tolist(), images.to_pylist(), strict=False))
        return _Mutations(table, record_keys, Puts(epoch.epoch, rows, values, texts), written, deletes, entries)

    def _put(self, table: int, puts: Puts, validate: Callable[[], object]) -> bool:
        """Put versions; whether there is a table for them."""
        return _NO_TABLE not in self._site.ask_each(
            table, "putMultiple", puts.batches(), absent=_NO_TABLE, before=validate
        )

    # the end of versions

    def purge(self, record: EpochRecord, *, records_max: int) -> int:
        """Deletes what the journal lists up to the floor; tombstones wait until no older put is under way."""
        upto = {WRITTEN: record.floor, GONE: min(record.floor, self._settled(record.last) - 1)}
        kinds = {kind: (self._journal_from[kind], last) for kind, last in upto.items()}
        most = max(2, records_max)
        found = next(journal_entries(self._site, kinds, first=most), [])
        by_table: dict[int, list[Any]] = {}
        for entry in found:
            if entry.epoch not in record.aborted:
                last = entry.epoch if entry.kind == GONE else entry.epoch - 1
                by_table.setdefault(entry.table, []).append(delete_of(row_key(entry.partition, entry.key), last))
        for table, deletes in by_table.items():
            self._site.ask(table, "deleteMultiple", deletes, absent=[])
        if found:
            self._site.ask(JOURNAL, "deleteMultiple", [delete_of(entry.row, entry.epoch) for entry in found])
        if len(found) < most:
            self._journal_from = {kind: max(self._journal_from[kind], last + 1) for kind, last in upto.items()}
        return len(found)

    def _settled(self, last: int) -> int:
        """An epoch that began at least T + R ago: no put of an earlier one is under way. `last` has begun."""
        now, address = time.monotonic(), self._site.address
        self._seen.setdefault(last, now)
        until = now - PUT_SECONDS - address.timeout_seconds - address.late_seconds
        settled = max((last for last, seen in self._seen.items() if seen <= until), default=0)
        self._seen = {last: seen for last, seen in self._seen.items() if last >= settled}
        return settled

    def distrust(self, tables: Sequence[int]) -> None:
        last = self.read_epoch_record().last
        for table in tables:
            self._recent.invalidate(table, range(self.partitions), last)

    def drop(self, table: int) -> None:
        self._site.tables.drop(table)
        self._recent.forget(table)

    def _times(self, until: int) -> Any:
        self._site.tables.look()  # this process may have looked before views started anew
        return times(self._site.tables.anew, until)

    def _anew(self, epoch: Inflight) -> int:
        """The epoch with which views last started anew."""
        return max(epoch.anew, self._site.tables.anew)


def _after(partition: int, low: bytes, high: bytes | None) -> tuple[bytes, bytes]:
    """The row keys low < key <= high; b"" is below all keys."""
    return span_of(partition, low + b"\x00" if low else low, None if high is None else high + b"\x00")


def _apart(prefixes: Sequence[bytes]) -> Iterator[tuple[int, list[bytes]]]:
    """Runs of ascending prefixes, none of which begins another, with where each begins: a scan meets them in order."""
    start = 0
    for end, prefix in enumerate(prefixes[1:], 1):
        is_beyond = prefix > prefixes[end - 1] and not prefix.startswith(prefixes[end - 1])
        if not is_beyond or end - start == _PREFIXES_MAX:
            yield start, list(prefixes[start:end])
            start = end
    if prefixes:
        yield start, list(prefixes[start:])


def _batch(names: Sequence[str], rows: Sequence[tuple]) -> pa.RecordBatch:
    columns = list(zip(*rows, strict=True)) or [()] * len(names)
    arrays = [
        pa.array(column, pa.int32() if name == "prefix" else pa.binary())
        for name, column in zip(names, columns, strict=True)
    ]
    return pa.record_batch(arrays, names=list(names))


def _older(
    newest: np.ndarray, there: np.ndarray, is_gone: np.ndarray, floor: int, *, is_indexed: bool
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Which of the new versions are listed in the journal; below which older ones are deleted now; how many stay below."""
    is_many = (newest == 0) | (there >= OLDER_MAX)
    is_seen = (newest > 0) & (newest <= floor)  # by every reader, or a newer one is
    is_listed = is_gone | is_indexed | (is_many & ~is_seen)
    is_deleted = is_many & ~is_listed
    older = np.select([is_gone, is_listed, is_deleted, newest > 0], [OLDER_MAX, 0, 1, there + 1], 0)
    return is_listed, is_deleted, older


def _require_room(table: int, keys: pa.Array, images: pa.Array) -> None:
    """Raise where HBase would refuse a record: the view stops, others go on."""
    longest, largest = (pc.max(pc.binary_length(array)).as_py() or 0 for array in (keys, images))
    if longest > KEY_BYTES_MAX:
        raise ViewFailed(table, f"a key of {longest:,} bytes is more than the {KEY_BYTES_MAX:,} that HBase takes")
    if largest > ROW_BYTES_MAX:
        raise ViewFailed(table, f"a row of {largest:,} bytes is more than the {ROW_BYTES_MAX:,} that HBase takes")
