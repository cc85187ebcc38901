"""A partition: one of the store's kernels of view records, owned by one view manager at a time; snapshots of all of them.

In: keys and chains of records. Out: the same, ordered. Always: every write tests, in its own transaction, that the
partition's fence is at the writer's epoch (R1a). Tombstones are indexed by epoch, so that they are purged without a scan;
so are the writes of an indexed epoch. A pair of an index is under its epoch and the first of its keys; its value is the
key, or, for many, begins with a mark that no key begins with: it is no table's id.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack
from itertools import islice, takewhile
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from viewkeeper.errors import Fenced, InputError
from viewkeeper.failpoints import failpoint
from viewkeeper.model.epochs import Inflight
from viewkeeper.model.keys import after_prefix
from viewkeeper.model.varbinary import VarBinary
from viewkeeper.ports.records import StoredVersions, VersionWrite
from viewkeeper.stores import version_chains
from viewkeeper.stores.kv.kernel import (
    FIRST_PAIRS,
    LIST_BYTES,
    TABLE_BYTES,
    Kernel,
    OrderedMap,
    Pair,
    range_after,
    scan_table,
    table_prefix,
    weigh,
)
from viewkeeper.stores.version_chains import Written

if TYPE_CHECKING:
    from viewkeeper.stores.local.node import Node

_EPOCH = struct.Struct(">Q")
_MARK = b"\xff\xff\xff\xff"
_PACKED_KEYS_MAX = 1_000  # a purge of them is one step
_KEY_BYTES_MAX = 500  # of a key that is indexed as it is


def epoch_of(entry: bytes) -> int:
    return _EPOCH.unpack_from(entry)[0]


def index_entries(epoch: int, keys: Sequence[bytes]) -> list[bytes]:
    """Where the index has each key; one that is too long for a key of the index is indexed by a digest."""
    head = _EPOCH.pack(epoch)
    return [head + (key if len(key) < _KEY_BYTES_MAX else _digest(key)) for key in keys]


def packed_pairs(epoch: int, keys: Sequence[bytes]) -> Iterator[tuple[bytes, bytes]]:
    """A pair for many keys."""
    for start in range(0, len(keys), _PACKED_KEYS_MAX):
        packed = keys[start : start + _PACKED_KEYS_MAX]
        (entry,), value = index_entries(epoch, packed[:1]), packed[0]
        if len(packed) > 1:
            sizes = struct.pack(f">{len(packed) + 1}I", len(packed), *map(len, packed))
            value = b"".join((_MARK, sizes, *packed))
        yield entry, value


def keys_of(value: bytes) -> list[bytes]:
    """The keys of a pair."""
    if not value.startswith(_MARK):
        return [value]
    (count,) = struct.unpack_from(">I", value, len(_MARK))
    sizes = struct.unpack_from(f">{count}I", value, len(_MARK) + 4)
    keys, at = [], len(_MARK) + 4 + 4 * count
    for size in sizes:
        keys.append(value[at : at + size])
        at += size
    return keys


def _digest(key: bytes) -> bytes:
    return key[: _KEY_BYTES_MAX - 40] + hashlib.blake2b(key, digest_size=32).digest()


_FENCE = b"fence"
_DROPPED = b"dropped-"  # and a table: the fence when its records were removed
_PURGE_BATCH = 20_000
_DROP_BATCH = 10_000
_SCAN_RECORDS = 50_000
_SCAN_PAIRS = 4_096  # read at once
_WEIGHED_PAIRS = 64


class Partition:
    """`handle` returns its kernel, opened at first use."""

    def __init__(self, handle: Callable[[], Kernel]) -> None:
        self._handle = handle

    @property
    def kernel(self) -> Kernel:
        return self._handle()

    def get(self, table: int, key: bytes) -> bytes | None:
        """The chain of one record."""
        with self.kernel.read("records") as records:
            return records.get(table_prefix(table) + key)

    def read(self, table: int, keys: Sequence[bytes]) -> list[bytes | None]:
        """The chains of records."""
        prefix = table_prefix(table)
        with self.kernel.read("records") as records:
            return records.get_many([prefix + key for key in keys])

    def held(self) -> AbstractContextManager[OrderedMap]:
        """All records as they are now, for as long as a scan takes."""
        return self.kernel.held("records")

    def scan_prefixes(
        self, table: int, prefixes: Sequence[bytes], epoch: Inflight, *, rows_max: int | None
    ) -> Iterator[pa.RecordBatch]:
        size = _SCAN_RECORDS if rows_max is None else min(rows_max, _SCAN_RECORDS)
        head, at_once = table_prefix(table), min(size, _SCAN_PAIRS)
        found: list[tuple[bytes, bytes]] = []
        counts: list[tuple[int, int]] = []
        weighed, room = 0, LIST_BYTES
        with self.kernel.read("records") as records:
            for number, prefix in enumerate(prefixes if _has_records(records, table) else ()):
                start = head + prefix
                for pairs in records.lists(start, after_prefix(start), size=at_once, first=min(FIRST_PAIRS, at_once)):
                    if found and (len(found) + len(pairs) > size or room <= 0):
                        yield _entries_before(found, counts, epoch)
                        found, counts, weighed, room = [], [], 0, LIST_BYTES
                    found += pairs
                    counts.append((number, len(pairs)))
                    if len(found) - weighed >= _WEIGHED_PAIRS:
                        weighed, room = len(found), room - weigh(found[weighed:])
        if found:
            yield _entries_before(found, counts, epoch)

    def scan_versions(
        self, table: int, low: bytes, high: bytes | None, epoch: int, aborted: tuple[int, ...]
    ) -> Iterator[pa.RecordBatch]:
        """Records with low < key <= high as of `epoch`, as batches of (key, row)."""
        with self.kernel.read("records") as records:
            for part in records.lists(*range_after(table_prefix(table), low, high), size=_SCAN_RECORDS):
                keys = pa.array([key[TABLE_BYTES:] for key, _ in part], pa.binary())
                rows = version_chains.rows_at(pa.array([chain for _, chain in part], pa.binary()), epoch, aborted)
                there = rows.is_valid()
                yield pa.record_batch([keys.filter(there), rows.filter(there)], names=["key", "row"])

    def has_records(self, table: int) -> bool:
        with self.kernel.read("records") as records:
            return _has_records(records, table)

    def write(self, written: Sequence[Written], epoch: Inflight) -> None:
        """Store chains in one transaction, under the fence; those of a dropped table are ignored."""
        with self.kernel.write("records") as records:
            self._require_fence(records, epoch.epoch)
            failpoint("partition.write.fenced")
            for part in written:
                if self.is_dropped(records, part.table):
                    continue
                prefix = table_prefix(part.table)
                stored = [prefix + key for key in part.keys]
                records.put_many(stored, part.chains)
                if part.tombstones:
                    gone = [prefix + key for key in part.tombstones]
                    records.of("tombstones").put_many(*zip(*packed_pairs(epoch.epoch, gone), strict=True))
                if part.is_indexed:
                    records.of("written").put_many(index_entries(epoch.epoch, stored), stored)
            failpoint("partition.write.before_commit")
        failpoint("partition.write.committed")

    def is_dropped(self, some_map: OrderedMap, table: int) -> bool:
        """Whether the table's records were removed: what is written to it is ignored."""
        return some_map.of("info").get(_DROPPED + table_prefix(table)) is not None

    def written_between(self, records: OrderedMap, table: int, since: int, epoch: int) -> list[tuple[bytes, bytes]]:
        """(key, chain) of the records that the epochs after `since` up to `epoch` wrote, in no order."""
        prefix, stored, at = table_prefix(table), dict[bytes, None](), since + 1
        index = records.of("written")
        while at <= epoch:
            head, later = _EPOCH.pack(at) + prefix, None
            for entry, key in index.walk(head):
                if not entry.startswith(head):
                    later = epoch_of(entry)
                    break
                stored[key] = None
            if later is None:
                break
            at = max(at + 1, later)  # epochs that wrote nothing here are skipped
        pairs = zip(stored, records.get_many(list(stored)), strict=True)
        return [(key[TABLE_BYTES:], chain) for key, chain in pairs if chain is not None]

    def admit(self, epoch: Inflight) -> None:
        """Raise the fence to an epoch; purge what its floor has passed, and what is older than a rebuild of all views."""
        with self.kernel.write("info") as info:
            fence = _fence_in(info)
            if fence < epoch.anew:
                for name in ("records", "tombstones", "written"):
                    info.of(name).clear()
            if fence < epoch.epoch:
                info.put(_FENCE, _EPOCH.pack(epoch.epoch))
                # no epoch from this one on was planned with tables that were dropped before the epoch before it
                dropped = takewhile(lambda pair: pair[0].startswith(_DROPPED), info.walk(_DROPPED))
                info.delete_many([key for key, fence in dropped if _EPOCH.unpack(fence)[0] + 1 < epoch.epoch])
            indexes = [info.of(name) for name in ("tombstones", "written")]
            has_passed = any(
                epoch_of(entry) <= epoch.floor for index in indexes for entry, _ in islice(index.walk(b""), 1)
            )
        failpoint("partition.fence.raised")
        if has_passed:
            self._purge(epoch)

    def _purge(self, epoch: Inflight) -> None:
        """Delete records whose tombstone the floor has passed; a record written again since is left alone."""
        for name in ("written", "tombstones"):
            is_over = False
            while not is_over:
                with self.kernel.write("records") as records:
                    self._require_fence(records, epoch.epoch)
                    is_over = _purge_some(records, records.of(name), epoch, with_records=name == "tombstones")
                    failpoint("partition.purge.before_commit")
                failpoint("partition.purge.committed")

    def fence(self) -> int:
        with self.kernel.read("info") as info:
            return _fence_in(info)

    def _require_fence(self, some_map: OrderedMap, epoch: int) -> None:
        if (fence := _fence_in(some_map)) != epoch:
            raise Fenced(
                f"epoch {epoch} cannot write: epoch {fence} has started",
                "another pipeline owns this store; stop this one",
            )

    def drop(self, table: int) -> None:
        """Delete the records of a table, and let nobody write any."""
        prefix, gone = table_prefix(table), _DROP_BATCH
        while gone == _DROP_BATCH:
            with self.kernel.write("records") as records:
                info = records.of("info")
                info.put(_DROPPED + prefix, info.get(_FENCE) or bytes(8))
                gone = records.drop(prefix, limit=_DROP_BATCH)


