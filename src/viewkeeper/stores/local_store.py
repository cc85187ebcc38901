"""The local store: all that the embedded store and the memory store have in common.

In: keys and rows as bytes. Out: the same, in key order across nodes and partitions. Always: the promises of the port
`Store`, kept by nodes (base rows and their log), partitions (records of views) and meta, of which each adapter has its
own. Arrow and numpy are imported where they are needed: reads and writes of single rows need neither.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from viewkeeper.errors import LogDiverged, PositionLost, RowsMoved
from viewkeeper.model.epochs import EpochRecord, Inflight
from viewkeeper.model.keys import placement_hash
from viewkeeper.model.positions import Cut, Position, Positions, Stream, Waiting, covers
from viewkeeper.model.read_frontier import Horizon
from viewkeeper.model.schema import TableSchema
from viewkeeper.model.stored_rows import Expected, Image, RowWrites
from viewkeeper.stores.log_format import count_between, even_pieces
from viewkeeper.stores.log_shard import LogShard, by_node, node_of_write_group, refuse_mapping, write_if
from viewkeeper.stores.placement import Misplaced, Placement, fills_from, slot_of

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa

    from viewkeeper.model.positions import SplitPoints
    from viewkeeper.model.read_frontier import ReadTimestamp
    from viewkeeper.ports.base_rows import HeldRows
    from viewkeeper.ports.records import StoredVersions, VersionWrite
    from viewkeeper.ports.store import Capabilities, Executor
    from viewkeeper.stores.version_chains import ChainSnapshot, RecordSnapshot, Written

_POLL_SECONDS = 0.005
_ALL = 1 << 62


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreLayout:
    """What was fixed when a store was made; `nodes` is how many it was made with."""

    nodes: int
    partitions: int
    incarnation: str
    before_images: bool


class Partition(Protocol):
    """Chains of versions of records; see the ports `VersionedTables` and `Reads`."""

    def get(self, table: int, key: bytes) -> bytes | None: ...

    def read(self, table: int, keys: Sequence[bytes]) -> list[bytes | None]: ...

    def scan_prefixes(
        self, table: int, prefixes: Sequence[bytes], epoch: Inflight, *, rows_max: int | None
    ) -> Iterator[pa.RecordBatch]: ...

    def scan_versions(
        self, table: int, low: bytes, high: bytes | None, epoch: int, aborted: tuple[int, ...]
    ) -> Iterator[pa.RecordBatch]: ...

    def has_records(self, table: int) -> bool: ...

    def borders(self, table: int, after: bytes, *, rows_max: int, bytes_max: int, pieces: int) -> SplitPoints: ...

    def write(self, written: Sequence[Written], epoch: Inflight) -> None: ...

    def admit(self, epoch: Inflight) -> None: ...

    def fence(self) -> int: ...

    def drop(self, table: int) -> None: ...


class Meta(Protocol):
    """Epoch record, catalog and plans; see the port `Meta`."""

    def read_epoch_record(self) -> EpochRecord: ...

    def swap_epoch_record(self, expected_version: int, record: EpochRecord) -> bool: ...

    def read_horizon(self) -> Horizon: ...

    def read_catalog(self) -> dict: ...

    def swap_catalog(self, expected_version: int, catalog: dict) -> bool: ...

    def keep_plan(self, digest: str, plan: dict) -> None: ...

    def read_plan(self, digest: str) -> dict: ...

    def keep_note(self, name: str, note: dict) -> None: ...

    def read_note(self, name: str) -> dict: ...

    def read_placement(self) -> Placement: ...

    def change_placement(self, change: Callable[[Placement, EpochRecord], Placement]) -> Placement: ...


class LocalStore(Protocol):
    """A store whose rows are on nodes, by the slots of their keys, and whose records are in partitions.

    The placement as last seen is good enough to write and get: a node refuses rows that it has not (Misplaced).
    """

    many_processes: bool  # see `Capabilities`

    @property
    def layout(self) -> StoreLayout: ...

    @property
    def placement(self) -> Placement:
        """As last seen."""
        ...

    def node(self, number: int) -> LogShard:
        """A node that the placement lists, or has listed."""
        ...

    @property
    def nodes(self) -> Sequence[LogShard]:
        """All nodes whose logs are read, as they are now."""
        ...

    def settle(self) -> None:
        """See the placement as it is now, after a move that is under way; one whose mover died is finished."""
        ...

    def partition(self, number: int) -> Partition: ...

    @property
    def meta(self) -> Meta: ...

    def now(self) -> int: ...

    def hold_rows(self) -> HeldRows: ...

    def snapshot_chains(self, partitions: Sequence[int]) -> ChainSnapshot: ...

    @property
    def incarnation(self) -> str:
        return self.layout.incarnation

    @property
    def capabilities(self) -> Capabilities:
        from viewkeeper.ports.store import Capabilities

        return Capabilities(
            before_images=self.layout.before_images,
            atomic_group="node",
            held_reads=True,
            many_processes=self.many_processes,
            poll_seconds=_POLL_SECONDS,
        )

    # base tables

    def node_of(self, key: bytes) -> int:
        placement = self.placement
        return placement.slots[slot_of(key)] if placement.only is None else placement.only

    def map_table(self, schema: TableSchema, using: str | None, options: Mapping[str, str]) -> None:
        refuse_mapping(using)

    def write(self, writes: Sequence[RowWrites], *, apart: bool = False) -> Positions:
        while True:
            number, slots = node_of_write_group(writes, self.placement)
            node = self.node(number)
            try:
                return {node.stream: node.write(writes, self.now, slots)}
            except Misplaced:
                self.settle()

    def write_if(self, writes: RowWrites, expected: Expected) -> Positions | None:
        return write_if(self.write, writes, expected)

    def together(self, keys: Sequence[bytes], *, apart: bool = False) -> list[np.ndarray]:
        return by_node(keys, self.placement)

    def get(self, table: int, key: bytes) -> Image:
        while True:
            try:
                return self.node(self.node_of(key)).get(table, key)
            except Misplaced:
                self.settle()

    def get_many(self, table: int, keys: Sequence[bytes]) -> list[Image]:
        while True:
            try:
                return self._get_many(table, keys, self.placement)
            except Misplaced:
                self.settle()

    def _get_many(self, table: int, keys: Sequence[bytes], placement: Placement) -> list[Image]:
        if placement.only is not None:
            return self.node(placement.only).get_many(table, keys)
        found: list[Image] = [None] * len(keys)
        by_number: dict[int, list[int]] = {}
        for i, key in enumerate(keys):
            by_number.setdefault(placement.slots[slot_of(key)], []).append(i)
        for number, chosen in by_number.items():
            for i, row in zip(chosen, self.node(number).get_many(table, [keys[i] for i in chosen]), strict=True):
                found[i] = row
        return found

    def scan(
        self, table: int, start: bytes, stop: bytes | None, *, reverse: bool = False
    ) -> Iterator[tuple[bytes, bytes]]:
        """(key, row) pairs with start <= key < stop, in key order across nodes, all of one moment of each node."""
        with closing(self.hold_rows()) as held:
            yield from held.scan_all(table, start, stop, reverse=reverse)

    def parts(self, table: int) -> Sequence[int]:
        return [node.number for node in self.nodes]

    def part_of(self, stream: Stream) -> int:
        return int(stream)

    def scan_as_of(
        self, table: int, part: int, positions: Positions, low: bytes = b"", high: bytes | None = None
    ) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa

        node = self.node(part)
        for number, end in self.meta.read_placement().retired.items():
            if positions.get(Stream(str(number)), 0) < end:
                raise PositionLost(f"node {number} was removed since", "read a later state")
        for columns in node.scan_as_of(table, positions.get(node.stream, Position(0)), low, high):
            yield pa.record_batch([pa.array(column, pa.binary()) for column in columns], names=["key", "row"])

    def row_borders(
        self, table: int, part: int, after: bytes, *, rows_max: int, bytes_max: int, pieces: int
    ) -> SplitPoints:
        return self.node(part).borders(table, after, rows_max=rows_max, bytes_max=bytes_max, pieces=pieces)

    def stage(self, table: TableSchema, *, rows_max: int) -> bool:
        return True  # all rows of a table are in the log from the first on

    def use_executor(self, spread: Executor | None) -> None:
        return None  # of no use: logs are cut by their indexes, and no row is staged

    def count_rows(self, table: int) -> int:
        return sum(node.count_rows(table) for node in self.nodes)

    def drop_rows(self, table: int) -> None:
        for node in self.nodes:
            node.drop_rows(table)

    # log

    def moves_after(self, stamp: int) -> bool:
        return self.meta.read_placement().moves_after(stamp)

    def _in(self, positions: Positions) -> list[tuple[LogShard, Position]]:
        """The nodes of streams, without those that are retired."""
        known = {node.stream: node for node in self.nodes}
        return [(known[stream], position) for stream, position in positions.items() if stream in known]

    def ends(self) -> Positions:
        return {node.stream: node.end() for node in self.nodes}

    def cut(self, start: Positions, *, changes_max: int, bytes_max: int) -> Cut:
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

    def _pass_writer_locks(self, start: Positions) -> tuple[Sequence[LogShard], int, Placement]:
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

    def last_entries(self) -> Positions:
        return self.ends()

    def has_changes(self, start: Positions, stop: Positions) -> bool:
        return not covers(start, stop)

    def skip_log(self, start: Positions) -> Cut:
        return self.cut(start | self.ends(), changes_max=_ALL, bytes_max=_ALL)

    def log_bytes(self, start: Positions, stop: Positions) -> int:
        return sum(node.bytes_between(start.get(node.stream, 0), end) for node, end in self._in(stop))

    def waiting(self, start: Positions) -> Waiting:
        found = [node.find_entry(start.get(node.stream, 0) + 1) for node in self.nodes]
        oldest = min((entry[1].stamp for entry in found if entry), default=None)
        return Waiting(count_between(start, self.ends()), oldest)

    def retire_nodes(self, positions: Positions, *, older_than_seconds: float) -> int:
        """Forget nodes that were removed, once all of their logs is committed and old; returns how many."""
        ended, stamp = self.meta.read_placement().ended, self.now() - int(older_than_seconds * 1e9)
        gone = 0
        for node, position in self._in(positions) if ended else ():
            end = node.log_end()
            if node.number in ended and position >= end.position and end.stamp < stamp:
                self._retire(node.number, end.position)
                gone += 1
        return gone

    def _retire(self, number: int, position: int) -> None:
        self.meta.change_placement(lambda placement, _: placement.without_node(number, position))

    def pieces(self, stream: Stream, start: Position, stop: Position, *, count: int) -> list[Position]:
        return even_pieces(start, stop, count)

    def checksums(self, positions: Positions) -> dict[Stream, int]:
        found = {node.stream: node.find_entry(position) for node, position in self._in(positions) if position}
        return {stream: entry[1].checksum for stream, entry in found.items() if entry and entry[0] == positions[stream]}

    def read_log(self, stream: Stream, start: Position, stop: Position) -> Iterator[tuple[int, pa.RecordBatch]]:
        return self.node(self.part_of(stream)).read_log(start, stop)

    def truncate_log(self, positions: Positions, *, older_than_seconds: float, entries_max: int) -> int:
        stamp = self.now() - int(older_than_seconds * 1e9)
        nodes = self._in(positions)
        return sum(node.truncate_log(position, stamp, entries_max=entries_max) for node, position in nodes)

    def log_entries(self) -> int:
        return sum(node.log_entries() for node in self.nodes)

    # catalog and epoch record

    def read_epoch_record(self) -> EpochRecord:
        return self.meta.read_epoch_record()

    def swap_epoch_record(self, expected_version: int, record: EpochRecord) -> bool:
        self._require_no_moves(record)
        return self.meta.swap_epoch_record(expected_version, record)

    def _require_no_moves(self, record: EpochRecord) -> None:
        """Raise RowsMoved where an epoch would fill views from rows that have moved since it was planned."""
        instant = fills_from(record)
        if instant is not None and self.meta.read_placement().may_have_moved(instant):
            raise RowsMoved("rows have moved to another node since the epoch was planned", "it is planned again")

    def change_epoch_record(self, change: Callable[[EpochRecord], EpochRecord]) -> EpochRecord:
        while True:
            record = self.meta.read_epoch_record()
            changed = change(record)
            if self.meta.swap_epoch_record(record.version, changed):
                return changed

    def read_horizon(self) -> Horizon:
        return self.meta.read_horizon()

    def read_catalog(self) -> dict:
        return self.meta.read_catalog()

    def swap_catalog(self, expected_version: int, catalog: dict) -> bool:
        return self.meta.swap_catalog(expected_version, catalog)

    def keep_plan(self, digest: str, plan: dict) -> None:
        self.meta.keep_plan(digest, plan)

    def read_plan(self, digest: str) -> dict:
        return self.meta.read_plan(digest)

    def keep_note(self, name: str, note: dict) -> None:
        self.meta.keep_note(name, note)

    def read_note(self, name: str) -> dict:
        return self.meta.read_note(name)

    # view tables

    @property
    def partitions(self) -> int:
        return self.layout.partitions

    def partition_of(self, first_part: bytes) -> int:
        return placement_hash(first_part) % self.layout.partitions

    def _each_partition(self) -> list[Partition]:
        return [self.partition(number) for number in range(self.partitions)]

    def read_versions(self, table: int, keys: pa.Array, partitions: np.ndarray, epoch: Inflight) -> StoredVersions:
        import numpy as np
        import pyarrow as pa

        from viewkeeper.ports.records import StoredVersions
        from viewkeeper.stores.version_chains import rows_before, runs

        if not any(self.has_records(partition, table) for partition, _, _ in runs(partitions)):  # first fill
            none = pa.nulls(len(keys), pa.binary())
            return StoredVersions(keys, partitions, none, np.zeros(len(keys), bool), none, none)
        chains = self._chains(table, keys, partitions)
        rows, applied, now = rows_before(chains, epoch.epoch, epoch.aborted)
        return StoredVersions(keys, partitions, rows, applied, now, chains)

    def _chains(self, table: int, keys: pa.Array, partitions: np.ndarray) -> pa.Array:
        """The chains of records, given in the order of their partitions."""
        import pyarrow as pa

        from viewkeeper.stores.version_chains import runs

        wanted, found = keys.to_pylist(), list[bytes | None]()
        for partition, start, stop in runs(partitions):
            found += self.partition(partition).read(table, wanted[start:stop])
        return pa.array(found, pa.binary())

    def scan_prefixes(
        self, partition: int, table: int, prefixes: Sequence[bytes], epoch: Inflight, *, rows_max: int | None = None
    ) -> Iterator[pa.RecordBatch]:
        return self.partition(partition).scan_prefixes(table, prefixes, epoch, rows_max=rows_max)

    def has_records(self, partition: int, table: int) -> bool:
        return self.partition(partition).has_records(table)

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
        return self.partition(part).borders(table, after, rows_max=rows_max, bytes_max=bytes_max, pieces=pieces)

    def write_versions(self, writes: Sequence[VersionWrite], epoch: Inflight) -> None:
        from viewkeeper.stores.version_chains import prepare

        by_partition: dict[int, list[Written]] = {}
        for write in writes:
            for partition, written in prepare(write, epoch):
                by_partition.setdefault(partition, []).append(written)
        for partition in sorted(by_partition):
            self.partition(partition).write(by_partition[partition], epoch)

    def admit(self, epoch: Inflight) -> None:
        """Raise the fences, and purge what no reader needs any more: a re-run finds what the first run found."""
        for partition in self._each_partition():
            partition.admit(epoch)

    def written_epochs(self) -> tuple[int, int]:
        found = [partition.fence() for partition in self._each_partition()]
        return min(found), max(found)

    def purge(self, record: EpochRecord, *, records_max: int) -> int:
        """Old versions are dropped with the write of a newer one, tombstones when an epoch is admitted."""
        return 0

    def drop_records(self, table: int) -> None:
        for partition in self._each_partition():
            partition.drop(table)

    def get_record(self, partition: int, table: int, key: bytes, moment: ReadTimestamp) -> Image:
        from viewkeeper.stores.version_chains import row_at

        chain = self.partition(partition).get(table, key)
        return None if chain is None else row_at(chain, moment)

    def get_committed(self, partition: int, table: int, key: bytes) -> None:
        """Never: a look at the horizon costs next to nothing here."""
        return None

    def hold(self, moment: ReadTimestamp, partitions: Sequence[int]) -> RecordSnapshot:
        from viewkeeper.stores.version_chains import RecordSnapshot

        return RecordSnapshot(self.snapshot_chains(partitions), moment)
