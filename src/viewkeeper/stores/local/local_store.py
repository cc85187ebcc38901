"""The local store: what the embedded store and the memory store are, over the kernels of their parts.

In: keys and rows as bytes. Out: the same, in key order across nodes and partitions. Always: the promises of the port
`Store`, kept by nodes (base rows and their log), partitions (records of views) and meta, each over a kernel of its own.
Arrow and numpy are imported where they are needed: reads and writes of single rows need neither.
"""

from __future__ import annotations

import time
from abc import abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING

from viewkeeper.errors import LogDiverged, PositionLost, RowsApart, StoreError
from viewkeeper.model.epochs import EpochRecord, Inflight
from viewkeeper.model.positions import Cut, LogRange, Position, Positions, Stream, covers, part_of
from viewkeeper.model.read_frontier import ReadFrontier
from viewkeeper.model.stored_rows import Image, RowWrites
from viewkeeper.ports.log import ALL
from viewkeeper.ports.meta import Kind
from viewkeeper.ports.store import Capabilities, Store
from viewkeeper.stores.kv.kernel import Kernel, borders
from viewkeeper.stores.local.log_format import count_between
from viewkeeper.stores.local.meta import Meta, StoreLayout
from viewkeeper.stores.local.node import LIMITS, Limits, Node
from viewkeeper.stores.local.placement import Misplaced, Placement, are_whole, first_slots, slot_of

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa

    from viewkeeper.model.positions import SplitPoints
    from viewkeeper.model.read_frontier import ReadTimestamp
    from viewkeeper.ports.admin import Altered, Facts
    from viewkeeper.ports.records import StoredVersions, VersionWrite
    from viewkeeper.stores.local.partition import LocalSnapshot, Partition
    from viewkeeper.stores.version_chains import RecordSnapshot

_POLL_SECONDS = 0.005


