"""Records that this process wrote last, kept in its memory: a manager that gets the same keys again need not read them.

In: records as they are written; an epoch that wants to read some. Out: those that nobody else can have written since.
Always: before a process puts a version it tells so, in the row `writers/TABLE`, with the epoch as timestamp; what another
one told of a partition ends what is kept of it from that epoch or before. So a re-run elsewhere, a manager that comes or
goes and a late task are noticed without asking for a record. Versions of aborted epochs, which stay listed, do not
count.
"""

from __future__ import annotations

import os
import threading
import uuid
from collections.abc import Sequence
from dataclasses import dataclass, field

from viewkeeper.model.epochs import Inflight
from viewkeeper.stores.hbase.cells import Below
from viewkeeper.stores.hbase.metarow import MetaRows

BYTES_MAX = 64 << 20
_OF_ONE = 200  # bytes that a record takes besides key and row
Place = tuple[int, bytes]  # partition and key
Kept = tuple[
    Below, bytes | None
]  # a record's newest version: its epoch, how many are older, and its row; None: it is gone


@dataclass(slots=True)
class _Memory:
    """Of one process: a child that was forked has its own."""

    process: int = field(default_factory=os.getpid)
    writer: str = field(default_factory=lambda: uuid.uuid4().hex[:12])
    epoch: int = 0
    records: dict[tuple[int, Place], Kept] = field(default_factory=dict)  # those written longest ago first
    tables: set[int] = field(default_factory=set)
    bytes: int = 0
    others: dict[int, dict[str, int]] = field(default_factory=dict)  # table -> what others told, as this epoch found it
    ended: dict[tuple[int, int], int] = field(
        default_factory=dict
    )  # table and partition -> when others last wrote there
    told: dict[int, set[int]] = field(default_factory=dict)  # table -> partitions of which this epoch has told


class Recent:
    """What an open store remembers of its own writes."""

    def __init__(self, rows: MetaRows, bytes_max: int = BYTES_MAX) -> None:
        self._rows, self._bytes_max = rows, bytes_max
        self._lock = threading.Lock()
        self._memory = _Memory()

    def find(self, table: int, places: Sequence[Place], epoch: Inflight, anew: int = 0) -> list[Kept | None]:
        """The newest versions of records before this epoch, as far as they are known; none is older than `anew`."""
        with self._lock:
            memory = self._of(epoch)
            if table not in memory.tables:
                return [None] * len(places)
            self._look(memory, table)
            found = (memory.records.get((table, place)) for place in places)
            since = (max(anew, 1 + memory.ended.get((table, partition), 0)) for partition, _ in places)
            return [
                kept if kept and first <= kept[0][0] < epoch.epoch and kept[0][0] not in epoch.aborted else None
                for kept, first in zip(found, since, strict=True)
            ]

    def tell(self, table: int, partitions: set[int], epoch: Inflight) -> None:
        """That this process is about to write there."""
        with self._lock:
            memory = self._of(epoch)
            new = partitions - memory.told.setdefault(table, set())
            if new:
                names = {f"{partition}/{memory.writer}": b"" for partition in sorted(new)}
                self._rows.put_all(_row(table), names, epoch.epoch)
                memory.told[table] |= new
                self._forget_others(memory, table, new)

    def keep(self, table: int, places: Sequence[Place], written: Sequence[Kept], epoch: Inflight) -> None:
        """What was written, once HBase has it."""
        with self._lock:
            memory = self._of(epoch)
            memory.tables.add(table)
            for place, kept in zip(places, written, strict=True):
                self._drop(memory, (table, place))
                memory.records[table, place] = kept
                memory.bytes += _size(place, kept)
            while memory.bytes > self._bytes_max:
                self._drop(memory, next(iter(memory.records)))

    def forget(self, table: int) -> None:
        """What was kept of a table that is dropped."""
        with self._lock:
            memory = self._memory
            memory.tables.discard(table)
            for place in [place for place in memory.records if place[0] == table]:
                self._drop(memory, place)

    def _of(self, epoch: Inflight) -> _Memory:
        """The memory of this process as this epoch may use it."""
        memory = self._memory
        if memory.process != os.getpid() or epoch.epoch < memory.epoch:  # the store was restored: numbers repeat
            memory = self._memory = _Memory()
        if epoch.epoch > memory.epoch:
            memory.epoch, memory.others, memory.told = epoch.epoch, {}, {}
        return memory

    def _look(self, memory: _Memory, table: int) -> None:
        """Read what others have told, once in an epoch."""
        if table not in memory.others:
            told = self._rows.cells(_row(table)).items()
            others = {name: cell.timestamp for name, cell in told if not name.endswith(memory.writer)}
            memory.others[table] = others
            for name, epoch in others.items():
                place = table, _partition(name)
                memory.ended[place] = max(epoch, memory.ended.get(place, 0))

    def _forget_others(self, memory: _Memory, table: int, partitions: set[int]) -> None:
        """What is told now ends all that what was told before does: rows do not grow with every process that there was."""
        told = memory.others.get(table, {})
        gone = {name: at for name, at in told.items() if _partition(name) in partitions and at < memory.epoch}
        if gone:
            self._rows.delete(_row(table), gone)

    def _drop(self, memory: _Memory, place: tuple[int, Place]) -> None:
        kept = memory.records.pop(place, None)
        if kept is not None:
            memory.bytes -= _size(place[1], kept)


def _row(table: int) -> bytes:
    return b"writers/%d" % table


def _partition(name: str) -> int:
    return int(name.partition("/")[0])


def _size(place: Place, kept: Kept) -> int:
    return _OF_ONE + len(place[1]) + len(kept[1] or b"")
