"""The record cache: records that this process read or wrote last, so that a manager need not ask for them again.

In: records as they are read and written; an epoch that wants to read some. Out: those that no other process can have
written since. Always: before a process puts a version it puts a notice in the row `writers/TABLE`, with the epoch as
timestamp; a notice of another process invalidates what is cached of that partition from that epoch or before. So
re-runs elsewhere, managers that come or go and late tasks are noticed without asking for a record. Notices of aborted
epochs stay, their versions do not count. A full cache drops records not used since it was half full.
"""

from __future__ import annotations

import os
import threading
import uuid
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from viewkeeper.model.epochs import Inflight
from viewkeeper.stores.hbase.store_tables import MetaTable

BYTES_MAX = 64 << 20
_OF_ONE = 200  # bytes that a record takes besides key and row
RecordKey = tuple[int, bytes]  # partition and key
# A record's newest version: in which epoch it was read or written, the version's own epoch, how many are older, and its
# row; None: it is gone, or never was. A plain tuple, which the garbage collector leaves alone, because there are many.
CachedVersion = tuple[int, int, int, bytes | None]
_Records = dict[int, dict[RecordKey, CachedVersion]]  # by table


@dataclass(slots=True)
class _Memory:
    """Of one process: a child that was forked has its own."""

    process: int = field(default_factory=os.getpid)
    writer: str = field(default_factory=lambda: uuid.uuid4().hex[:12])
    epoch: int = 0
    newer: _Records = field(default_factory=dict)
    older: _Records = field(default_factory=dict)  # the first half of what memory has room for
    bytes: int = 0  # of the newer ones
    others: dict[int, dict[str, int]] = field(default_factory=dict)  # table -> others' notices as this epoch found them
    ended: dict[int, dict[int, int]] = field(default_factory=dict)  # table -> partition -> when others last wrote there
    told: dict[int, set[int]] = field(default_factory=dict)  # table -> partitions of which this epoch has put notices


class RecordCache:
    """The records that an open store keeps in memory."""

    def __init__(self, rows: MetaTable, bytes_max: int = BYTES_MAX) -> None:
        self._rows, self._bytes_max = rows, bytes_max
        self._lock = threading.Lock()
        self._memory = _Memory()

    def find(self, table: int, keys: Sequence[RecordKey], epoch: Inflight, anew: int = 0) -> list[CachedVersion | None]:
        """The newest versions of records before this epoch, where they are known; none is older than `anew`."""
        with self._lock:
            memory = self._of(epoch)
            newer, older = (records.get(table, {}) for records in (memory.newer, memory.older))
            if not newer and not older:
                return [None] * len(keys)
            self._look(memory, table)
            ended, aborted, now = memory.ended[table], epoch.aborted, epoch.epoch
            first = {partition: max(anew, 1 + last) for partition, last in ended.items()}
            found = (newer.get(key) or older.get(key) for key in keys)
            return [
                kept
                if kept and first.get(key[0], anew) <= kept[0] and kept[1] < now and kept[1] not in aborted
                else None
                for key, kept in zip(keys, found, strict=True)
            ]

    def tell(self, table: int, partitions: set[int], epoch: Inflight) -> None:
        """Put a notice that this process is about to write there."""
        with self._lock:
            memory = self._of(epoch)
            new = partitions - memory.told.setdefault(table, set())
            if new:
                names = {f"{partition}/{memory.writer}": b"" for partition in sorted(new)}
                self._rows.put(_row(table), names, epoch.epoch)
                memory.told[table] |= new
                self._forget_others(memory, table, new)

    def invalidate(self, table: int, partitions: Iterable[int], last: int) -> None:
        """Let all processes, also this one, ask again for records that they keep from the epoch `last` or before."""
        nobody = uuid.uuid4().hex[:12]
        self._rows.put(_row(table), {f"{partition}/{nobody}": b"" for partition in partitions}, last)

    def keep(self, table: int, keys: Sequence[RecordKey], records: Sequence[CachedVersion], epoch: Inflight) -> None:
        """Keep records that were written, once HBase has them."""
        with self._lock:
            self._keep(self._of(epoch), table, keys, records)

    def keep_read(
        self, table: int, keys: Sequence[RecordKey], records: Sequence[CachedVersion], epoch: Inflight
    ) -> None:
        """Keep records that were read, except where this epoch may have written meanwhile."""
        with self._lock:
            memory = self._of(epoch)
            told = memory.told.get(table, set())
            still = [at for at, (partition, _) in enumerate(keys) if partition not in told]
            self._keep(memory, table, [keys[at] for at in still], [records[at] for at in still])

    def _keep(self, memory: _Memory, table: int, keys: Sequence[RecordKey], records: Sequence[CachedVersion]) -> None:
        memory.newer.setdefault(table, {}).update(zip(keys, records, strict=True))
        memory.bytes += _OF_ONE * len(keys)
        memory.bytes += sum(len(key) for _, key in keys) + sum(len(kept[3]) for kept in records if kept[3])
        if memory.bytes > self._bytes_max // 2:
            memory.older = memory.newer if memory.bytes <= self._bytes_max else {}
            memory.newer, memory.bytes = {}, 0

    def forget(self, table: int) -> None:
        with self._lock:
            for records in (self._memory.newer, self._memory.older):
                records.pop(table, None)

    def _of(self, epoch: Inflight) -> _Memory:
        """The memory of this process as this epoch may use it."""
        memory = self._memory
        if memory.process != os.getpid() or epoch.epoch < memory.epoch:  # the store was restored: numbers repeat
            memory = self._memory = _Memory()
        if epoch.epoch > memory.epoch:
            memory.epoch, memory.others, memory.told = epoch.epoch, {}, {}
        return memory

    def _look(self, memory: _Memory, table: int) -> None:
        """Read the notices of others, once in an epoch."""
        if table not in memory.others:
            told = self._rows.cells(_row(table)).items()
            others = {name: cell.timestamp for name, cell in told if not name.endswith(memory.writer)}
            memory.others[table] = others
            ended = memory.ended.setdefault(table, {})
            for name, epoch in others.items():
                ended[_partition(name)] = max(epoch, ended.get(_partition(name), 0))

    def _forget_others(self, memory: _Memory, table: int, partitions: set[int]) -> None:
        """Delete older notices, which this epoch's cover: the row does not grow with every process that there was."""
        told = memory.others.get(table, {})
        gone = {name: at for name, at in told.items() if _partition(name) in partitions and at < memory.epoch}
        if gone:
            self._rows.delete(_row(table), gone)


def _row(table: int) -> bytes:
    return b"writers/%d" % table


def _partition(name: str) -> int:
    return int(name.partition("/")[0])
