"""A node in memory: base rows, and their log in lists that only grow at the end and shrink at the start.

In: groups of writes. Out: the position of the last change. Always: rows and their log entries appear together or not at
all; positions, stamps, checksums and sizes are those that the embedded store's log would have. Rows are maps that never
change, so their readers need no lock; a writer, or a reader of the log, takes the store's.
"""

from __future__ import annotations

import itertools
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator, Sequence
from operator import attrgetter
from threading import RLock

import pyarrow as pa

from viewkeeper.errors import PositionLost
from viewkeeper.model.positions import Position, SplitPoints
from viewkeeper.model.stored_rows import Image, RowWrites
from viewkeeper.stores.log_batches import decode_entries, images_before
from viewkeeper.stores.log_format import EntryHeader, TableChanges, decode_header, entries_of
from viewkeeper.stores.log_shard import LIMITS, LogEnd, LogShard, Rows
from viewkeeper.stores.memory.ordered_map import Pairs, in_lists
from viewkeeper.stores.placement import slot_of

Tables = dict[int, Pairs]  # replaced, never changed
NO_PAIRS = Pairs()
_LIST_ROWS = 50_000
_READ_CHANGES_MAX = 65_536
_READ_BYTES_MAX = 16 << 20
_STAMP_OF = attrgetter("stamp")


