"""A node: base rows and their log, in one environment and hence in one transaction.

In: groups of writes. Out: the position of the last change. Always: a row and its log entry are committed together;
positions count changes without a gap; stamps grow within a node, and a stamp is taken under the writer's lock, so that
a cut by time (R17) is a state of the whole base.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, NamedTuple

import lmdb

from viewkeeper.errors import PositionLost
from viewkeeper.failpoints import failpoint
from viewkeeper.model.positions import Position, SplitPoints
from viewkeeper.model.stored_rows import Image, RowWrites
from viewkeeper.stores import log_format
from viewkeeper.stores.embedded import tree
from viewkeeper.stores.embedded.lmdb_environment import Environment
from viewkeeper.stores.log_format import EntryHeader, TableChanges, entries_of, position_key, position_of, positions_of
from viewkeeper.stores.log_shard import LIMITS, Limits, LogEnd, LogShard, Rows
from viewkeeper.stores.placement import EVERY, SLOTS

if TYPE_CHECKING:
    import pyarrow as pa

_LAST = b"last"  # the `LogEnd`; then the node's slots, once some have moved
_LAST_FACTS = struct.Struct(">QQQ")
_NOTHING = bytes(_LAST_FACTS.size)
_READ_CHANGES_MAX = 500_000
_READ_BYTES_MAX = 128 << 20
_DECODED_CHANGES_MAX = 65_536  # at once, of those read
_DECODED_BYTES_MAX = 16 << 20
_HELD_BYTES_MAX = 4 << 20  # of a log that was read, in this process's memory
_DROP_MAX = 5_000
_SCAN_ROWS = 50_000
_RELOG_ROWS = 10_000


class NodeState(NamedTuple):
    """Where the log ends, the node's slots, and how these are stored."""

    end: LogEnd
    slots: int
    stored: bytes


