"""Apply: the only way a view program writes records (`docs/epochs.md`, section 1).

In: for one manager and one epoch, keys and their new rows. Out: versions in the store, one transaction for each
partition; counts of the store's work, by table. Always: a program computes from the version below the epoch, also where
an earlier run of the epoch wrote the record; what it wrote must be exactly the computed row, because a view program is a
function of its inputs (R6, R7). Work is counted by the call, never by the row.
"""

from __future__ import annotations

import time
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from viewkeeper.errors import InvariantBroken
from viewkeeper.failpoints import failpoint
from viewkeeper.model.epochs import Inflight
from viewkeeper.model.rowbatches import decode_rows, encode_rows
from viewkeeper.model.schema import Column
from viewkeeper.model.types import BIGINT
from viewkeeper.model.varbinary import VarBinary
from viewkeeper.model.work_stats import Counts, Size, Work
from viewkeeper.ports.records import StoredVersions, VersionedTables, VersionWrite
from viewkeeper.settings import WorkSettings


class MeasuredTables:
    """The part of `VersionedTables` that view programs use; counts the work by table."""

    def __init__(self, store: VersionedTables) -> None:
        self._store = store
        self.partitions = store.partitions
        self._found: defaultdict[int, Counter[str]] = defaultdict(Counter)
        self._grown: defaultdict[int, Size] = defaultdict(Size)
        self._get_seconds = self._put_seconds = 0.0

    def read_versions(self, table: int, keys: pa.Array, partitions: np.ndarray, epoch: Inflight) -> StoredVersions:
        started = time.thread_time()
        found = self._store.read_versions(table, keys, partitions, epoch)
        self._get_seconds += time.thread_time() - started
        self._found[table].update(gets=len(keys))
        return found

    def scan_prefixes(
        self, partition: int, table: int, prefixes: Sequence[bytes], epoch: Inflight, *, rows_max: int | None = None
    ) -> Iterator[pa.RecordBatch]:
        started = time.thread_time()
        for batch in self._store.scan_prefixes(partition, table, prefixes, epoch, rows_max=rows_max):
            self._get_seconds += time.thread_time() - started
            self._found[table].update(scanned=len(batch))
            yield batch
            started = time.thread_time()
        self._get_seconds += time.thread_time() - started

    def write_versions(self, writes: Sequence[VersionWrite], epoch: Inflight) -> None:
        for write in writes:
            gone = write.rows.null_count
            self._found[write.table].update(puts=len(write.rows) - gone, deletes=gone, bytes=_bytes(write))
        started = time.thread_time()
        self._store.write_versions(writes, epoch)
        self._put_seconds += time.thread_time() - started

    def add_change(self, table: int, keys: pa.Array, before: pa.Array, after: pa.Array) -> None:
        """Count how rows under these keys changed in size from the epoch before to this one; NULL: there is no record."""
        was, now = size_of(keys, before), size_of(keys, after)
        self._grown[table] = self._grown[table].plus(Size(now.records - was.records, now.bytes - was.bytes))

    def add_input(self, table: int, rows: int) -> None:
        """Count rows that reached the node whose own table this is."""
        self._found[table].update(inputs=rows)

    @property
    def counts(self) -> Counts:
        known = self._found.keys() | self._grown.keys()
        tables = {table: Work(**self._found[table], grown=self._grown[table]) for table in known}
        return Counts(get_seconds=self._get_seconds, put_seconds=self._put_seconds, tables=tables)


def size_of(keys: pa.Array, rows: pa.Array) -> Size:
    """The records that are there, and the bytes of their keys and rows."""
    there = len(rows) - rows.null_count
    if not there:
        return Size()
    keys = keys if there == len(rows) else keys.filter(rows.is_valid())
    return Size(there, sum(pc.sum(pc.binary_length(part)).as_py() for part in (keys, rows)))


def _bytes(write: VersionWrite) -> int:
    if not len(write.chosen):
        return 0
    keys, rows = VarBinary.from_arrow(write.found.keys), VarBinary.from_arrow(write.rows)
    return int(keys.lengths[write.chosen].sum() + rows.lengths.sum())


COUNT = (Column("n", BIGINT, nullable=False),)


@dataclass(frozen=True, slots=True)
class FoundRecords:
    """Records of one table: `input` in the order of partitions, and what is stored under its keys."""

    table: int
    input: pa.Table
    versions: StoredVersions

    @property
    def rows(self) -> pa.Array:
        """The records' rows as of the epoch before."""
        return self.versions.rows