class Node(LogShard):
    """One stream of the store."""

    def __init__(self, number: int, lock: RLock, *, before_images: bool, first_slots: int) -> None:
        super().__init__(number, before_images=before_images, limits=LIMITS, first_slots=first_slots)
        self._lock = lock
        self._state: tuple[Tables, int] = {}, first_slots  # and the node's slots: replaced together
        self._ends: list[int] = []  # the position of each entry's last change
        self._headers: list[EntryHeader] = []
        self._entries: list[bytes] = []
        self._log_end = LogEnd(0, 0, 0)

    @property
    def rows(self) -> Tables:
        return self._state[0]

    def write(self, groups: Sequence[RowWrites], clock: Callable[[], int], slots: int | None = None) -> Position:
        with self._lock:
            before, owned = self._state
            self._require_slots(owned, groups, slots)
            rows, size = dict(before), 0
            applied: list[TableChanges] = []
            for group in groups:
                pairs = rows.get(group.table, NO_PAIRS)
                changes, logged_bytes = self._changes(group, [pairs.get(key) for key in group.keys])
                rows[group.table] = pairs.changed(dict(zip(changes[1], changes[3], strict=True)))
                applied.append(changes)
                size += logged_bytes
            if len(groups) > 1:
                self._limits.require_transaction(size)
            self._append(list(entries_of(applied, self._limits.entry)), clock())
            self._state = rows, owned
            return self.end()

    def _append(self, bodies: Sequence[tuple[int, int, bytes]], now: int, *, is_moved: bool = False) -> None:
        for end, entry in self._encode(bodies, self._log_end, now, is_moved=is_moved):
            self._log_end = end
            self._ends.append(end.position)
            self._headers.append(decode_header(entry))
            self._entries.append(entry)

    def rows_in(self, slots: int) -> Rows:
        """All rows of these slots."""
        found: Rows = {}
        for table, pairs in self.rows.items():
            found[table] = [pair for pair in pairs.walk(b"", None) if slots >> slot_of(pair[0]) & 1]
        return found

    def move(self, rows: Rows, slots: int, stamp: int, *, arrive: bool) -> Position:
        """Put, or delete, rows that come from or go to another node with their slots; the caller holds the lock."""
        there, owned = self._state
        changed = dict(there)
        for table, pairs in rows.items():
            changed[table] = changed.get(table, NO_PAIRS).changed({key: row if arrive else None for key, row in pairs})
        self._append(self._moved(rows, slots, arrive=arrive), stamp, is_moved=True)
        self._state = changed, owned | slots if arrive else owned & ~slots
        return self.end()

    def rows_held(self) -> int:
        return sum(map(len, self.rows.values()))

    def pairs(self, table: int) -> Pairs:
        return self.rows.get(table, NO_PAIRS)

    def get(self, table: int, key: bytes) -> Image:
        return self.get_many(table, (key,))[0]

    def get_many(self, table: int, keys: Sequence[bytes]) -> list[Image]:
        rows, owned = self._state
        pairs = rows.get(table, NO_PAIRS)
        found = [pairs.get(key) for key in keys]
        self._require_absent(owned, (key for key, row in zip(keys, found, strict=True) if row is None))
        return found

    def scan_as_of(
        self, table: int, position: Position, low: bytes, high: bytes | None
    ) -> Iterator[tuple[Sequence[bytes], Sequence[bytes]]]:
        with self._lock:
            since = self._logged(position, self.end(), with_moved=True)
            changes = [batch for number, batch in since if number == table]
            earlier = self.pairs(table).changed(images_before(changes, low, high))
        for some in in_lists(earlier.walk_after(low, high), _LIST_ROWS):
            keys, rows = zip(*some, strict=True)
            yield keys, rows

    def borders(self, table: int, after: bytes, *, rows_max: int, bytes_max: int, pieces: int) -> SplitPoints:
        return self.pairs(table).borders(after, rows_max=rows_max, bytes_max=bytes_max, pieces=pieces)

    def count_rows(self, table: int) -> int:
        return len(self.pairs(table))

    def drop_rows(self, table: int) -> None:
        with self._lock:
            rows, owned = self._state
            self._state = {other: pairs for other, pairs in rows.items() if other != table}, owned

    def pass_writer_lock(self) -> None:
        with self._lock:
            pass

    def sync(self) -> None:
        """Nothing here survives a power loss."""

    def log_end(self) -> LogEnd:
        return self._log_end

    def log_entries(self) -> int:
        return len(self._entries)

    def log_bytes(self) -> int:
        """The size in bytes of all entries."""
        return self._log_end.bytes - self._headers[0].begins if self._headers else 0

    def find_entry(self, position: int) -> tuple[Position, EntryHeader] | None:
        with self._lock:
            at = bisect_left(self._ends, position)
            return (Position(self._ends[at]), self._headers[at]) if at < len(self._ends) else None

    def read_log(self, start: int, stop: int) -> Iterator[tuple[int, pa.RecordBatch]]:
        return self._logged(start, stop, with_moved=False)

    def _logged(self, start: int, stop: int, *, with_moved: bool) -> Iterator[tuple[int, pa.RecordBatch]]:
        while start < stop:
            entries, ends = self._read(start, stop)
            if not entries:
                return
            yield from decode_entries(entries, ends, with_moved=with_moved)
            start = ends[-1]

    def _read(self, start: int, stop: int) -> tuple[list[bytes], list[int]]:
        """The next entries of (start, stop], and where each ends; a bounded number of them, at least one if there is one."""
        with self._lock:
            found = self.find_entry(start + 1)
            if found is None or found[0] - found[1].count > start:
                raise PositionLost(
                    f"the log no longer holds position {start + 1}",
                    "what asked for it is over; a view that lacks it is filled anew by viewkeeper rebuild",
                )
            low = bisect_left(self._ends, start + 1)
            high = bisect_right(self._ends, min(stop, max(found[0], start + _READ_CHANGES_MAX)))
            sizes = list(itertools.accumulate(map(len, self._entries[low:high])))
            high = min(high, low + 1 + bisect_left(sizes, _READ_BYTES_MAX))
            return self._entries[low:high], self._ends[low:high]

    def truncate_log(self, position: int, stamp: int, *, entries_max: int) -> int:
        with self._lock:
            old = min(bisect_left(self._ends, position), bisect_left(self._headers, stamp, key=_STAMP_OF), entries_max)
            for column in (self._ends, self._headers, self._entries):
                del column[:old]
            return old
