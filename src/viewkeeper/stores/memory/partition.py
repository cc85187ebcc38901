"""A partition in memory: view records as chains of versions, owned by one view manager at a time; and snapshots of it.

In: chains. Out: chains, or rows as of an epoch. Always: records are maps that never change, so readers need no lock,
and a snapshot costs the memory of what it can see. A writer takes the store's lock and passes the partition's fence
(R1a).
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Mapping, Sequence
from threading import RLock

import pyarrow as pa

from viewkeeper.errors import Fenced, InputError, LaterRecord
from viewkeeper.model.epochs import Inflight
from viewkeeper.model.keys import after_prefix
from viewkeeper.model.positions import SplitPoints
from viewkeeper.stores.memory.node import NO_PAIRS, Tables
from viewkeeper.stores.memory.ordered_map import Pair, Pairs, in_lists
from viewkeeper.stores.version_chains import Written, is_dead, newest_epoch, rows_at, rows_before, version_at

Index = dict[int, dict[int, frozenset[bytes]]]  # epoch -> table -> keys; replaced, never changed
State = tuple[Tables, Index]  # records, and which of them indexed epochs wrote
_LIST_RECORDS = 50_000


class Partition:
    """The records of one partition, by table."""

    def __init__(self, lock: RLock) -> None:
        self._lock = lock
        self._fence = 0
        self.state: State = ({}, {})
        self._tombstones: Index = {}
        self._dropped: frozenset[int] = frozenset()  # their ids are never reused

    def pairs(self, table: int) -> Pairs:
        return self.state[0].get(table, NO_PAIRS)

    def get(self, table: int, key: bytes) -> bytes | None:
        return self.pairs(table).get(key)

    def read(self, table: int, keys: Sequence[bytes]) -> list[bytes | None]:
        return list(map(self.pairs(table).get, keys))

    def has_records(self, table: int) -> bool:
        return len(self.pairs(table)) > 0

    def borders(self, table: int, after: bytes, *, rows_max: int, bytes_max: int, pieces: int) -> SplitPoints:
        return self.pairs(table).borders(after, rows_max=rows_max, bytes_max=bytes_max, pieces=pieces)

    def is_dropped(self, table: int) -> bool:
        """Whether the records of the table were removed: what is written to it is ignored."""
        return table in self._dropped

    def write(self, written: Sequence[Written], epoch: Inflight) -> None:
        with self._lock:
            self._require_fence(epoch)
            for part in (part for part in written if not self.is_dropped(part.table)):
                changed = self.pairs(part.table).changed(dict(zip(part.keys, part.chains, strict=True)))
                records, index = self.state
                if part.is_indexed:
                    index = with_keys(index, epoch.epoch, {part.table: set(part.keys)})
                self._tombstones = with_keys(self._tombstones, epoch.epoch, {part.table: set(part.tombstones)})
                self.state = (records | {part.table: changed}, index)

    def fence(self) -> int:
        return self._fence

    def admit(self, epoch: Inflight) -> None:
        with self._lock:
            if self._fence < epoch.anew:
                self.clear()
            self._fence = max(self._fence, epoch.epoch)
            self._purge(epoch)

    def clear(self) -> None:
        """Remove all records."""
        self.state, self._tombstones = ({}, {}), {}

    def _purge(self, epoch: Inflight) -> None:
        """Drop records whose tombstone the floor has passed, and indexes of written records that no reader asks for."""
        records, written = dict(self.state[0]), self.state[1]
        passed = {known for known in (*self._tombstones, *written) if known <= epoch.floor}
        if not passed:
            return
        self._require_fence(epoch)
        for known in passed & self._tombstones.keys():
            for table in self._tombstones[known].keys() & records.keys():  # the others were dropped
                chains = {key: records[table].get(key) for key in self._tombstones[known][table]}
                dead = [key for key, chain in chains.items() if chain and is_dead(chain, epoch.floor, epoch.aborted)]
                records[table] = records[table].changed(dict.fromkeys(dead))
        self._tombstones = without_epochs(self._tombstones, passed)
        self.state = (records, without_epochs(written, passed))

    def drop(self, table: int) -> None:
        with self._lock:
            self._dropped |= {table}
            records, written = self.state
            self.state = ({other: pairs for other, pairs in records.items() if other != table}, written)

    def scan_prefixes(
        self, table: int, prefixes: Sequence[bytes], epoch: Inflight, *, rows_max: int | None
    ) -> Iterator[pa.RecordBatch]:
        pairs = self.pairs(table)
        found = (
            (number, key, chain)
            for number, prefix in enumerate(prefixes)
            for key, chain in pairs.walk(prefix, after_prefix(prefix))
        )
        for part in in_lists(found, min(rows_max or _LIST_RECORDS, _LIST_RECORDS)):
            numbers, keys, chains = zip(*part, strict=True)
            rows = self.rows_before(pa.array(chains, pa.binary()), epoch)
            arrays = [pa.array(numbers, pa.int32()), pa.array(keys, pa.binary()), rows]
            yield pa.record_batch(arrays, names=["prefix", "key", "row"]).filter(rows.is_valid())

    def scan_versions(
        self, table: int, low: bytes, high: bytes | None, epoch: int, aborted: tuple[int, ...]
    ) -> Iterator[pa.RecordBatch]:
        for part in in_lists(self.pairs(table).walk_after(low, high), _LIST_RECORDS):
            keys, chains = (pa.array(column, pa.binary()) for column in zip(*part, strict=True))
            rows = rows_at(chains, epoch, aborted)
            yield pa.record_batch([keys, rows], names=["key", "row"]).filter(rows.is_valid())

    def row_before(self, chain: bytes, epoch: Inflight) -> bytes | None:
        """The row of a record as of the epoch before; raises Fenced when a later one wrote it."""
        if newest_epoch(chain) > epoch.epoch:
            raise LaterRecord(epoch.epoch)
        return version_at(chain, epoch.epoch - 1, epoch.aborted)

    def rows_before(self, chains: pa.Array, epoch: Inflight) -> pa.Array:
        """Like `row_before`, for many."""
        return rows_before(chains, epoch.epoch, epoch.aborted)[0]

    def _require_fence(self, epoch: Inflight) -> None:
        if self._fence != epoch.epoch:
            raise Fenced(f"epoch {epoch.epoch} met the fence of epoch {self._fence}")


def without_epochs(index: Index, epochs: set[int]) -> Index:
    return {epoch: tables for epoch, tables in index.items() if epoch not in epochs}


def with_keys(index: Index, epoch: int, keys: Mapping[int, set[bytes]]) -> Index:
    """The index with the keys, by table, that an epoch wrote."""
    if not any(keys.values()):
        return index
    known = index.get(epoch, {})
    return {**index, epoch: known | {table: known.get(table, frozenset()) | new for table, new in keys.items() if new}}


class MemorySnapshot:
    """The tables of partitions, or of nodes, with what indexed epochs wrote; `close` releases them."""

    def __init__(self, parts: Mapping[int, State]) -> None:
        self._parts = parts
        self._is_closed = False

    def get(self, partition: int, table: int, key: bytes) -> bytes | None:
        """The chain of one record."""
        return self._open()[partition][0].get(table, NO_PAIRS).get(key)

    def scan(
        self, partitions: Sequence[int], table: int, start: bytes, stop: bytes | None, *, reverse: bool = False
    ) -> Iterator[Pair]:
        """(key, chain) pairs with start <= key < stop, in key order across `partitions`."""
        held = self._open()
        tables = [held[partition][0].get(table, NO_PAIRS) for partition in partitions]
        walks = [pairs.walk(start, stop, reverse=reverse) for pairs in tables]
        return walks[0] if len(walks) == 1 else heapq.merge(*walks, reverse=reverse)

    def scan_all(self, table: int, start: bytes, stop: bytes | None, *, reverse: bool = False) -> Iterator[Pair]:
        """`scan` over all that is held."""
        return self.scan(tuple(self._parts), table, start, stop, reverse=reverse)

    def written_between(self, partitions: Sequence[int], table: int, since: int, epoch: int) -> list[Pair]:
        """(key, chain) of a view's records that the epochs after `since` up to `epoch` wrote, in key order."""
        held, found = self._open(), list[Pair]()
        for tables, written in (held[partition] for partition in partitions):
            keys = {key for at, by_table in written.items() if since < at <= epoch for key in by_table.get(table, ())}
            pairs = tables.get(table, NO_PAIRS)
            found += [(key, chain) for key in keys if (chain := pairs.get(key)) is not None]
        return sorted(found)

    def close(self) -> None:
        self._parts, self._is_closed = {}, True

    def _open(self) -> Mapping[int, State]:
        if self._is_closed:
            raise InputError("the snapshot is closed", "open another one")
        return self._parts
