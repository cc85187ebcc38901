"""The memory store: base tables, log, views and epoch record in this process's memory, for tests.

In: keys and rows as bytes. Out: the same, in key order across nodes and partitions. Always: the promises of the port
`Store`, among the threads of this process; nothing survives a power loss. One lock separates all writers, and is held
while rows move from one node to another; readers take none, because what they read never changes.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from viewkeeper.errors import InputError, NotOffered, PipelineRunning, StoreBusy, StoreInUse
from viewkeeper.ports.admin import Backup, Progress
from viewkeeper.ports.meta import Holder
from viewkeeper.ports.store import Store
from viewkeeper.stores.memory.contents import Claim, Contents, Layout, Meta, leave
from viewkeeper.stores.memory.node import Node
from viewkeeper.stores.memory.partition import MemorySnapshot, Partition
from viewkeeper.stores.not_offered import SoleWriter
from viewkeeper.stores.placement import Intent, Placement, is_filling, listed
from viewkeeper.stores.rebalance import AlterableStore

_PIECE_SLOTS = 64
_BUSY_SECONDS = 60.0
_POLL_SECONDS = 0.005


def move(contents: Contents, slots: int, source: int, target: int) -> int:
    """Move slots and their rows; returns how many rows."""
    moved, until, left = 0, time.monotonic() + _BUSY_SECONDS, listed(slots)
    while left:
        piece, count = sum(1 << slot for slot in left[:_PIECE_SLOTS]), None
        with contents.lock:
            if not is_filling(contents.meta.read_epoch_record()):
                count = _move(contents, piece, source, target)
        if count is not None:
            moved, left = moved + count, left[_PIECE_SLOTS:]
        elif time.monotonic() > until:
            raise StoreBusy("views are being filled, and no row may move meanwhile", "let the pipeline fill them first")
        else:
            time.sleep(_POLL_SECONDS)
    return moved


def _move(contents: Contents, slots: int, source: int, target: int) -> int:
    here, there, known = contents.nodes[source], contents.nodes[target], contents.meta.read_placement()
    floor = max(here.log_end().stamp, there.log_end().stamp, *(done.arrived for done in known.moves), 0)
    stamp, after = max(floor + 1, contents.now()), here.end()
    rows = here.rows_in(slots)
    there.move(rows, slots, stamp, arrive=True)
    position = here.move(rows, slots, stamp, arrive=False)
    intent = Intent(slots, source, target, after, stamp, stamp)
    committed = contents.meta.read_epoch_record().positions
    later = tuple(done for done in known.moves if not done.is_in(committed))
    contents.meta.change_placement(lambda placement, _: replace(placement, moves=later).moved(intent, position))
    return sum(map(len, rows.values()))


class MemoryStore(SoleWriter, AlterableStore, Store):
    """An open store; several of one name are one store."""

    many_processes = False

    def __init__(self, contents: Contents) -> None:
        self._opened: Contents | None = contents
        self._layout = contents.layout

    @property
    def layout(self) -> Layout:
        return self._layout

    @property
    def url(self) -> str:
        return f"memory:{self.layout.name}"

    @property
    def _contents(self) -> Contents:
        contents = self._opened
        if contents is None:
            raise InputError("the database is closed", "connect again")
        if contents.process != os.getpid():
            raise InputError(
                f"{self.url} was opened before this process was forked off",
                "a memory store is of one process: connect here",
            )
        return contents

    def close(self) -> None:
        """Close; with the last open store of a name its rows and views are gone."""
        contents, self._opened = self._opened, None
        if contents is not None:
            leave(contents, self)

    @property
    def is_writable(self) -> bool:
        return True

    def now(self) -> int:
        return self._contents.now()

    # what the nodes, partitions and meta of a store are

    @property
    def placement(self) -> Placement:
        return self.meta.read_placement()

    def node(self, number: int) -> Node:
        return self._contents.nodes[number]

    @property
    def nodes(self) -> Sequence[Node]:
        return [self.node(number) for number in self.placement.nodes]

    def settle(self) -> None:
        """A move holds the lock from its beginning to its end."""
        with self._contents.lock:
            pass

    def move(self, slots: int, source: int, target: int) -> int:
        return move(self._contents, slots, source, target)

    def make_node(self) -> int:
        contents = self._contents
        with contents.lock:
            number = contents.meta.read_placement().next
            contents.nodes[number] = contents.new_node(number)
            contents.meta.change_placement(lambda placement, _: placement.with_node())
        return number

    @contextmanager
    def altering(self) -> Iterator[None]:
        """Within the block nobody else adds or removes a node."""
        lock = self._contents.altering
        if not lock.acquire(blocking=False):
            raise StoreBusy("another thread is adding or removing a node", "wait until it has ended")
        try:
            yield
        finally:
            lock.release()

    @property
    def meta(self) -> Meta:
        return self._contents.meta

    def partition(self, number: int) -> Partition:
        return self._contents.partitions[number]

    def hold_rows(self) -> MemorySnapshot:
        with self._contents.lock:
            return MemorySnapshot({node.number: (node.rows, {}) for node in self.nodes})

    def snapshot_chains(self, partitions: Sequence[int]) -> MemorySnapshot:
        return MemorySnapshot({number: self.partition(number).state for number in partitions})

    # durability: nothing here survives a power loss, and nothing can tear views

    def sync_epoch_record(self) -> None:
        pass

    def sync_views(self) -> None:
        pass

    def open_views(self) -> None:
        pass

    def close_views(self, owner: str) -> None:
        pass

    # the store as a whole

    def claim(self, *, take_over: bool, instead_of: Holder | None = None) -> Claim:
        return Claim(self._contents, take_over=take_over, instead_of=instead_of)

    def holder(self) -> Holder | None:
        claim = self._contents.claim
        return None if claim is None else claim.holder

    def claimed_by(self) -> int | None:
        """The pid of the process that runs the pipeline, which can only be this one."""
        contents = self._contents
        return None if contents.claim is None else contents.process

    def clear_stale_readers(self) -> int:
        return 0

    def back_up(self, destination: Path, progress: Progress | None = None) -> Backup:
        raise NotOffered("a memory store has no backup", "keep what must not be lost in a store at embedded:PATH")

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Within the block no pipeline runs; StoreInUse if the store is open more than once."""
        try:
            claim = self.claim(take_over=False)
        except PipelineRunning as error:
            raise PipelineRunning(error.fact, "stop it first") from None
        try:
            if (users := len(self._contents.users)) > 1:
                raise StoreInUse(f"this process has the store open {users} times", "close the other databases first")
            yield
        finally:
            claim.release()

    def compact(self, progress: Progress | None = None) -> None:
        """Python reuses free memory at once."""

    def warnings(self) -> tuple[str, ...]:
        return ()

    def bytes_used(self) -> int:
        """The bytes of keys, rows, versions and log entries; Python needs some more for each."""
        contents = self._contents
        with contents.lock:
            tables = [*(node.rows for node in self.nodes), *(part.state[0] for part in contents.partitions)]
            logs = sum(node.log_bytes() for node in self.nodes)
        return logs + sum(pairs.size() for part in tables for pairs in part.values())