class LocalSnapshot:
    """The records of partitions, or the rows of nodes, as of one moment: a read transaction on each, until `close`."""

    def __init__(self, parts: Sequence[tuple[int, Partition | Node]]) -> None:
        self._parts = dict(parts)
        self._ends = ExitStack()
        self._maps = {number: self._ends.enter_context(part.held()) for number, part in parts}
        self._translated = parts[0][1].kernel.translated  # which of several parts is damaged is not known here

    def map_of(self, number: int) -> OrderedMap:
        if number not in self._maps:
            raise InputError("the snapshot is closed", "open another one")
        return self._maps[number]

    def get(self, partition: int, table: int, key: bytes) -> bytes | None:
        """The chain of one record."""
        with self._translated():
            return self.map_of(partition).get(table_prefix(table) + key)

    def scan(
        self, partitions: Sequence[int], table: int, start: bytes, stop: bytes | None, *, reverse: bool = False
    ) -> Iterator[Pair]:
        """(key, chain) pairs with start <= key < stop, in key order across `partitions`."""
        maps = [self.map_of(partition) for partition in partitions]
        with self._translated():
            yield from scan_table(maps, table, start, stop, reverse=reverse)

    def scan_all(self, table: int, start: bytes, stop: bytes | None, *, reverse: bool = False) -> Iterator[Pair]:
        """`scan` over all that is held."""
        return self.scan(tuple(self._maps), table, start, stop, reverse=reverse)

    def written_between(self, partitions: Sequence[int], table: int, since: int, epoch: int) -> list[Pair]:
        """(key, chain) of a view's records that the epochs after `since` up to `epoch` wrote, in key order."""
        found: list[Pair] = []
        with self._translated():
            for number in partitions:
                partition = self._parts[number]
                if isinstance(partition, Partition):
                    found += partition.written_between(self.map_of(number), table, since, epoch)
        return sorted(found)

    def close(self) -> None:
        self._maps = {}
        self._ends.close()