@dataclass(frozen=True, slots=True)
class AppliedChanges:
    found: FoundRecords
    before: pa.Array
    after: pa.Array

    def table(self) -> tuple[pa.Table, np.ndarray]:
        """Those that differ, as (position, key, before, after), and their partitions."""
        changed = np.flatnonzero(differs(self.before, self.after))
        columns = {"key": self.found.input["key"].combine_chunks(), "before": self.before, "after": self.after}
        taken = {name: column.take(pa.array(changed)) for name, column in columns.items()}
        positions = pa.array(np.arange(len(changed)))
        return pa.table({"position": positions} | taken), np.asarray(self.found.versions.partitions)[changed]


class Applier:
    """One manager's share of an epoch: reads at once, writes all at the end."""

    def __init__(self, store: VersionedTables, owned: Sequence[bool], epoch: Inflight, settings: WorkSettings) -> None:
        failpoint("apply.start")
        self.store = MeasuredTables(store)
        self.epoch, self.settings = epoch, settings
        self._owned = np.asarray(owned)  # of all shards, those of the manager (`coordinator.view_managers`)
        self._writes: list[VersionWrite] = []

    def find(self, table: int, keyed: pa.Table) -> FoundRecords:
        """The records under the keys of `keyed` (columns `key`, distinct, and `hash`)."""
        hashes = np.asarray(keyed["hash"])
        partitions = (hashes % self.store.partitions).astype(np.int64)
        if not self._owned[hashes % len(self._owned)].all():
            raise InvariantBroken(f"a record of table {table} reached a manager that does not own it")
        if (np.diff(partitions) < 0).any():
            order = np.argsort(partitions, kind="stable")
            keyed, partitions = keyed.take(pa.array(order)), partitions[order]
        input_ = keyed.combine_chunks()
        versions = self.store.read_versions(table, input_["key"].combine_chunks(), partitions, self.epoch)
        failpoint("apply.read")
        return FoundRecords(table, input_, versions)

    def put(self, found: FoundRecords, rows: pa.Array) -> AppliedChanges:
        """Set the rows of the found records (NULL: delete); returns the changes."""
        table, versions = found.table, found.versions
        again = pa.array(np.flatnonzero(versions.applied))
        if len(again) and differs(versions.now.take(again), rows.take(again)).any():
            epoch = self.epoch.epoch
            raise InvariantBroken(f"epoch {epoch} computed another row for table {table} than it wrote before")
        chosen = np.flatnonzero(differs(versions.rows, rows) & ~versions.applied)
        written = rows if len(chosen) == len(rows) else rows.take(pa.array(chosen))
        self._writes.append(VersionWrite(table, versions, chosen, written))
        self.store.add_change(table, versions.keys, versions.rows, rows)
        return AppliedChanges(found, versions.rows, rows)

    def put_events(self, table: int, events: pa.Table) -> AppliedChanges:
        """Set the records of `events`, one for each, to the given states; returns the changes."""
        found = self.find(table, events)
        return self.put(found, found.input["row"].combine_chunks())

    def add_counts(self, found: FoundRecords, change: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Add to records that hold a count, and delete those that reach 0; returns the counts before and after."""
        old = np.asarray(decode_rows(COUNT, found.rows)[0].fill_null(0))
        new = old + change
        if (new < 0).any():
            raise InvariantBroken(f"a count in table {found.table} would be {new.min()}")
        self.put(found, rows_where(new > 0, encode_rows(COUNT, [pa.array(new)], len(new))))
        return old, new

    def write(self) -> None:
        failpoint("apply.computed")
        self.store.write_versions(self._writes, self.epoch)
        failpoint("apply.written")


def differs(left: pa.Array, right: pa.Array) -> np.ndarray:
    """Where two arrays of row bytes differ; NULL equals NULL."""
    same = np.asarray(pc.fill_null(pc.equal(left, right), False))
    if left.null_count and right.null_count:
        same |= np.asarray(left.is_null()) & np.asarray(right.is_null())
    return ~same


def rows_where(chosen: np.ndarray, rows: pa.Array) -> pa.Array:
    """The rows that are chosen, NULL in place of the others."""
    return rows if chosen.all() else pc.if_else(pa.array(chosen), rows, pa.scalar(None, rows.type))
