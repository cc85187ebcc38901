"""A partition: one of the store's view environments, owned by one view manager at a time, with its index by epoch.

In: keys and chains of records. Out: the same, ordered. Always: every write tests, in its own transaction, that the
partition's fence is at the writer's epoch (R1a). Tombstones are indexed, so that they can be purged without a scan once
the floor has passed them; so are the writes of an indexed epoch, so that they can be found without one. A pair of an
index is under its epoch and the first of its keys. The value of one key is the key; that of many begins with a mark
that no key begins with, because it is no table's id.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager

import lmdb
import numpy as np
import pyarrow as pa

from viewkeeper.errors import Fenced
from viewkeeper.failpoints import failpoint
from viewkeeper.model.epochs import Inflight
from viewkeeper.model.positions import SplitPoints
from viewkeeper.model.varbinary import VarBinary
from viewkeeper.stores import version_chains
from viewkeeper.stores.embedded import tree
from viewkeeper.stores.embedded.lmdb_environment import Environment
from viewkeeper.stores.embedded.long_keys import LIMIT
from viewkeeper.stores.version_chains import Written

_INDEX_EPOCH = struct.Struct(">Q")
_MARK = b"\xff\xff\xff\xff"
_PACKED_KEYS_MAX = 1_000  # a purge of them is one step


def epoch_of(entry: bytes) -> int:
    return _INDEX_EPOCH.unpack_from(entry)[0]


def pairs_of_each(epoch: int, keys: Sequence[bytes]) -> Iterator[tuple[bytes, bytes]]:
    """A pair for each key; one that is too long for LMDB is indexed by a digest."""
    head = _INDEX_EPOCH.pack(epoch)
    return ((head + (key if len(key) < LIMIT else _digest(key)), key) for key in keys)


def packed_pairs(epoch: int, keys: Sequence[bytes]) -> Iterator[tuple[bytes, bytes]]:
    """A pair for many keys."""
    for start in range(0, len(keys), _PACKED_KEYS_MAX):
        packed = keys[start : start + _PACKED_KEYS_MAX]
        ((entry, value),) = pairs_of_each(epoch, packed[:1])
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
    return key[: LIMIT - 40] + hashlib.blake2b(key, digest_size=32).digest()


_FENCE = b"fence"
_DROPPED = b"dropped-"  # and a table: the fence when its records were removed
_EPOCH = struct.Struct(">Q")
_PURGE_BATCH = 20_000
_DROP_BATCH = 10_000
_SCAN_RECORDS = 50_000
_SCAN_PAIRS = 4_096  # read at once
_WEIGHED_PAIRS = 64


class Partition:
    """One view environment; `handle` returns it, opened at first use."""

    def __init__(self, handle: Callable[[], Environment]) -> None:
        self._handle = handle

    @property
    def environment(self) -> Environment:
        return self._handle()

    def read(self, table: int, keys: Sequence[bytes]) -> list[bytes | None]:
        """The chains of records."""
        prefix = tree.table_prefix(table)
        with self.environment.read("records") as transaction:
            return tree.get_many(transaction, [prefix + key for key in keys])

    def scan_prefixes(
        self, table: int, prefixes: Sequence[bytes], epoch: Inflight, *, rows_max: int | None
    ) -> Iterator[pa.RecordBatch]:
        size = _SCAN_RECORDS if rows_max is None else min(rows_max, _SCAN_RECORDS)
        head = tree.table_prefix(table)
        found: list[tuple[bytes, bytes]] = []
        counts: list[tuple[int, int]] = []
        weighed, room = 0, tree.LIST_BYTES
        with self.environment.read("records") as transaction:
            for number, prefix in enumerate(prefixes if _has_records(transaction, table) else ()):
                for pairs in tree.scan_prefix(transaction, head + prefix, size=min(size, _SCAN_PAIRS)):
                    if found and (len(found) + len(pairs) > size or room <= 0):
                        yield _entries_before(found, counts, epoch)
                        found, counts, weighed, room = [], [], 0, tree.LIST_BYTES
                    found += pairs
                    counts.append((number, len(pairs)))
                    if len(found) - weighed >= _WEIGHED_PAIRS:
                        weighed, room = len(found), room - tree.weigh(found[weighed:])
        if found:
            yield _entries_before(found, counts, epoch)

    def borders(self, table: int, after: bytes, *, rows_max: int, bytes_max: int, pieces: int) -> SplitPoints:
        """The next records after `after` in about equal pieces."""
        prefix = tree.table_prefix(table)
        with self.environment.read("records") as transaction:
            return tree.borders(transaction, prefix, after, rows_max=rows_max, bytes_max=bytes_max, pieces=pieces)

    def scan_versions(
        self, table: int, low: bytes, high: bytes | None, epoch: int, aborted: tuple[int, ...]
    ) -> Iterator[pa.RecordBatch]:
        """Records with low < key <= high as of `epoch`, as batches of (key, row)."""
        prefix = tree.table_prefix(table)
        with self.environment.read("records") as transaction:
            within = tree.range_after(prefix, low, high)
            for part in tree.scan_lists(transaction, *within, size=_SCAN_RECORDS):
                keys = pa.array([key[len(prefix) :] for key, _ in part], pa.binary())
                rows = version_chains.rows_at(pa.array([chain for _, chain in part], pa.binary()), epoch, aborted)
                there = rows.is_valid()
                yield pa.record_batch([keys.filter(there), rows.filter(there)], names=["key", "row"])

    def has_records(self, table: int) -> bool:
        with self.environment.read("records") as transaction:
            return _has_records(transaction, table)

    def write(self, written: Sequence[Written], epoch: Inflight) -> None:
        """Store chains in one transaction, under the fence; those of a dropped table are ignored."""
        environment = self.environment
        with environment.write("records") as transaction:
            info = environment.database("info")
            self._require_fence(transaction, info, epoch.epoch)
            failpoint("partition.write.fenced")
            tombstone_index, index = environment.database("tombstones"), environment.database("written")
            for part in written:
                prefix = tree.table_prefix(part.table)
                if transaction.get(_DROPPED + prefix, db=info) is not None:
                    continue
                stored = [prefix + key for key in part.keys]
                tree.put_many(transaction, stored, part.chains)
                if part.tombstones:
                    gone = [prefix + key for key in part.tombstones]
                    transaction.cursor(tombstone_index).putmulti(packed_pairs(epoch.epoch, gone))
                if part.is_indexed:
                    transaction.cursor(index).putmulti(pairs_of_each(epoch.epoch, stored))
            failpoint("partition.write.before_commit")
        failpoint("partition.write.committed")

    def _purge(self, epoch: Inflight) -> None:
        """Delete records whose tombstone the floor has passed; a record written again since is left alone."""
        environment = self.environment
        for database in ("written", "tombstones"):
            is_over = False
            while not is_over:
                with environment.write("records") as transaction:
                    self._require_fence(transaction, environment.database("info"), epoch.epoch)
                    index = transaction.cursor(environment.database(database))
                    is_over = _purge_some(transaction, index, epoch, with_records=database == "tombstones")
                    failpoint("partition.purge.before_commit")
                failpoint("partition.purge.committed")

    def written_between(
        self, transaction: lmdb.Transaction, table: int, since: int, epoch: int
    ) -> list[tuple[bytes, bytes]]:
        """(key, chain) of the records that the epochs after `since` up to `epoch` wrote, in no order."""
        prefix, stored, at = tree.table_prefix(table), dict[bytes, None](), since + 1
        cursor = transaction.cursor(self.environment.database("written"))
        while at <= epoch and cursor.set_range(_EPOCH.pack(at) + prefix):
            head = _EPOCH.pack(at) + prefix
            for entry, key in cursor.iternext():
                if not entry.startswith(head):
                    break
                stored[key] = None
            else:
                break
            at = max(at + 1, _EPOCH.unpack_from(cursor.key())[0])  # epochs that wrote nothing here are skipped
        pairs = zip(stored, tree.get_many(transaction, list(stored)), strict=True)
        return [(key[len(prefix) :], chain) for key, chain in pairs if chain is not None]

    def admit(self, epoch: Inflight) -> None:
        """Raise the fence to an epoch; purge what its floor has passed, before its first read here.

        Where views start anew, all records of the epochs before go in the same transaction.
        """
        environment = self.environment
        with environment.write("info") as transaction:
            fence = _EPOCH.unpack(transaction.get(_FENCE) or bytes(8))[0]
            if fence < epoch.anew:
                for name in ("records", "tombstones", "written"):
                    transaction.drop(environment.database(name), delete=False)
            if fence < epoch.epoch:
                transaction.put(_FENCE, _EPOCH.pack(epoch.epoch))
                _forget_dropped(transaction, epoch.epoch)
            cursors = [transaction.cursor(environment.database(name)) for name in ("tombstones", "written")]
            has_passed = any(c.first() and _EPOCH.unpack_from(c.key())[0] <= epoch.floor for c in cursors)
        failpoint("partition.fence.raised")
        if has_passed:
            self._purge(epoch)

    def fence(self) -> int:
        with self.environment.read("info") as transaction:
            return _EPOCH.unpack(transaction.get(_FENCE) or bytes(8))[0]

    def sync(self) -> None:
        self.environment.sync()

    def get(self, table: int, key: bytes) -> bytes | None:
        """The chain of one record."""
        with self.environment.read("records") as transaction:
            return tree.get(transaction, tree.table_prefix(table) + key)

    def snapshot(self) -> AbstractContextManager[lmdb.Transaction]:
        """A read transaction that stays open: all records as they are now, for as long as a scan takes."""
        return self.environment.held("records")

    def drop(self, table: int) -> None:
        """Delete the records of a table, and let nobody write any."""
        prefix = tree.table_prefix(table)
        environment = self.environment
        info, gone = environment.database("info"), _DROP_BATCH
        while gone == _DROP_BATCH:
            with environment.write("records") as transaction:
                transaction.put(_DROPPED + prefix, transaction.get(_FENCE, db=info) or bytes(8), db=info)
                gone = tree.drop(transaction, prefix, limit=_DROP_BATCH)

    def _require_fence(self, transaction: lmdb.Transaction, info: object, epoch: int) -> None:
        fence = _EPOCH.unpack(transaction.get(_FENCE, db=info) or bytes(8))[0]
        if fence != epoch:
            raise Fenced(f"epoch {epoch} met the fence of epoch {fence}")


def _forget_dropped(transaction: lmdb.Transaction, epoch: int) -> None:
    """Forget the tables dropped so long ago that no epoch from `epoch` on was planned when there were any."""
    cursor = transaction.cursor()
    more = cursor.set_range(_DROPPED)
    while more and cursor.key().startswith(_DROPPED):
        is_over = _EPOCH.unpack(cursor.value())[0] + 1 < epoch
        more = cursor.delete() and bool(cursor.key()) if is_over else cursor.next()


def _purge_some(transaction: lmdb.Transaction, index: lmdb.Cursor, epoch: Inflight, *, with_records: bool) -> bool:
    """Delete pairs of an index by epoch that the floor has passed, and the dead records they name; whether all went."""
    records, gone, more = transaction.cursor(), 0, index.first()
    while more and gone < _PURGE_BATCH:
        entry, value = index.item()
        if not entry or epoch_of(entry) > epoch.floor:  # past the last pair there is no entry
            return True
        keys = keys_of(value)
        if with_records:
            _purge_records(transaction, records, keys, epoch)
        gone += len(keys)
        more = index.delete()
    return not more


def _purge_records(transaction: lmdb.Transaction, records: lmdb.Cursor, keys: list[bytes], epoch: Inflight) -> None:
    """Delete the dead ones of these records; few were written again since, so all go first, and those come back."""
    if max(map(len, keys)) < tree.LIMIT:
        found = zip(keys, map(records.pop, keys), strict=True)
        alive = [pair for pair in found if pair[1] and not version_chains.is_dead(pair[1], epoch.floor, epoch.aborted)]
        records.putmulti(alive)
        return
    for key in keys:
        chain = tree.get(transaction, key)
        if chain and version_chains.is_dead(chain, epoch.floor, epoch.aborted):
            tree.delete(transaction, key)


def _has_records(transaction: lmdb.Transaction, table: int) -> bool:
    cursor, prefix = transaction.cursor(), tree.table_prefix(table)
    return cursor.set_range(prefix) and cursor.key().startswith(prefix)


def _entries_before(pairs: list[tuple[bytes, bytes]], counts: list[tuple[int, int]], epoch: Inflight) -> pa.RecordBatch:
    """The stored pairs that existed before the epoch; `counts`: how many of them have which prefix."""
    stored, chains = (pa.array(column, pa.binary()) for column in zip(*pairs, strict=True))
    rows, _, _ = version_chains.rows_before(chains, epoch.epoch, epoch.aborted)
    numbers = np.repeat(*np.array(counts, np.int32).T)
    keys = VarBinary.from_arrow(stored).without_first(tree.TABLE_BYTES).to_arrow()
    arrays = [pa.array(numbers), keys, rows]
    batch = pa.record_batch(arrays, names=["prefix", "key", "row"])
    return batch.filter(rows.is_valid()) if rows.null_count else batch
