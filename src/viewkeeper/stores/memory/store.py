"""The memory store: base tables, log, views and epoch record in this process's memory, for tests.

In: keys and rows as bytes. Out: the same, in key order across nodes and partitions. Always: the promises of the ports
`LogSource` and `Store`, among the threads of this process; nothing survives a power loss. One lock separates all
writers; readers take none, because what they read never changes.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pyarrow as pa

from viewkeeper.errors import InputError, LogDiverged, NotOffered, PipelineRunning, StoreInUse
from viewkeeper.model import keys as keycodec
from viewkeeper.model.epochs import EpochRecord, Inflight
from viewkeeper.model.fills import Borders
from viewkeeper.model.horizon import Horizon
from viewkeeper.model.moments import Moment
from viewkeeper.model.positions import Cut, Position, Positions, Stream, Waiting
from viewkeeper.model.writes import Image, RowWrites
from viewkeeper.ports.records import StoredVersions, VersionWrite
from viewkeeper.ports.store import Capabilities, Store
from viewkeeper.ports.upkeep import Backup, Progress
from viewkeeper.stores.asof import HeldRecords
from viewkeeper.stores.borders import cut_in_pieces
from viewkeeper.stores.logbatches import decode_entries, images_before
from viewkeeper.stores.logformat import count_between, even_pieces
from viewkeeper.stores.memory.contents import Claim, Contents, Layout, leave
from viewkeeper.stores.memory.held import HeldTables, merge_tables
from viewkeeper.stores.memory.log import Log
from viewkeeper.stores.memory.node import NO_PAIRS
from viewkeeper.stores.memory.pairs import Pair, Pairs, in_lists
from viewkeeper.stores.rowgroups import by_node, node_of_group, write_if
from viewkeeper.stores.versions import push, rows_before, version_at

_LIST_ROWS = 50_000
_BORDER_ROWS = 4_096
_POLL_SECONDS = 0.005


class MemoryStore(Store):
    """An open store; several of one name are one store."""

    def __init__(self, contents: Contents) -> None:
        self._opened: Contents | None = contents
        self.layout: Layout = contents.layout

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
    def url(self) -> str:
        return self.layout.url

    @property
    def incarnation(self) -> str:
        return self.layout.incarnation

    @property
    def capabilities(self) -> Capabilities:
        return Capabilities(
            before_images=self.layout.before_images,
            atomic_group="node",
            held_reads=True,
            many_processes=False,
            poll_seconds=_POLL_SECONDS,
        )

    @property
    def is_writable(self) -> bool:
        return True

    def now(self) -> int:
        """Nanoseconds on the store's clock, which is monotonic."""
        return self._contents.now()

    # base tables

    def node_of(self, key: bytes) -> int:
        return keycodec.placement_hash(key) % self.layout.nodes

    def write(self, writes: Sequence[RowWrites]) -> Positions:
        contents = self._contents
        node = contents.nodes[node_of_group(writes, self.layout.nodes)]
        with contents.lock:
            return {node.stream: node.write(writes, contents.now)}

    def write_if(self, writes: RowWrites, is_expected: Callable[[Image], bool]) -> Positions | None:
        return write_if(self.write, writes, is_expected)

    def together(self, keys: Sequence[bytes]) -> list[np.ndarray]:
        return by_node(keys, self.layout.nodes)

    def get(self, table: int, key: bytes) -> Image:
        return self._rows(self.node_of(key), table).get(key)

    def get_many(self, table: int, keys: Sequence[bytes]) -> list[Image]:
        return [self.get(table, key) for key in keys]

    def scan(self, table: int, start: bytes, stop: bytes | None, *, reverse: bool = False) -> Iterator[Pair]:
        """(key, row) pairs with start <= key < stop, in key order across nodes, all of one moment of each node."""
        return merge_tables([node.rows for node in self._contents.nodes], table, start, stop, reverse=reverse)

    def parts(self, table: int) -> Sequence[int]:
        return range(self.layout.nodes)

    def part_of(self, stream: Stream) -> int:
        return int(stream)

    def scan_as_of(
        self, table: int, part: int, positions: Positions, low: bytes = b"", high: bytes | None = None
    ) -> Iterator[pa.RecordBatch]:
        contents = self._contents
        with contents.lock:
            rows, node = self._rows(part, table), contents.nodes[part]
            since = self.read_log(node.stream, positions.get(node.stream, Position(0)), node.log.end)
            changes = [batch for number, batch in since if number == table]
        earlier = rows.changed(images_before(changes, low, high))
        for some in in_lists(earlier.walk_after(low, high), _LIST_ROWS):
            yield pa.record_batch([pa.array(column, pa.binary()) for column in zip(*some, strict=True)], ["key", "row"])

    def row_borders(
        self, table: int, part: int, after: bytes, *, rows_max: int, bytes_max: int, pieces: int
    ) -> Borders:
        return _borders(self._rows(part, table), after, rows_max=rows_max, bytes_max=bytes_max, pieces=pieces)

    def count_rows(self, table: int) -> int:
        return sum(len(self._rows(node, table)) for node in range(self.layout.nodes))

    def drop_rows(self, table: int) -> None:
        contents = self._contents
        with contents.lock:
            for node in contents.nodes:
                node.rows = {other: pairs for other, pairs in node.rows.items() if other != table}

    def _rows(self, node: int, table: int) -> Pairs:
        return self._contents.nodes[node].rows.get(table, NO_PAIRS)

    # log

    def ends(self) -> Positions:
        return {node.stream: node.log.end for node in self._contents.nodes}

    def cut(self, start: Positions, *, changes_max: int, bytes_max: int) -> Cut:
        contents = self._contents
        with contents.lock:  # so every transaction stamped before this instant has ended
            stamp, logs = contents.now(), {node.stream: node.log for node in contents.nodes}
            changes, size = (max(1, most // len(logs)) for most in (changes_max, bytes_max))
            begins = {stream: start.get(stream, Position(0)) for stream in logs}
            for stream, log in logs.items():
                if log.end < begins[stream]:
                    raise LogDiverged(f"the log of node {stream} ends before what is committed", "make a new store")
                limit = log.stamp_within(begins[stream], changes_max=changes, bytes_max=size)
                stamp = stamp if limit is None else min(stamp, limit)
            positions = {stream: log.find_stamp(begins[stream], stamp) for stream, log in logs.items()}
            return Cut(positions, stamp, count_between(start, positions))

    def _log(self, stream: Stream) -> Log:
        return self._contents.nodes[self.part_of(stream)].log

    def log_bytes(self, start: Positions, stop: Positions) -> int:
        with self._contents.lock:
            return sum(self._log(stream).bytes_between(start.get(stream, 0), end) for stream, end in stop.items())

    def waiting(self, start: Positions) -> Waiting:
        contents = self._contents
        with contents.lock:
            found = [node.log.find_entry(start.get(node.stream, 0) + 1) for node in contents.nodes]
            oldest = min((entry[1].stamp for entry in found if entry), default=None)
            return Waiting(count_between(start, self.ends()), oldest)

    def pieces(self, stream: Stream, start: Position, stop: Position, *, count: int) -> list[Position]:
        return even_pieces(start, stop, count)

    def checksums(self, positions: Positions) -> dict[Stream, int]:
        with self._contents.lock:
            found = {stream: self._log(stream).find_entry(at) for stream, at in positions.items() if at}
        return {stream: entry[1].checksum for stream, entry in found.items() if entry and entry[0] == positions[stream]}

    def read_log(self, stream: Stream, start: Position, stop: Position) -> Iterator[tuple[int, pa.RecordBatch]]:
        while start < stop:
            with self._contents.lock:
                entries, ends = self._log(stream).read(start, stop)
            if not entries:
                return
            yield from decode_entries(entries, ends)
            start = Position(ends[-1])

    def truncate_log(self, positions: Positions, *, older_than_seconds: float, entries_max: int) -> int:
        contents = self._contents
        with contents.lock:
            stamp = contents.now() - int(older_than_seconds * 1e9)
            return sum(
                self._log(stream).truncate(position, stamp, entries_max=entries_max)
                for stream, position in positions.items()
            )

    def log_entries(self) -> int:
        """How many entries the log holds, on all nodes."""
        return sum(len(node.log) for node in self._contents.nodes)

    # catalog and epoch record

    def read_epoch_record(self) -> EpochRecord:
        return self._contents.meta.read_epoch_record()

    def swap_epoch_record(self, expected_version: int, record: EpochRecord) -> bool:
        contents = self._contents
        with contents.lock:
            return contents.meta.swap_epoch_record(expected_version, record)

    def change_epoch_record(self, change: Callable[[EpochRecord], EpochRecord]) -> EpochRecord:
        """Swap in the record that `change` returns."""
        with self._contents.lock:
            record = self.read_epoch_record()
            changed = change(record)
            self.swap_epoch_record(record.version, changed)
            return changed

    def read_horizon(self) -> Horizon:
        """What readers may see now: a small part of epoch record and catalog."""
        return self._contents.meta.read_horizon()

    def sync_epoch_record(self) -> None:
        """Nothing here survives a power loss."""

    def last_meta_change(self) -> int:
        """A number that grows with every change of catalog or epoch record; checked before every read and write."""
        return self._contents.meta.changes

    def read_catalog(self) -> dict:
        return self._contents.meta.read_catalog()

    def keep_plan(self, digest: str, plan: dict) -> None:
        contents = self._contents
        with contents.lock:
            contents.meta.keep_plan(digest, plan)

    def read_plan(self, digest: str) -> dict:
        return self._contents.meta.read_plan(digest)

    def swap_catalog(self, expected_version: int, catalog: dict) -> bool:
        contents = self._contents
        with contents.lock:
            return contents.meta.swap_catalog(expected_version, catalog)

    # view tables

    @property
    def partitions(self) -> int:
        return self.layout.partitions

    def partition_of(self, first_part: bytes) -> int:
        return keycodec.placement_hash(first_part) % self.layout.partitions

    def read_versions(self, table: int, keys: pa.Array, partitions: np.ndarray, epoch: Inflight) -> StoredVersions:
        stored = [partition.pairs(table) for partition in self._contents.partitions]
        found = [
            stored[partition].get(key) for partition, key in zip(partitions.tolist(), keys.to_pylist(), strict=True)
        ]
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
        here = self._contents.partitions[partition]
        return [here.next_key(table, *bounds, left_out, epoch, reverse=reverse) for bounds in ranges]

    def scan_prefixes(
        self, partition: int, table: int, prefixes: Sequence[bytes], epoch: Inflight, *, rows_max: int | None = None
    ) -> Iterator[pa.RecordBatch]:
        return self._contents.partitions[partition].scan_prefixes(table, prefixes, epoch, rows_max)

    def has_records(self, partition: int, table: int) -> bool:
        return len(self._contents.partitions[partition].pairs(table)) > 0

    def scan_versions(
        self,
        partition: int,
        table: int,
        epoch: int,
        aborted: tuple[int, ...],
        low: bytes = b"",
        high: bytes | None = None,
    ) -> Iterator[pa.RecordBatch]:
        return self._contents.partitions[partition].scan_versions(table, low, high, epoch, aborted)

    def record_borders(
        self, table: int, part: int, after: bytes, *, rows_max: int, bytes_max: int, pieces: int
    ) -> Borders:
        pairs = self._contents.partitions[part].pairs(table)
        return _borders(pairs, after, rows_max=rows_max, bytes_max=bytes_max, pieces=pieces)

    def count_records(self, table: int) -> int:
        return sum(len(partition.pairs(table)) for partition in self._contents.partitions)

    def write_versions(self, writes: Sequence[VersionWrite], epoch: Inflight) -> None:
        chains: dict[int, dict[int, dict[bytes, bytes]]] = {}  # partition -> table -> key
        gone: dict[int, dict[int, set[bytes]]] = {}
        for write in (write for write in writes if len(write.chosen)):
            chosen = pa.array(write.chosen)
            new = push(write.found.raw.take(chosen), write.rows, epoch.epoch, epoch.floor, epoch.aborted)
            partitions, keys = write.found.partitions[write.chosen].tolist(), write.found.keys.take(chosen).to_pylist()
            is_gone = write.rows.is_null().to_pylist()
            for partition, key, chain, is_tombstone in zip(partitions, keys, new.to_pylist(), is_gone, strict=True):
                chains.setdefault(partition, {}).setdefault(write.table, {})[key] = chain
                if is_tombstone:
                    gone.setdefault(partition, {}).setdefault(write.table, set()).add(key)
        contents = self._contents
        for number in sorted(chains):
            with contents.lock:
                contents.partitions[number].write(chains[number], gone.get(number, {}), epoch)

    def admit(self, epoch: Inflight) -> None:
        """Raise the fences, and purge what no reader needs any more: a re-run finds what the first run found."""
        contents = self._contents
        with contents.lock:
            for partition in contents.partitions:
                partition.fence = max(partition.fence, epoch.epoch)
                partition.purge(epoch)

    def purge(self, record: EpochRecord, *, records_max: int) -> int:
        """Old versions are dropped with the write of a newer one, tombstones when an epoch is admitted."""
        return 0

    def written_epochs(self) -> tuple[int, int]:
        found = [partition.fence for partition in self._contents.partitions]
        return min(found), max(found)

    def open_views(self) -> None:
        """Nothing can tear them."""

    def close_views(self, owner: str) -> None:
        """Nothing can tear them."""

    def sync_views(self) -> None:
        """Nothing here survives a power loss."""

    def drop_records(self, table: int) -> None:
        contents = self._contents
        with contents.lock:
            for partition in contents.partitions:
                partition.drop(table)

    def get_record(self, partition: int, table: int, key: bytes, moment: Moment) -> Image:
        chain = self._contents.partitions[partition].pairs(table).get(key)
        return None if chain is None else version_at(chain, moment.epoch, moment.aborted)

    def hold(self, moment: Moment, partitions: Sequence[int]) -> HeldRecords:
        contents = self._contents
        return HeldRecords(HeldTables({number: contents.partitions[number].state for number in partitions}), moment)

    def hold_rows(self) -> HeldTables:
        """The rows of all tables as they are now, until the result is closed."""
        return HeldTables({number: (node.rows, {}) for number, node in enumerate(self._contents.nodes)})

    # the store as a whole

    def claim(self, *, take_over: bool) -> Claim:
        """The right to run the pipeline; PipelineRunning when another has it."""
        return Claim(self._contents, take_over=take_over)

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
            tables = [
                *(node.rows for node in contents.nodes),
                *(partition.state[0] for partition in contents.partitions),
            ]
            logs = sum(node.log.size() for node in contents.nodes)
        return logs + sum(pairs.size() for part in tables for pairs in part.values())


def _borders(pairs: Pairs, after: bytes, *, rows_max: int, bytes_max: int, pieces: int) -> Borders:
    lists = in_lists(pairs.walk_after(after, None), _BORDER_ROWS)
    return cut_in_pieces(lists, after, rows_max=rows_max, bytes_max=bytes_max, pieces=pieces)