class LocalStore(Store):
    """A store whose rows are on nodes, by their keys' slots, and whose records are in partitions.

    The placement as last seen is good enough to write and get: a node refuses rows that it has not (Misplaced).
    """

    many_processes: bool  # see `Capabilities`
    layout: StoreLayout

    def __init__(self, layout: StoreLayout, *, limits: Limits = LIMITS) -> None:
        self.layout = layout
        self._limits = limits
        self._clock_base = 0  # what to add to the monotonic clock
        self._nodes: dict[int, Node] = {}
        self._partitions: dict[int, Partition] = {}
        self.meta = Meta(self._handle("meta"), layout.nodes)
        self.placement = self._refresh_placement()  # as last seen

    # what a kind of local store has of its own

    @abstractmethod
    def _handle(self, part: str) -> Callable[[], Kernel]:
        """Returns the kernel of a part: `meta`, `node-0`, `partition-0` and so on."""

    @abstractmethod
    def make_part(self, part: str) -> None:
        """Make a part, durable and empty, whatever was there under its name."""

    @abstractmethod
    def _close_idle(self, part: str) -> bool:
        """Close a part that is hardly used any more; False while a transaction is open there."""

    @abstractmethod
    def _bytes_used(self) -> int:
        """About how many bytes it takes."""

    @abstractmethod
    def altering(self) -> AbstractContextManager[None]:
        """Within the block nobody else adds or removes a node."""

    # nodes, partitions and meta

    def node(self, number: int) -> Node:
        """A node that the placement lists, or has listed."""
        known = self._nodes.get(number)
        if known is not None:
            return known
        layout, handle = self.layout, self._handle(f"node-{number}")
        kind = {"synced": layout.synced, "before_images": layout.before_images}
        new = Node(handle, number, **kind, limits=self._limits, first_slots=first_slots(number, layout.nodes))
        return self._nodes.setdefault(number, new)

    @property
    def nodes(self) -> Sequence[Node]:
        """All nodes whose logs are read, as they are now."""
        return [self.node(number) for number in self._refresh_placement().nodes]

    def _refresh_placement(self) -> Placement:
        self.placement = self.meta.read_placement()
        for number in self._nodes.keys() - self.placement.nodes:  # retired: each has a TiB of addresses and six files
            if self._close_idle(f"node-{number}"):
                self._nodes.pop(number, None)
        return self.placement

    def settle(self) -> None:
        """See the placement as it is now, after a move that is under way; one whose mover died is finished."""
        from viewkeeper.stores.local.rebalance import finish

        while (intent := self._refresh_placement().intent) is not None:
            if not self.layout.is_writable:
                raise StoreError(
                    "rows were being moved when a process died", "open the store once where it is writable"
                )
            finish(self, intent)

    def add_node(self) -> Altered:
        from viewkeeper.stores.local.rebalance import add_node

        return add_node(self)

    def remove_node(self, number: int) -> Altered:
        from viewkeeper.stores.local.rebalance import remove_node

        return remove_node(self, number)

    def facts(self) -> Facts:
        from viewkeeper.ports.admin import Facts
        from viewkeeper.stores.local.rebalance import node_facts

        log_entries = sum(node.log_entries() for node in self.nodes)
        lost = "sync=off: base writes survive a crash of the process, not a power loss"
        return Facts(self._bytes_used(), log_entries, () if self.layout.synced else (lost,), node_facts(self))

    def partition(self, number: int) -> Partition:
        found = self._partitions.get(number)
        if found is None:
            from viewkeeper.stores.local.partition import Partition

            found = self._partitions.setdefault(number, Partition(self._handle(f"partition-{number}")))
        return found

    def _each_partition(self) -> list[Partition]:
        return [self.partition(number) for number in range(self.partitions)]

    def hold_rows(self) -> LocalSnapshot:
        from viewkeeper.stores.local.partition import LocalSnapshot

        while True:
            nodes = self.nodes
            held = LocalSnapshot([(node.number, node) for node in nodes])
            if are_whole(node.state_in(held.map_of(node.number)).slots for node in nodes):
                return held
            held.close()  # taken before and after a move, or between its two transactions
            self.settle()

    @property
    def incarnation(self) -> str:
        return self.layout.incarnation

    @property
    def capabilities(self) -> Capabilities:
        return Capabilities(
            before_images=self.layout.before_images,
            atomic_group="node",
            held_reads=True,
            many_processes=self.many_processes,
            is_writable=self.layout.is_writable,
            poll_seconds=_POLL_SECONDS,
        )

    def now(self) -> int:
        return self._clock_base + time.monotonic_ns()

    # base tables

    def node_of(self, key: bytes) -> int:
        placement = self.placement
        return placement.slots[slot_of(key)] if placement.only is None else placement.only

    def write(self, writes: Sequence[RowWrites], *, apart: bool = False) -> Positions:
        while True:
            placement = self.placement
            number = placement.only
            slots: int | None = None
            if number is None:
                try:
                    number, slots = placement.node_of_group(writes)
                except RowsApart:
                    if self._refresh_placement().version == placement.version:
                        raise
                    continue
            node = self.node(number)
            try:
                return {node.stream: node.write(writes, self.now, slots)}
            except Misplaced:
                self.settle()

    def together(self, keys: Sequence[bytes], *, apart: bool = False) -> list[np.ndarray]:
        return self.placement.by_node(keys)

    def get(self, table: int, key: bytes) -> Image:
        while True:
            try:
                return self.node(self.node_of(key)).get(table, key)
            except Misplaced:
                self.settle()

    def get_many(self, table: int, keys: Sequence[bytes]) -> list[Image]:
        while True:
            placement = self.placement
            try:
                if placement.only is not None:
                    return self.node(placement.only).get_many(table, keys)
                found: dict[int, Image] = {}
                by_number: dict[int, list[int]] = {}
                for i, key in enumerate(keys):
                    by_number.setdefault(placement.slots[slot_of(key)], []).append(i)
                for number, chosen in by_number.items():
                    found |= zip(chosen, self.node(number).get_many(table, [keys[i] for i in chosen]), strict=True)
                return [found[i] for i in range(len(keys))]
            except Misplaced:
                self.settle()

    def parts(self, table: int) -> dict[int, int]:
        return {node.number: node.count_rows(table) for node in self.nodes}

    def scan_as_of(
        self, table: int, part: int, positions: Positions, low: bytes = b"", high: bytes | None = None
    ) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa

        node = self.node(part)
        for number, end in self.meta.read_placement().retired.items():
            if positions.get(Stream(str(number)), 0) < end:
                raise PositionLost(f"node {number} was removed after this position", "read a newer snapshot")
        for columns in node.scan_as_of(table, positions.get(node.stream, Position(0)), low, high):
            yield pa.record_batch([pa.array(column, pa.binary()) for column in columns], names=["key", "row"])

    def row_borders(
        self, table: int, part: int, after: bytes, *, rows_max: int, bytes_max: int, pieces: int
    ) -> SplitPoints:
        with self.node(part).kernel.read("rows") as rows:
            return borders(rows, table, after, rows_max=rows_max, bytes_max=bytes_max, pieces=pieces)

    # log

    def moves_after(self, stamp: int) -> bool:
        return self.meta.read_placement().moves_after(stamp)

    def within(self, positions: Positions) -> list[tuple[Node, Position]]:
        """The nodes of streams, without those that are retired."""
        known = {node.stream: node for node in self.nodes}
        return [(known[stream], position) for stream, position in positions.items() if stream in known]

    def ends(self) -> Positions:
        return {node.stream: node.end() for node in self.nodes}

    def describe(self, start: Positions, stop: Positions | None = None) -> LogRange:
        stop = self.ends() if stop is None else stop
        found = [node.describe(start.get(node.stream, 0), end) for node, end in self.within(stop)]
        oldest = min((stamp for _, stamp in found if stamp is not None), default=None)
        return LogRange(count_between(start, stop), sum(size for size, _ in found), oldest, not covers(start, stop))

    def cut(self, start: Positions, *, changes_max: int = ALL, bytes_max: int = ALL, skips: bool = False) -> Cut:
        start = start | self.ends() if skips else start
        nodes, stamp, placement = self._pass_writer_locks(start)
        changes, size = (max(1, most // len(nodes)) for most in (changes_max, bytes_max))
        for node in nodes:
            limit = node.stamp_within(start.get(node.stream, 0), changes_max=changes, bytes_max=size)
            stamp = stamp if limit is None else min(stamp, limit)
        # An epoch has the changes of a row from one stream: it ends with the first move, or before it.
        move = placement.first_move_after(start)
        stamp = stamp if move is None or stamp < move.left else move.arrived
        positions = {stream: end for stream, end in start.items() if int(stream) in placement.retired}
        positions |= {node.stream: node.find_stamp(start.get(node.stream, 0), stamp) for node in nodes}
        for node in nodes:  # a writer in another process may use sync=off (R10.1)
            node.sync()
        return Cut(positions, stamp, count_between(start, positions))

    def _pass_writer_locks(self, start: Positions) -> tuple[Sequence[Node], int, Placement]:
        """An instant such that every transaction stamped up to it has ended, with no move under way or half of one."""
        while True:
            nodes, stamp = self.nodes, self.now()
            for node in nodes:
                if node.end() < start.get(node.stream, 0):
                    raise LogDiverged(
                        f"the log of node {node.stream} ends before what is committed", "restore the whole store"
                    )
                node.pass_writer_lock()
            placement = self.meta.read_placement()
            is_same = placement.nodes == tuple(node.number for node in nodes)
            if is_same and placement.intent is None and not placement.is_apart(stamp):
                return nodes, stamp, placement
            self.settle()

    def pieces(self, stream: Stream, start: Position, stop: Position, *, count: int) -> list[Position]:
        pieces = max(1, min(count, stop - start))
        return [Position(start + (stop - start) * number // pieces) for number in range(pieces + 1)]

    def checksums(self, positions: Positions) -> dict[Stream, int]:
        found = {node.stream: node.find_entry(position) for node, position in self.within(positions) if position}
        return {stream: entry[1].checksum for stream, entry in found.items() if entry and entry[0] == positions[stream]}

    def read_log(self, stream: Stream, start: Position, stop: Position) -> Iterator[tuple[int, pa.RecordBatch]]:
        return self.node(part_of(stream)).read_log(start, stop)

    def truncate_log(self, positions: Positions, *, older_than_seconds: float, entries_max: int) -> int:
        stamp = self.now() - int(older_than_seconds * 1e9)
        nodes = self.within(positions)
        count = sum(node.truncate_log(position, stamp, entries_max=entries_max) for node, position in nodes)
        if self.meta.read_placement().ended:
            from viewkeeper.stores.local.rebalance import retire_nodes

            retire_nodes(self, positions, stamp)
        return count

    # catalog and epoch record

    def read_epoch_record(self) -> EpochRecord:
        return self.meta.read_epoch_record()

    def swap_epoch_record(self, expected_version: int, record: EpochRecord) -> bool:
        return self.meta.swap_epoch_record(expected_version, record)

    def read_frontier(self) -> ReadFrontier:
        return self.meta.read_frontier()

    def read_catalog(self) -> dict:
        return self.meta.read_catalog()

    def swap_catalog(self, expected_version: int, catalog: dict) -> bool:
        return self.meta.swap_catalog(expected_version, catalog)

    def keep_json(self, kind: Kind, name: str, value: dict) -> None:
        self.meta.keep_json(kind, name, value)

    def read_json(self, kind: Kind, name: str) -> dict:
        return self.meta.read_json(kind, name)

    # view tables

    @property
    def partitions(self) -> int:
        return self.layout.partitions

    def read_versions(self, table: int, keys: pa.Array, partitions: np.ndarray, epoch: Inflight) -> StoredVersions:
        from viewkeeper.stores.local.partition import read_versions

        return read_versions(self.partition, table, keys, partitions, epoch)

    def scan_prefixes(
        self, partition: int, table: int, prefixes: Sequence[bytes], epoch: Inflight, *, rows_max: int | None = None
    ) -> Iterator[pa.RecordBatch]:
        return self.partition(partition).scan_prefixes(table, prefixes, epoch, rows_max=rows_max)

    def scan_versions(
        self,
        partition: int,
        table: int,
        epoch: int,
        aborted: tuple[int, ...],
        low: bytes = b"",
        high: bytes | None = None,
    ) -> Iterator[pa.RecordBatch]:
        return self.partition(partition).scan_versions(table, low, high, epoch, aborted)

    def record_borders(
        self, table: int, part: int, after: bytes, *, rows_max: int, bytes_max: int, pieces: int
    ) -> SplitPoints:
        with self.partition(part).kernel.read("records") as records:
            return borders(records, table, after, rows_max=rows_max, bytes_max=bytes_max, pieces=pieces)

    def write_versions(self, writes: Sequence[VersionWrite], epoch: Inflight) -> None:
        from viewkeeper.stores.local.partition import write_versions

        write_versions(self.partition, writes, epoch)

    def admit(self, epoch: Inflight) -> None:
        """Raise the fences, and purge what no reader needs any more: a re-run finds what the first run found."""
        self.meta.kernel.sync()
        for partition in self._each_partition():
            partition.admit(epoch)

    def written_epochs(self) -> tuple[int, int]:
        found = [partition.fence() for partition in self._each_partition()]
        return min(found), max(found)

    def sync(self, *, closed_by: str | None = None) -> None:
        self.meta.kernel.sync()
        for partition in self._each_partition():
            partition.kernel.sync()

    def drop(self, table: int) -> None:
        for partition in self._each_partition():
            partition.drop(table)
        for node in self.nodes:
            node.drop_rows(table)

    def get_record(self, partition: int, table: int, key: bytes, moment: ReadTimestamp) -> Image:
        from viewkeeper.stores.version_chains import row_at

        chain = self.partition(partition).get(table, key)
        return None if chain is None else row_at(chain, moment)

    def hold(self, moment: ReadTimestamp, partitions: Sequence[int]) -> RecordSnapshot:
        from viewkeeper.stores.local.partition import LocalSnapshot
        from viewkeeper.stores.version_chains import RecordSnapshot

        return RecordSnapshot(LocalSnapshot([(number, self.partition(number)) for number in partitions]), moment)
