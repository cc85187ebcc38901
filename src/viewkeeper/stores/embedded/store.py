"""The embedded store: base tables, log, views and epoch record on LMDB, for many processes at once; and its snapshots.

In: keys and rows as bytes. Out: the same, in key order across nodes and partitions. Always: the promises of the port
`Store`; a base write never waits for a view, because views live in environments of their own. A snapshot is LMDB's read
transactions, one for each environment: it may be read for as long as it is open, and pins nothing in the epoch record.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import lmdb

from viewkeeper.errors import CorruptStore, LogDiverged, StoreError
from viewkeeper.model.epochs import EpochRecord, forget_views
from viewkeeper.stores.embedded import tree
from viewkeeper.stores.embedded.directory import enter_directory
from viewkeeper.stores.embedded.file_locks import PipelineLock, holder_of, locked, read_holder
from viewkeeper.stores.embedded.layout import Layout, open_layout
from viewkeeper.stores.embedded.lmdb_files import require_whole, translate
from viewkeeper.stores.embedded.meta import Meta
from viewkeeper.stores.embedded.node import Node
from viewkeeper.stores.log_shard import LIMITS, Limits
from viewkeeper.stores.not_offered import SoleWriter
from viewkeeper.stores.placement import Placement, are_whole, first_slots
from viewkeeper.stores.rebalance import AlterableStore

if TYPE_CHECKING:
    from viewkeeper.ports.admin import Backup, Progress
    from viewkeeper.ports.meta import Holder
    from viewkeeper.stores.embedded.lmdb_environment import Environment
    from viewkeeper.stores.embedded.partition import Partition


class LmdbSnapshot:
    """Open read transactions over partitions, or over nodes for their rows; end them with `close`."""

    def __init__(self, partitions: Sequence[tuple[int, Partition | Node]]) -> None:
        self._partitions = dict(partitions)
        self._ends = ExitStack()
        self._transactions = {
            number: self._ends.enter_context(partition.snapshot()) for number, partition in partitions
        }

    def transaction(self, number: int) -> lmdb.Transaction:
        return self._transactions[number]

    def get(self, partition: int, table: int, key: bytes) -> bytes | None:
        """The chain of one record."""
        with self._told():
            return tree.get(self._transactions[partition], tree.table_prefix(table) + key)

    def scan(
        self, partitions: Sequence[int], table: int, start: bytes, stop: bytes | None, *, reverse: bool = False
    ) -> Iterator[tuple[bytes, bytes]]:
        """(key, chain) pairs with start <= key < stop, in key order across `partitions`."""
        transactions = [self._transactions[partition] for partition in partitions]
        with self._told():
            yield from tree.scan_table(transactions, table, start, stop, reverse=reverse)

    def written_between(
        self, partitions: Sequence[int], table: int, since: int, epoch: int
    ) -> list[tuple[bytes, bytes]]:
        """(key, chain) of a view's records that the epochs after `since` up to `epoch` wrote, in key order."""
        from viewkeeper.stores.embedded.partition import Partition

        found: list[tuple[bytes, bytes]] = []
        for number in partitions:
            partition = self._partitions[number]
            if isinstance(partition, Partition):
                found += partition.written_between(self._transactions[number], table, since, epoch)
        return sorted(found)

    def scan_all(
        self, table: int, start: bytes, stop: bytes | None, *, reverse: bool = False
    ) -> Iterator[tuple[bytes, bytes]]:
        """`scan` over all that is held."""
        return self.scan(tuple(self._transactions), table, start, stop, reverse=reverse)

    @contextmanager
    def _told(self) -> Iterator[None]:
        """Raise errors of LMDB as ours; which of several environments is damaged is not known here."""
        try:
            yield
        except lmdb.Error as error:
            store = next(iter(self._partitions.values())).environment.path.parent
            raise translate(error, store) from error

    def close(self) -> None:
        self._ends.close()


_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


