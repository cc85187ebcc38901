"""Measuring: the tables of a store as view programs use them, with counts of what they ask for.

In: a store. Out: its answers, and the work by table. Always: the store is asked the same as without it; counted by the
call, never by the row.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from viewkeeper.model.counts import Counts, Size, Work
from viewkeeper.model.epochs import Inflight
from viewkeeper.model.ragged import Ragged
from viewkeeper.ports.records import StoredVersions, VersionedTables, VersionWrite


class MeasuredTables:
    """The part of `VersionedTables` that view programs use."""

    def __init__(self, store: VersionedTables) -> None:
        self._store = store
        self.partitions = store.partitions
        self._found: dict[int, dict[str, int]] = {}
        self._grown: dict[int, Size] = {}
        self._get_seconds = self._put_seconds = 0.0

    def read_versions(self, table: int, keys: pa.Array, partitions: np.ndarray, epoch: Inflight) -> StoredVersions:
        started = time.thread_time()
        found = self._store.read_versions(table, keys, partitions, epoch)
        self._get_seconds += time.thread_time() - started
        self._add(table, gets=len(keys))
        return found

    def scan_prefixes(
        self, partition: int, table: int, prefixes: Sequence[bytes], epoch: Inflight, *, rows_max: int | None = None
    ) -> Iterator[pa.RecordBatch]:
        started = time.thread_time()
        for batch in self._store.scan_prefixes(partition, table, prefixes, epoch, rows_max=rows_max):
            self._get_seconds += time.thread_time() - started
            self._add(table, scanned=len(batch))
            yield batch
            started = time.thread_time()
        self._get_seconds += time.thread_time() - started

    def has_records(self, partition: int, table: int) -> bool:
        return self._store.has_records(partition, table)

    def write_versions(self, writes: Sequence[VersionWrite], epoch: Inflight) -> None:
        for write in writes:
            gone = write.rows.null_count
            self._add(write.table, puts=len(write.rows) - gone, deletes=gone, bytes=_bytes(write))
        started = time.thread_time()
        self._store.write_versions(writes, epoch)
        self._put_seconds += time.thread_time() - started

    def add_change(self, table: int, keys: pa.Array, before: pa.Array, after: pa.Array) -> None:
        """How rows under these keys, as of the epoch before, become those of this epoch; NULL: there is no record."""
        grown = self._grown.get(table, Size())
        self._grown[table] = grown.plus(size_of(keys, after)).plus(_negative(size_of(keys, before)))

    def add_input(self, table: int, rows: int) -> None:
        """Rows that reached the node whose own table this is."""
        self._add(table, inputs=rows)

    @property
    def counts(self) -> Counts:
        tables = {
            table: Work(**self._found.get(table, {}), grown=self._grown.get(table, Size()))
            for table in self._found.keys() | self._grown.keys()
        }
        return Counts(get_seconds=self._get_seconds, put_seconds=self._put_seconds, tables=tables)

    def _add(self, table: int, **counts: int) -> None:
        found = self._found.setdefault(table, {})
        for name, count in counts.items():
            found[name] = found.get(name, 0) + count


def size_of(keys: pa.Array, rows: pa.Array) -> Size:
    """The records that are there, and the bytes of their keys and rows."""
    there = len(rows) - rows.null_count
    if not there:
        return Size()
    keys = keys if there == len(rows) else keys.filter(rows.is_valid())
    return Size(there, sum(pc.sum(pc.binary_length(part)).as_py() for part in (keys, rows)))


def _negative(size: Size) -> Size:
    return Size(-size.records, -size.bytes)


def _bytes(write: VersionWrite) -> int:
    """The bytes of the keys and rows that are written."""
    if not len(write.chosen):
        return 0
    keys, rows = Ragged.from_arrow(write.found.keys), Ragged.from_arrow(write.rows)
    return int(keys.lengths[write.chosen].sum() + rows.lengths.sum())