def read_versions(
    partition: Callable[[int], Partition], table: int, keys: pa.Array, partitions: np.ndarray, epoch: Inflight
) -> StoredVersions:
    """Records of distinct keys, given in the order of their partitions."""
    runs = list(version_chains.runs(partitions))
    if not any(partition(number).has_records(table) for number, _, _ in runs):  # first fill
        none = pa.nulls(len(keys), pa.binary())
        return StoredVersions(keys, partitions, none, np.zeros(len(keys), bool), none, none)
    wanted, found = keys.to_pylist(), list[bytes | None]()
    for number, start, stop in runs:
        found += partition(number).read(table, wanted[start:stop])
    chains = pa.array(found, pa.binary())
    rows, applied, now = version_chains.rows_before(chains, epoch.epoch, epoch.aborted)
    return StoredVersions(keys, partitions, rows, applied, now, chains)


def write_versions(partition: Callable[[int], Partition], writes: Sequence[VersionWrite], epoch: Inflight) -> None:
    """Store version `epoch` of records, one transaction for each partition."""
    by_partition: dict[int, list[Written]] = {}
    for write in writes:
        for number, written in version_chains.prepare(write, epoch):
            by_partition.setdefault(number, []).append(written)
    for number in sorted(by_partition):
        partition(number).write(by_partition[number], epoch)


