"""The embedded store: base tables, log, views and epoch record on LMDB, many processes at once.

In: keys and rows as bytes. Out: the same, in key order across nodes and partitions. Always: the promises of the ports
`LogSource` and `Store`; a base write never waits for a view, because views live in environments of their own.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from viewkeeper.errors import CorruptStore, LogDiverged, StoreError
from viewkeeper.model import keys as keycodec
from viewkeeper.model.epochs import EpochRecord, Inflight, forget_views
from viewkeeper.model.fills import Borders
from viewkeeper.model.horizon import Horizon
from viewkeeper.model.moments import Moment
from viewkeeper.model.positions import Cut, Position, Positions, Stream, Waiting
from viewkeeper.model.writes import Image, RowWrites
from viewkeeper.stores.embedded import tree
from viewkeeper.stores.embedded.datafile import require_whole
from viewkeeper.stores.embedded.directory import enter_directory
from viewkeeper.stores.embedded.heldfile import locked
from viewkeeper.stores.embedded.layout import Layout, open_layout
from viewkeeper.stores.embedded.lock import PipelineLock, holder_of
from viewkeeper.stores.embedded.meta import Meta
from viewkeeper.stores.embedded.node import Node
from viewkeeper.stores.limits import LIMITS, Limits
from viewkeeper.stores.logformat import count_between, even_pieces
from viewkeeper.stores.rowgroups import by_node, node_of_group, write_if

if TYPE_CHECKING:
    import lmdb
    import numpy as np
    import pyarrow as pa

    from viewkeeper.ports.records import StoredVersions, VersionWrite
    from viewkeeper.ports.store import Capabilities
    from viewkeeper.ports.upkeep import Backup, Progress
    from viewkeeper.stores.asof import HeldRecords
    from viewkeeper.stores.embedded.environment import Environment
    from viewkeeper.stores.embedded.held import HeldViews
    from viewkeeper.stores.embedded.partition import Partition, Written

_POLL_SECONDS = 0.005
_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


class EmbeddedStore:
    """A store in one directory."""

    def __init__(self, url: str, *, create: bool = True, read_only: bool = False, limits: Limits = LIMITS) -> None:
        self._limits = limits
        self.layout: Layout = open_layout(url, create=create, read_only=read_only)
        self._directory = enter_directory(self.layout)
        try:
            self._open()
        except BaseException:
            self.close()
            raise

    def _open(self) -> None:
        layout, handle = self.layout, self._directory.environment
        meta, parts = layout.parts[0], layout.parts[1:]
        nodes, self._partitions = parts[: layout.nodes], parts[layout.nodes :]
        self._meta = Meta(partial(handle, meta, synced=True))
        self._nodes = [
            Node(
                partial(handle, part, synced=layout.synced),
                number,
                synced=layout.synced,
                before_images=layout.before_images,
                limits=self._limits,
            )
            for number, part in enumerate(nodes)
        ]
        self._open_epoch_record()
        last_stamp = max(node.last_stamp() for node in self._nodes)
        self.boot = _BOOT_ID.read_text().strip() if _BOOT_ID.exists() else "unknown"
        self._clock_base = self._meta.clock_base(self.boot, last_stamp, is_writable=layout.is_writable)
        if self._meta.unclean_boot() not in (None, self.boot):
            self._forget_torn_views()
        for part in self._partitions:  # they are opened when needed, but a missing one must be noticed now
            require_whole(layout.path / part.name / "data.mdb")

    @property
    def url(self) -> str:
        return self.layout.url

    def close(self) -> None:
        """Close; the process's handles are closed with the last open store of this directory."""
        self._directory.leave()

    def is_current(self) -> bool:
        """Whether the open store is the one at its path; False when it was removed, replaced or restored there."""
        return self._directory.is_current(self.layout)

    @property
    def incarnation(self) -> str:
        return self.layout.incarnation

    @property
    def capabilities(self) -> Capabilities:
        from viewkeeper.ports.store import Capabilities

        images = self.layout.before_images
        return Capabilities(
            before_images=images, atomic_group="node", held_reads=True, many_processes=True, poll_seconds=_POLL_SECONDS
        )

    @property
    def is_writable(self) -> bool:
        return self.layout.is_writable

    def now(self) -> int:
        """Nanoseconds on the store's clock: monotonic, the same in all processes."""
        return self._clock_base + time.monotonic_ns()

    def _open_epoch_record(self) -> None:
        """Make the epoch record of a new store; refuse a store whose parts are not of one moment."""
        ends = self.ends()
        if not self._meta.has_epoch_record() and any(ends.values()):
            raise CorruptStore("the store has rows and no epoch record", "restore the whole store from a backup")
        if self.layout.is_writable:
            self._meta.create_epoch_record(EpochRecord.first(self.layout.incarnation))
        for stream, position in self._meta.read_horizon().positions.items():
            if ends.get(stream, 0) < position:
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
        with locked(self.layout.path):
            if self._meta.unclean_boot() in (None, self.boot):
                return
            stored = [table["id"] for table in self.read_catalog().get("tables", ()) if table["delta"] is not None]
            for node in self._nodes:
                node.log_rows(stored, self.now)
            rebuilt = self.ends() if stored else {}
            self.change_epoch_record(lambda record: forget_views(record, rebuilt))
            for part in self._partitions:
                self._directory.remake(part)
            self._meta.mark_views(self.boot, clean=True)

    # base tables

    def node_of(self, key: bytes) -> int:
        return keycodec.placement_hash(key) % len(self._nodes)

    def write(self, writes: Sequence[RowWrites]) -> Positions:
        node = self._nodes[node_of_group(writes, len(self._nodes))]
        return {node.stream: node.write(writes, self.now)}

    def write_if(self, writes: RowWrites, is_expected: Callable[[Image], bool]) -> Positions | None:
        return write_if(self.write, writes, is_expected)

    def together(self, keys: Sequence[bytes]) -> list[np.ndarray]:
        return by_node(keys, len(self._nodes))

    def get(self, table: int, key: bytes) -> Image:
        return self._nodes[self.node_of(key)].get(table, key)

    def get_many(self, table: int, keys: Sequence[bytes]) -> list[Image]:
        if len(self._nodes) == 1:
            return self._nodes[0].get_many(table, keys)
        found: list[Image] = [None] * len(keys)
        for node in self._nodes:
            chosen = [i for i, key in enumerate(keys) if self.node_of(key) == node.number]
            for i, row in zip(chosen, node.get_many(table, [keys[i] for i in chosen]), strict=True):
                found[i] = row
        return found

    def scan(
        self, table: int, start: bytes, stop: bytes | None, *, reverse: bool = False
    ) -> Iterator[tuple[bytes, bytes]]:
        """(key, row) pairs with start <= key < stop, in key order across nodes, all of one moment of each node."""
        with ExitStack() as ends:
            snapshots = [ends.enter_context(node.snapshot()) for node in self._nodes]
            yield from tree.scan_table(snapshots, table, start, stop, reverse=reverse)

    def parts(self, table: int) -> Sequence[int]:
        return range(len(self._nodes))

    def part_of(self, stream: Stream) -> int:
        return int(stream)

    def scan_as_of(
        self, table: int, part: int, positions: Positions, low: bytes = b"", high: bytes | None = None
    ) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa

        node = self._nodes[part]
        for keys, rows in node.scan_as_of(table, positions.get(node.stream, Position(0)), low, high):
            arrays = [pa.array(keys, pa.binary()), pa.array(rows, pa.binary())]
            yield pa.record_batch(arrays, names=["key", "row"])

    def row_borders(
        self, table: int, part: int, after: bytes, *, rows_max: int, bytes_max: int, pieces: int
    ) -> Borders:
        return self._nodes[part].borders(table, after, rows_max=rows_max, bytes_max=bytes_max, pieces=pieces)

    def count_rows(self, table: int) -> int:
        return sum(node.count_rows(table) for node in self._nodes)

    def drop_rows(self, table: int) -> None:
        for node in self._nodes:
            node.drop_rows(table)

    # log

    def _node(self, stream: Stream) -> Node:
        return self._nodes[self.part_of(stream)]

    def ends(self) -> Positions:
        return {node.stream: node.end() for node in self._nodes}

    def cut(self, start: Positions, *, changes_max: int, bytes_max: int) -> Cut:
        for node in self._nodes:
            if node.end() < start.get(node.stream, 0):
                raise LogDiverged(
                    f"the log of node {node.stream} ends before what is committed", "restore the whole store"
                )
        stamp = self.now()
        for node in self._nodes:  # every transaction stamped before this instant has ended once its lock was passed
            node.pass_writer_lock()
        changes, size = (max(1, most // len(self._nodes)) for most in (changes_max, bytes_max))
        for node in self._nodes:
            limit = node.stamp_within(start.get(node.stream, 0), changes_max=changes, bytes_max=size)
            stamp = stamp if limit is None else min(stamp, limit)
        positions = {node.stream: node.find_stamp(start.get(node.stream, 0), stamp) for node in self._nodes}
        for node in self._nodes:  # a writer in another process may use sync=off (R10.1)
            node.sync()
        return Cut(positions, stamp, count_between(start, positions))

    def log_bytes(self, start: Positions, stop: Positions) -> int:
        return sum(self._node(stream).bytes_between(start.get(stream, 0), end) for stream, end in stop.items())

    def waiting(self, start: Positions) -> Waiting:
        found = [node.find_entry(start.get(node.stream, 0) + 1) for node in self._nodes]
        oldest = min((entry[1].stamp for entry in found if entry), default=None)
        return Waiting(count_between(start, self.ends()), oldest)

    def pieces(self, stream: Stream, start: Position, stop: Position, *, count: int) -> list[Position]:
        return even_pieces(start, stop, count)

    def checksums(self, positions: Positions) -> dict[Stream, int]:
        found = {stream: self._node(stream).find_entry(position) for stream, position in positions.items() if position}
        return {stream: entry[1].checksum for stream, entry in found.items() if entry and entry[0] == positions[stream]}

    def read_log(self, stream: Stream, start: Position, stop: Position) -> Iterator[tuple[int, pa.RecordBatch]]:
        return self._node(stream).read_log(start, stop)

    def truncate_log(self, positions: Positions, *, older_than_seconds: float, entries_max: int) -> int:
        stamp = self.now() - int(older_than_seconds * 1e9)
        nodes = [(self._node(stream), position) for stream, position in positions.items()]
        return sum(node.truncate_log(position, stamp, entries_max=entries_max) for node, position in nodes)

    def log_entries(self) -> int:
        """How many entries the log holds, on all nodes."""
        return sum(node.log_entries() for node in self._nodes)

    # catalog and epoch record

    def read_epoch_record(self) -> EpochRecord:
        return self._meta.read_epoch_record()

    def swap_epoch_record(self, expected_version: int, record: EpochRecord) -> bool:
        return self._meta.swap_epoch_record(expected_version, record)

    def change_epoch_record(self, change: Callable[[EpochRecord], EpochRecord]) -> EpochRecord:
        """Swap in the record that `change` returns; repeated while others swap theirs in between."""
        while True:
            record = self._meta.read_epoch_record()
            changed = change(record)
            if self._meta.swap_epoch_record(record.version, changed):
                return changed

    def read_horizon(self) -> Horizon:
        """What readers may see now: a small part of epoch record and catalog."""
        return self._meta.read_horizon()

    def sync_epoch_record(self) -> None:
        self._meta.sync()

    def last_meta_change(self) -> int:
        """A number that grows with every change of catalog or epoch record; checked before every read and write."""
        return self._meta.last_change()

    def read_catalog(self) -> dict:
        return self._meta.read_catalog()

    def keep_plan(self, digest: str, plan: dict) -> None:
        self._meta.keep_plan(digest, plan)

    def read_plan(self, digest: str) -> dict:
        return self._meta.read_plan(digest)

    def swap_catalog(self, expected_version: int, catalog: dict) -> bool:
        return self._meta.swap_catalog(expected_version, catalog)

    # view tables

    @property
    def partitions(self) -> int:
        return self.layout.partitions

    def partition(self, number: int) -> Partition:
        from viewkeeper.stores.embedded.partition import Partition

        return Partition(partial(self._directory.environment, self._partitions[number], synced=False))

    def partition_of(self, first_part: bytes) -> int:
        return keycodec.placement_hash(first_part) % self.layout.partitions

    def read_versions(self, table: int, keys: pa.Array, partitions: np.ndarray, epoch: Inflight) -> StoredVersions:
        import numpy as np
        import pyarrow as pa

        from viewkeeper.ports.records import StoredVersions
        from viewkeeper.stores.embedded.partition import runs, stored_keys
        from viewkeeper.stores.versions import rows_before

        spans = list(runs(partitions))
        if not any(self.has_records(partition, table) for partition, _, _ in spans):  # first fill
            none = pa.nulls(len(keys), pa.binary())
            return StoredVersions(keys, partitions, none, np.zeros(len(keys), bool), none, none)
        wanted = stored_keys(table, keys)
        found: list[bytes | None] = []
        for partition, start, stop in spans:
            found += self.partition(partition).read(wanted[start:stop])
        chains = pa.array(found, pa.binary())
        rows, applied, now = rows_before(chains, epoch.epoch, epoch.aborted)
        return StoredVersions(keys, partitions, rows, applied, now, chains)

    def next_keys(
        self,
        partition: int,
        table: int,
        ranges: Sequence[tuple[bytes, bytes]],
        left_out: frozenset[bytes],
        epoch: Inflight,
        *,
        reverse: bool,
    ) -> list[bytes | None]:
        return self.partition(partition).next_keys(table, ranges, left_out, epoch, reverse=reverse)

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
    ) -> Borders:
        return self.partition(part).borders(table, after, rows_max=rows_max, bytes_max=bytes_max, pieces=pieces)

    def count_records(self, table: int) -> int:
        return sum(self.partition(number).count_records(table) for number in range(self.partitions))

    def write_versions(self, writes: Sequence[VersionWrite], epoch: Inflight) -> None:
        from viewkeeper.stores.embedded.partition import prepare

        by_partition: dict[int, list[Written]] = {}
        for write in writes:
            for partition, written in prepare(write, epoch):
                by_partition.setdefault(partition, []).append(written)
        for partition in sorted(by_partition):
            self.partition(partition).write(by_partition[partition], epoch)

    def admit(self, epoch: Inflight) -> None:
        """Raise the fences, and purge what no reader needs any more: a re-run finds what the first run found."""
        for number in range(self.partitions):
            self.partition(number).admit(epoch)

    def purge(self, record: EpochRecord, *, records_max: int) -> int:
        """Old versions are dropped with the write of a newer one, tombstones when an epoch is admitted."""
        return 0

    def sync_views(self) -> None:
        for number in range(self.partitions):
            self.partition(number).sync()

    def written_epochs(self) -> tuple[int, int]:
        found = [self.partition(number).fence() for number in range(self.partitions)]
        return min(found), max(found)

    def open_views(self) -> None:
        self._meta.mark_views(self.boot, clean=False)

    def close_views(self, owner: str) -> None:
        self.sync_views()
        self._meta.mark_views(self.boot, clean=True, owner=owner)

    def drop_records(self, table: int) -> None:
        for number in range(self.partitions):
            self.partition(number).drop(table)

    def get_record(self, partition: int, table: int, key: bytes, moment: Moment) -> Image:
        from viewkeeper.stores.versions import version_at

        chain = self.partition(partition).get(table, key)
        return None if chain is None else version_at(chain, moment.epoch, moment.aborted)

    def hold(self, moment: Moment, partitions: Sequence[int]) -> HeldRecords:
        from viewkeeper.stores.asof import HeldRecords
        from viewkeeper.stores.embedded.held import HeldViews

        return HeldRecords(HeldViews([(number, self.partition(number)) for number in partitions]), moment)

    def hold_rows(self) -> HeldViews:
        """The rows of all tables as they are now, until the result is closed."""
        from viewkeeper.stores.embedded.held import HeldViews

        return HeldViews([(node.number, node) for node in self._nodes])

    # the store as a whole

    def claim(self, *, take_over: bool) -> PipelineLock:
        """The right to run the pipeline; PipelineRunning when another has it."""
        return PipelineLock(self.layout.lock, take_over=take_over)

    def claimed_by(self) -> int | None:
        """The pid of the process that runs the pipeline; None when none does."""
        return holder_of(self.layout.lock)

    def clear_stale_readers(self) -> int:
        return sum(environment.clear_stale_readers() for environment in self.environments().values())

    def environments(self) -> dict[str, Environment]:
        """All of the store's environments by name, meta first."""
        found = {"meta": self._meta.environment}
        found |= {f"node-{node.stream}": node.environment for node in self._nodes}
        return found | {f"partition-{number}": self.partition(number).environment for number in range(self.partitions)}

    def epoch_record_in(self, snapshot: lmdb.Transaction) -> EpochRecord:
        """The epoch record as a read transaction on meta sees it."""
        return self._meta.epoch_record_in(snapshot)

    def back_up(self, destination: Path, progress: Progress | None = None) -> Backup:
        """The whole store as of one moment, in a new directory."""
        from viewkeeper.stores.embedded.backup import back_up

        return back_up(self, destination, progress)

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Within the block no other process has the store open, and no pipeline runs; StoreInUse if one does."""
        from viewkeeper.stores.embedded.compact import alone

        with alone(self._directory):
            yield

    def compact(self, progress: Progress | None = None) -> None:
        """Return free space inside the data files to the file system; only within `alone`."""
        from viewkeeper.stores.embedded.compact import compact_files

        compact_files(self._directory, progress)

    def warnings(self) -> tuple[str, ...]:
        lost = "sync=off: base writes survive a crash of the process, not a power loss"
        return () if self.layout.synced else (lost,)

    def bytes_used(self) -> int:
        return sum(file.stat().st_blocks * 512 for file in self.layout.path.rglob("data.mdb"))