class Node(LogShard):
    """One stream of the store; `handle` returns its environment, opened at first use."""

    def __init__(
        self,
        handle: Callable[[], Environment],
        number: int,
        *,
        synced: bool,
        before_images: bool,
        limits: Limits = LIMITS,
        first_slots: int = EVERY,
    ) -> None:
        super().__init__(number, before_images=before_images, limits=limits, first_slots=first_slots)
        self._handle = handle
        self._synced = synced

    @property
    def environment(self) -> Environment:
        return self._handle()

    def write(self, groups: Sequence[RowWrites], clock: Callable[[], int], slots: int | None = None) -> Position:
        environment, size = self.environment, 0
        with environment.write("rows") as transaction:
            state = self.state_in(transaction)
            self._require_slots(state.slots, groups, slots)
            applied: list[TableChanges] = []
            for group in groups:
                prefix = tree.table_prefix(group.table)
                befores = tree.get_many(transaction, [prefix + key for key in group.keys])
                changes, logged_bytes = self._changes(group, befores)
                _store(transaction, prefix, changes)
                applied.append(changes)
                size += logged_bytes
            if len(groups) > 1:
                self._limits.require_transaction(size)
            position = self._append(transaction, state, list(entries_of(applied, self._limits.entry)), clock())
            failpoint("node.write.before_commit")
        if self._synced and not environment.synced:  # the process's handle was opened with sync=off
            environment.sync()
        failpoint("node.write.committed")
        return position

    def state_in(self, transaction: lmdb.Transaction) -> NodeState:
        """Where the log ends and which slots the node has, as an open transaction sees it."""
        value = transaction.get(_LAST, db=self.environment.database("info")) or _NOTHING
        slots = value[_LAST_FACTS.size :]
        end = LogEnd(*_LAST_FACTS.unpack_from(value))
        return NodeState(end, int.from_bytes(slots, "little") if slots else self._first_slots, slots)

    def _append(
        self,
        transaction: lmdb.Transaction,
        state: NodeState,
        bodies: Sequence[tuple[int, int, bytes]],
        now: int,
        *,
        is_moved: bool = False,
    ) -> Position:
        """Write the entries of one transaction; returns where the log ends."""
        environment, end = self.environment, state.end
        log, info = environment.database("log"), environment.database("info")
        for after, entry in self._encode(bodies, end, now, is_moved=is_moved):
            transaction.put(position_key(after.position), entry, append=True, db=log)
            end = after
        if bodies:
            transaction.put(_LAST, _LAST_FACTS.pack(*end) + state.stored, db=info)
        return Position(end.position)

    def move(self, transaction: lmdb.Transaction, rows: Rows, slots: int, stamp: int, *, arrive: bool) -> Position:
        """Put, or delete, rows that come from or go to another node with their slots; returns where the log ends."""
        for table, pairs in rows.items():
            prefix = tree.table_prefix(table)
            if arrive:
                tree.put_many(transaction, [prefix + key for key, _ in pairs], [row for _, row in pairs])
            for key, _ in () if arrive else pairs:
                tree.delete(transaction, prefix + key)
        state = self.state_in(transaction)
        owned = state.slots | slots if arrive else state.slots & ~slots
        changed = NodeState(state.end, owned, owned.to_bytes(SLOTS // 8, "little"))
        return self._append(transaction, changed, self._moved(rows, slots, arrive=arrive), stamp, is_moved=True)

    def log_rows(self, tables: Sequence[int], clock: Callable[[], int]) -> None:
        """Log every row of some tables again, in bounded transactions: a DELTA is built from the log alone."""
        environment = self.environment
        for table in tables:
            prefix, after = tree.table_prefix(table), b""
            while True:
                with environment.write("rows") as transaction:
                    behind = tree.range_after(prefix, after, None)
                    pairs = next(tree.scan_lists(transaction, *behind, size=_RELOG_ROWS), None)
                    if pairs is None:
                        break
                    keys = [key[len(prefix) :] for key, _ in pairs]
                    rows: list[Image] = [row for _, row in pairs]
                    told = list(entries_of([(table, keys, [None] * len(keys), rows)], self._limits.entry))
                    self._append(transaction, self.state_in(transaction), told, clock())
                after = keys[-1]

    def get(self, table: int, key: bytes) -> Image:
        with self.environment.read("rows") as transaction:
            row = tree.get(transaction, tree.table_prefix(table) + key)
            if row is None:  # one that is found is here: no node has rows of slots that it has not
                self._require_absent(self.state_in(transaction).slots, (key,))
            return row

    def get_many(self, table: int, keys: Sequence[bytes]) -> list[Image]:
        prefix = tree.table_prefix(table)
        with self.environment.read("rows") as transaction:
            found = tree.get_many(transaction, [prefix + key for key in keys])
            if None in found:
                absent = (key for key, row in zip(keys, found, strict=True) if row is None)
                self._require_absent(self.state_in(transaction).slots, absent)
            return found

    def snapshot(self) -> AbstractContextManager[lmdb.Transaction]:
        """A read transaction that stays open: all rows as they are now, for as long as a scan takes."""
        return self.environment.held("rows")

    def log_end(self) -> LogEnd:
        with self.environment.read("info") as transaction:
            return self.state_in(transaction).end

    def sync(self) -> None:
        self.environment.sync()

    def pass_writer_lock(self) -> None:
        self.environment.pass_writer_lock()

    def find_entry(self, position: int) -> tuple[Position, EntryHeader] | None:
        with self.environment.read("log", buffers=True) as transaction:
            cursor = transaction.cursor()
            if not cursor.set_range(position_key(position)):
                return None
            return Position(position_of(cursor.key())), log_format.decode_header(cursor.value())

    def read_log(self, start: int, stop: int) -> Iterator[tuple[int, pa.RecordBatch]]:
        while start < stop:
            start, batches, size = self._read_batches(start, stop)
            if size > _HELD_BYTES_MAX:
                self.environment.let_go_of_pages()
            yield from batches

    def _read_batches(self, start: int, stop: int) -> tuple[int, list[tuple[int, pa.RecordBatch]], int]:
        """Where the next batches start, the changes by table, and how long their entries were.

        Batches are large, because readers group them; entries are decoded a few at a time, because both are in memory
        then.
        """
        import pyarrow as pa

        from viewkeeper.stores.log_batches import decode_entries

        pieces: dict[int, list[pa.RecordBatch]] = {}
        size, enough = 0, min(stop, start + _READ_CHANGES_MAX)
        with self.environment.read("log") as transaction:
            while start < enough and size < _READ_BYTES_MAX:
                entries, positions = _read_entries(transaction.cursor(), start, stop)
                if not entries:
                    start = stop
                    break
                for table, batch in decode_entries(entries, positions):
                    pieces.setdefault(table, []).append(batch)
                start, size = positions[-1], size + sum(map(len, entries))
        return start, [(table, pa.concat_batches(batches)) for table, batches in pieces.items()], size

    def truncate_log(self, position: int, stamp: int, *, entries_max: int) -> int:
        gone = 0
        with self.environment.read("log", buffers=True) as transaction:
            cursor = transaction.cursor()
            if not cursor.first() or not _is_old(cursor, position, stamp):
                return 0
        with self.environment.write("log", buffers=True) as transaction:
            cursor = transaction.cursor()
            more = cursor.first()
            while more and gone < entries_max and _is_old(cursor, position, stamp):
                more = cursor.delete()
                gone += 1
        return gone

    def log_entries(self) -> int:
        with self.environment.read("log") as transaction:
            return transaction.stat(self.environment.database("log"))["entries"]

    def borders(self, table: int, after: bytes, *, rows_max: int, bytes_max: int, pieces: int) -> SplitPoints:
        prefix = tree.table_prefix(table)
        with self.environment.read("rows") as transaction:
            return tree.borders(transaction, prefix, after, rows_max=rows_max, bytes_max=bytes_max, pieces=pieces)

    def count_rows(self, table: int) -> int:
        with self.environment.read("rows") as transaction:
            return tree.count(transaction, tree.table_prefix(table))

    def rows_held(self) -> int:
        with self.environment.read("rows") as transaction:
            return transaction.stat(self.environment.database("rows"))["entries"]

    def scan_as_of(
        self, table: int, position: Position, low: bytes, high: bytes | None
    ) -> Iterator[tuple[list[bytes], list[bytes]]]:
        """The current rows with later changes undone."""
        environment = self.environment
        prefix = tree.table_prefix(table)
        with environment.read("rows") as transaction:
            earlier = _images_before(transaction, environment.database("log"), table, position, low, high)
            within = tree.range_after(prefix, low, high)
            for pairs in tree.scan_lists(transaction, *within, size=_SCAN_ROWS):
                keys = [key[len(prefix) :] for key, _ in pairs]
                rows: list[Image] = [row for _, row in pairs]
                if earlier:
                    rows = [earlier.pop(key, row) for key, row in zip(keys, rows, strict=True)]
                    keys = [key for key, row in zip(keys, rows, strict=True) if row is not None]
                yield keys, [row for row in rows if row is not None]
            gone = {key: image for key, image in earlier.items() if image is not None}
            yield list(gone), list(gone.values())

    def drop_rows(self, table: int) -> None:
        gone = _DROP_MAX
        while gone == _DROP_MAX:
            with self.environment.write("rows") as transaction:
                gone = tree.drop(transaction, tree.table_prefix(table), limit=_DROP_MAX)


def _store(transaction: lmdb.Transaction, prefix: bytes, changes: TableChanges) -> None:
    _, keys, _, afters = changes
    puts = [(prefix + key, row) for key, row in zip(keys, afters, strict=True) if row is not None]
    tree.put_many(transaction, [key for key, _ in puts], [row for _, row in puts])
    if len(puts) < len(keys):
        for key, row in zip(keys, afters, strict=True):
            if row is None:
                tree.delete(transaction, prefix + key)


def _read_entries(cursor: lmdb.Cursor, start: int, stop: int) -> tuple[list[bytes], list[int]]:
    """Whole entries of (start, stop], up to a bounded number of changes and bytes."""
    entries: list[bytes] = []
    keys: list[bytes] = []
    size = 0
    # Positions have no gap: the first entry found holds start + 1, unless the log was truncated up to a committed
    # epoch. A task this late must not take the rest for the whole.
    found = cursor.set_range(position_key(start + 1))
    if not found or position_of(cursor.key()) - log_format.decode_header(cursor.value()).count > start:
        raise PositionLost(
            f"the log no longer holds position {start + 1}",
            "what asked for it is over; a view that lacks it is filled anew by viewkeeper rebuild",
        )
    last, enough = position_key(stop), position_key(start + _DECODED_CHANGES_MAX)
    for key, entry in cursor.iternext():
        if key > last or (entries and (key > enough or size > _DECODED_BYTES_MAX)):
            break
        entries.append(entry)
        keys.append(key)
        size += len(entry)
    return entries, positions_of(keys)


def changes_since(
    transaction: lmdb.Transaction, log: object, start: int, stop: int | None = None, *, with_moved: bool = True
) -> Iterator[tuple[int, pa.RecordBatch]]:
    """All that is logged of (start, stop], or after `start`, as (table, changes), with or without rows that moved."""
    from viewkeeper.stores.log_batches import decode_entries

    cursor = transaction.cursor(db=log)
    end = (position_of(cursor.key()) if cursor.last() else start) if stop is None else stop
    while start < end:
        entries, positions = _read_entries(transaction.cursor(db=log), start, end)
        yield from decode_entries(entries, positions, with_moved=with_moved)
        start = positions[-1]


def _images_before(
    transaction: lmdb.Transaction, log: object, table: int, position: int, low: bytes, high: bytes | None
) -> dict[bytes, Image]:
    """For each row with low < key <= high changed after `position`: its image before the first such change."""
    from viewkeeper.stores.log_batches import images_before

    changes = changes_since(transaction, log, position)
    return images_before((batch for number, batch in changes if number == table), low, high)


def _is_old(cursor: lmdb.Cursor, position: int, stamp: int) -> bool:
    return position_of(cursor.key()) < position and log_format.decode_header(cursor.value()).stamp < stamp