def _has_records(records: OrderedMap, table: int) -> bool:
    prefix = table_prefix(table)
    return any(records.lists(prefix, after_prefix(prefix), size=1))


def _fence_in(some_map: OrderedMap) -> int:
    return _EPOCH.unpack(some_map.of("info").get(_FENCE) or bytes(8))[0]


def _purge_some(records: OrderedMap, index: OrderedMap, epoch: Inflight, *, with_records: bool) -> bool:
    """Delete pairs of an index by epoch that the floor has passed, and the dead records they name; whether all went."""
    entries: list[bytes] = []
    keys: list[bytes] = []
    is_over = True
    for entry, value in index.walk(b""):
        if epoch_of(entry) > epoch.floor:
            break
        if len(keys) >= _PURGE_BATCH:
            is_over = False
            break
        entries.append(entry)
        keys += keys_of(value)
    if with_records:  # few of them were written again since, so all go first, and those come back
        found = zip(keys, records.pop_many(keys), strict=True)
        floor, aborted = epoch.floor, epoch.aborted
        alive = {key: chain for key, chain in found if chain and not version_chains.is_dead(chain, floor, aborted)}
        records.put_many([*alive], [*alive.values()])
    index.delete_many(entries)
    return is_over


def _entries_before(pairs: list[tuple[bytes, bytes]], counts: list[tuple[int, int]], epoch: Inflight) -> pa.RecordBatch:
    """The stored pairs that existed before the epoch; `counts`: how many of them have which prefix."""
    stored, chains = (pa.array(column, pa.binary()) for column in zip(*pairs, strict=True))
    rows, _, _ = version_chains.rows_before(chains, epoch.epoch, epoch.aborted)
    numbers = np.repeat(*np.array(counts, np.int32).T)
    keys = VarBinary.from_arrow(stored).without_first(TABLE_BYTES).to_arrow()
    arrays = [pa.array(numbers), keys, rows]
    batch = pa.record_batch(arrays, names=["prefix", "key", "row"])
    return batch.filter(rows.is_valid()) if rows.null_count else batch
