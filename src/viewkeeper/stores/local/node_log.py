"""The log of a node: what is found in it, read from it and deleted at its start; `node.py` writes it.

In: positions and stamps. Out: entries, and batches of changes. Always: positions count changes without a gap, stamps and
the bytes before an entry grow with them; so every question about a log is a search for an entry.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from itertools import islice, takewhile
from typing import TYPE_CHECKING, NamedTuple

from viewkeeper.errors import PositionLost
from viewkeeper.model.positions import Position, Stream
from viewkeeper.stores.local.log_format import EntryHeader, decode_header, position_key, position_of, positions_of

if TYPE_CHECKING:
    import pyarrow as pa

    from viewkeeper.stores.kv.kernel import Kernel, OrderedMap

_READ_CHANGES_MAX = 500_000
_READ_BYTES_MAX = 128 << 20
_DECODED_CHANGES_MAX = 65_536  # at once, of those read
_DECODED_BYTES_MAX = 16 << 20
_HELD_BYTES_MAX = 4 << 20  # of a log that was read, in this process's memory


class LogEnd(NamedTuple):
    """Position and stamp of the last entry, and how many bytes of entries there were: they outlive a truncated log."""

    position: int
    stamp: int
    bytes: int


class NodeState(NamedTuple):
    """Where the log ends, the node's slots, and how these are stored."""

    end: LogEnd
    slots: int
    stored: bytes


class NodeLog(ABC):
    """One stream of the store; `handle` returns its kernel, opened at first use."""

    def __init__(self, handle: Callable[[], Kernel], number: int) -> None:
        self._handle = handle
        self.number = number
        self.stream = Stream(str(number))

    @property
    def kernel(self) -> Kernel:
        return self._handle()

    @abstractmethod
    def state_in(self, some_map: OrderedMap) -> NodeState:
        """Where the log ends and which slots the node has, as an open transaction sees it."""

    def log_end(self) -> LogEnd:
        with self.kernel.read("info") as info:
            return self.state_in(info).end

    def end(self) -> Position:
        return Position(self.log_end().position)

    def sync(self) -> None:
        self.kernel.sync()

    def pass_writer_lock(self) -> None:
        self.kernel.pass_writer_lock()

    def log_entries(self) -> int:
        with self.kernel.read("log") as log:
            return len(log)

    # entries

    def find_entry(self, position: int) -> tuple[Position, EntryHeader] | None:
        """The entry that holds `position`, with the position of its last change; None past the end or if truncated."""
        with self.kernel.read("log", buffers=True) as log:
            for key, entry in log.walk(position_key(position)):
                return Position(position_of(key)), decode_header(entry)
        return None

    def find_stamp(self, start: int, stamp: int) -> Position:
        """The last position after `start` (or `start` itself) whose transaction was stamped at or before `stamp`."""
        return self._find_last(start, self.end(), lambda header: header.stamp <= stamp)

    def stamp_within(self, start: int, *, changes_max: int, bytes_max: int) -> int | None:
        """The stamp of the transaction that reaches about so many changes or bytes after `start`; None if there are fewer."""

        limit, first = self.find_entry(start + changes_max), self.find_entry(start + 1)
        stop = limit[0] if limit else self.end()
        if first is None or self.describe(start, stop)[0] < bytes_max:
            return limit[1].stamp if limit else None
        enough = first[1].begins + bytes_max
        last = self.find_entry(self._find_last(start + 1, stop, lambda header: header.begins < enough))
        return last[1].stamp if last else None

    def _find_last(self, low: int, high: int, holds: Callable[[EntryHeader], bool]) -> Position:
        """The last position up to `high` whose entry passes a test, as all before it do; else `low`."""
        while low < high:
            middle = (low + high + 1) // 2
            found = self.find_entry(middle)
            if found and holds(found[1]):
                low = max(found[0], middle)
            else:
                high = middle - 1
        return Position(low)

    def describe(self, start: int, stop: int) -> tuple[int, int | None]:
        """The size in bytes of the entries of (start, stop], and the stamp of the first, if there is one."""
        first, next_one = self.find_entry(start + 1), self.find_entry(stop + 1)
        if first is None or start >= stop:
            return 0, None
        end = self.log_end().bytes if next_one is None else next_one[1].begins
        return end - first[1].begins, first[1].stamp

    # changes

    def read_log(self, start: int, stop: int) -> Iterator[tuple[int, pa.RecordBatch]]:
        while start < stop:
            start, batches, size = self._read_batches(start, stop)
            if size > _HELD_BYTES_MAX:
                self.kernel.let_go_of_pages()
            yield from batches

    def _read_batches(self, start: int, stop: int) -> tuple[int, list[tuple[int, pa.RecordBatch]], int]:
        """Where the next batches start, the changes by table, and how long their entries were.

        Batches are large, because readers group them; entries are decoded a few at a time: both are in memory then.
        """
        import pyarrow as pa

        from viewkeeper.stores.local.log_batches import decode_entries

        pieces: dict[int, list[pa.RecordBatch]] = {}
        size, enough = 0, min(stop, start + _READ_CHANGES_MAX)
        with self.kernel.read("log") as log:
            while start < enough and size < _READ_BYTES_MAX:
                entries, positions = _read_entries(log, start, stop)
                if not entries:
                    start = stop
                    break
                for table, batch in decode_entries(entries, positions):
                    pieces.setdefault(table, []).append(batch)
                start, size = positions[-1], size + sum(map(len, entries))
        return start, [(table, pa.concat_batches(batches)) for table, batches in pieces.items()], size

    def changes_since(
        self, some_map: OrderedMap, start: int, stop: int | None = None, *, with_moved: bool = True
    ) -> Iterator[tuple[int, pa.RecordBatch]]:
        """All that is logged of (start, stop], or after `start`, as (table, changes), with or without rows that moved."""
        from viewkeeper.stores.local.log_batches import decode_entries

        end, log = self.state_in(some_map).end.position if stop is None else stop, some_map.of("log")
        while start < end:
            entries, positions = _read_entries(log, start, end)
            yield from decode_entries(entries, positions, with_moved=with_moved)
            start = positions[-1]

    def truncate_log(self, position: int, stamp: int, *, entries_max: int) -> int:
        """Delete entries before `position` and older than `stamp`, up to so many; the one at `position` stays, for R9."""

        def is_old(pair: tuple[bytes, bytes]) -> bool:
            return position_of(pair[0]) < position and decode_header(pair[1]).stamp < stamp

        with self.kernel.read("log", buffers=True) as log:
            old = [bytes(key) for key, _ in islice(takewhile(is_old, log.walk(b"")), entries_max)]
        if old:
            with self.kernel.write("log") as log:
                log.delete_many(old)
        return len(old)


def _read_entries(log: OrderedMap, start: int, stop: int) -> tuple[list[bytes], list[int]]:
    """Whole entries of (start, stop], up to a bounded number of changes and bytes."""
    entries: list[bytes] = []
    keys: list[bytes] = []
    size = 0
    last, enough = position_key(stop), position_key(start + _DECODED_CHANGES_MAX)
    for key, entry in log.walk(position_key(start + 1)):
        # Positions have no gap: the first entry found holds start + 1, unless the log was truncated up to a committed
        # epoch. A task this late must not take the rest for the whole.
        if not keys and position_of(key) - decode_header(entry).count > start:
            break
        if key > last or (entries and (key > enough or size > _DECODED_BYTES_MAX)):
            return entries, positions_of(keys)
        entries.append(entry)
        keys.append(key)
        size += len(entry)
    if not keys:
        raise PositionLost(f"the log no longer holds position {start + 1}")
    return entries, positions_of(keys)