class EmbeddedStore(SoleWriter, AlterableStore):
    """A store in one directory."""

    many_processes = True

    def __init__(self, url: str, *, create: bool = True, read_only: bool = False, limits: Limits = LIMITS) -> None:
        self._limits = limits
        self._layout = open_layout(url, create=create, read_only=read_only)
        self._directory = enter_directory(self.layout)
        self._leaving = self._directory.leave_when_gone(self)
        try:
            self._open()
        except BaseException:
            self.close()
            raise

    def _open(self) -> None:
        layout, handle = self.layout, self._directory.environment
        self._partitions = [layout.part(f"partition-{number}") for number in range(layout.partitions)]
        self._meta = Meta(partial(handle, layout.part("meta"), synced=True), layout.nodes)
        self._nodes: dict[int, Node] = {}
        self._look()
        layout.require_parts(self._placement.nodes)
        self._open_epoch_record()
        last_stamp = max(node.log_end().stamp for node in self.nodes)
        self.boot = _BOOT_ID.read_text().strip() if _BOOT_ID.exists() else "unknown"
        self._clock_base = self._meta.clock_base(self.boot, last_stamp, is_writable=layout.is_writable)
        if self._meta.unclean_boot() not in (None, self.boot):
            self._forget_torn_views()
        for part in self._partitions:  # they are opened when needed, but a missing one must be noticed now
            require_whole(layout.path / part.name / "data.mdb")

    @property
    def layout(self) -> Layout:
        return self._layout

    @property
    def url(self) -> str:
        return self.layout.url

    def close(self) -> None:
        """Close; the process's handles are closed with the last open store of this directory."""
        if self._leaving.detach():
            self._directory.leave()

    def is_current(self) -> bool:
        """Whether the open store is the one at its path; False when it was removed, replaced or restored there."""
        return self._directory.is_current(self.layout)

    @property
    def is_writable(self) -> bool:
        return self.layout.is_writable

    def now(self) -> int:
        return self._clock_base + time.monotonic_ns()

    def _open_epoch_record(self) -> None:
        """Make the epoch record of a new store; refuse a store whose parts are not of one moment."""
        ends, retired = self.ends(), self._placement.retired
        if not self._meta.has_epoch_record() and any(ends.values()):
            raise CorruptStore("the store has rows and no epoch record", "restore the whole store from a backup")
        if self.layout.is_writable:
            self._meta.create_epoch_record(EpochRecord.first(self.layout.incarnation))
        for stream, position in self._meta.read_horizon().positions.items():
            if ends.get(stream, 0) < position and int(stream) not in retired:
                raise LogDiverged(
                    f"the log of node {stream} ends at {ends.get(stream, 0)}, but {position} is committed",
                    "restore the whole store, not a part of it",
                )

    def _forget_torn_views(self) -> None:
        """Start the views anew after a power loss.

        Partitions are written without a sync between the protocol's sync points, so LMDB promises nothing for them
        then; base and log are synced with every write, and everything is recomputed from there. Readers are informed
        first. DELTA is lost too: every row of a table that has one is logged again.
        """
        if not self.layout.is_writable:
            raise StoreError(
                f"views of the store at {self.layout.path} may be torn, for its machine went down while they were written",
                "open it once where it can be written",
            )
        with locked(self.layout.path, self.layout.busy_seconds):
            if self._meta.unclean_boot() in (None, self.boot):
                return
            stored = [table["id"] for table in self.read_catalog().get("tables", ()) if table["delta"] is not None]
            self.settle()  # rows that have left a node and arrived at none would be missed
            for node in self.nodes:
                node.log_rows(stored, self.now)
            rebuilt = self.ends() if stored else {}
            self.change_epoch_record(lambda record: forget_views(record, rebuilt))
            for part in self._partitions:
                self._directory.remake(part)
            self._meta.mark_views(self.boot, clean=True)

    # what the nodes, partitions and meta of a store are

    @property
    def placement(self) -> Placement:
        return self._placement

    def node(self, number: int) -> Node:
        found = self._nodes.get(number)
        return self._new_node(number) if found is None else found

    def _new_node(self, number: int) -> Node:
        layout, part = self.layout, self.layout.part(f"node-{number}")
        return self._nodes.setdefault(
            number,
            Node(
                partial(self._directory.environment, part, synced=layout.synced),
                number,
                synced=layout.synced,
                before_images=layout.before_images,
                limits=self._limits,
                first_slots=first_slots(number, layout.nodes),
            ),
        )

    @property
    def nodes(self) -> Sequence[Node]:
        return [self.node(number) for number in self._look().nodes]

    def _look(self) -> Placement:
        self._placement = self._meta.read_placement()
        for number in self._nodes.keys() - self._placement.nodes:  # retired: each has a TiB of addresses and six files
            if self._directory.close_idle(self.layout.part(f"node-{number}")):
                self._nodes.pop(number, None)
        return self._placement

    def settle(self) -> None:
        from viewkeeper.stores.embedded.move_slots import finish

        while (intent := self._look().intent) is not None:
            if not self.is_writable:
                raise StoreError(
                    "rows were being moved when a process died", "open the store once where it is writable"
                )
            finish(self, intent)

    def move(self, slots: int, source: int, target: int) -> int:
        from viewkeeper.stores.embedded.move_slots import move

        return move(self, slots, self.node(source), self.node(target))

    def make_node(self) -> int:
        """A new node without slots, listed once it is durable; returns its number."""
        from viewkeeper.stores.embedded.move_slots import make_node

        return make_node(self.layout, self._meta)

    def altering(self) -> AbstractContextManager[None]:
        """Within the block no other process adds or removes a node."""
        from viewkeeper.stores.embedded.move_slots import altering

        return altering(self.layout)

    @property
    def meta(self) -> Meta:
        return self._meta

    def partition(self, number: int) -> Partition:
        from viewkeeper.stores.embedded.partition import Partition

        return Partition(partial(self._directory.environment, self._partitions[number], synced=False))

    def hold_rows(self) -> LmdbSnapshot:
        while True:
            nodes = self.nodes
            held = LmdbSnapshot([(node.number, node) for node in nodes])
            if are_whole(node.state_in(held.transaction(node.number)).slots for node in nodes):
                return held
            held.close()  # taken before and after a move, or between its two transactions
            self.settle()

    def snapshot_chains(self, partitions: Sequence[int]) -> LmdbSnapshot:
        return LmdbSnapshot([(number, self.partition(number)) for number in partitions])

    # durability

    def sync_epoch_record(self) -> None:
        self._meta.sync()

    def sync_views(self) -> None:
        for number in range(self.partitions):
            self.partition(number).sync()

    def open_views(self) -> None:
        self._meta.mark_views(self.boot, clean=False)

    def close_views(self, owner: str) -> None:
        self.sync_views()
        self._meta.mark_views(self.boot, clean=True, owner=owner)

    # the store as a whole

    def claim(self, *, take_over: bool, instead_of: Holder | None = None) -> PipelineLock:
        return PipelineLock(self.layout.lock, take_over=take_over, instead_of=instead_of)

    def holder(self) -> Holder | None:
        return read_holder(self.layout.lock)

    def claimed_by(self) -> int | None:
        return holder_of(self.layout.lock)

    def clear_stale_readers(self) -> int:
        return sum(environment.clear_stale_readers() for environment in self.environments().values())

    def environments(self) -> dict[str, Environment]:
        """All of the store's environments by name, meta first."""
        found = {"meta": self._meta.environment}
        found |= {f"node-{node.stream}": node.environment for node in self.nodes}
        return found | {f"partition-{number}": self.partition(number).environment for number in range(self.partitions)}

    def back_up(self, destination: Path, progress: Progress | None = None) -> Backup:
        """The whole store as of one moment, in a new directory."""
        from viewkeeper.stores.embedded.backups import back_up

        return back_up(self.layout, self._meta, self.environments, destination, progress)

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Within the block no other process has the store open, and no pipeline runs; StoreInUse if one does."""
        from viewkeeper.stores.embedded.backups import alone

        with alone(self._directory):
            yield

    def compact(self, progress: Progress | None = None) -> None:
        """Return free space inside the data files to the file system; only within `alone`."""
        from viewkeeper.stores.embedded.backups import compact_files

        compact_files(self._directory, self._look().nodes, progress)

    def warnings(self) -> tuple[str, ...]:
        lost = "sync=off: base writes survive a crash of the process, not a power loss"
        return () if self.layout.synced else (lost,)

    def bytes_used(self) -> int:
        return sum(file.stat().st_blocks * 512 for file in self.layout.path.rglob("data.mdb"))
