"""A node's log in memory: entries as bytes, in lists that only grow at the end and shrink at the start.

In: the changes of transactions. Out: entries by position, stamp and size. Always: the same positions, stamps, checksums
and sizes that the embedded store's log would have; the caller holds the store's lock.
"""

from __future__ import annotations

import itertools
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from operator import attrgetter

from viewkeeper.errors import PositionLost
from viewkeeper.model.positions import Position
from viewkeeper.stores.logformat import EntryHeader, decode_header, encode_entry

_READ_CHANGES_MAX = 65_536
_READ_BYTES_MAX = 16 << 20
_STAMP_OF, _BEGINS_OF = attrgetter("stamp"), attrgetter("begins")


class Log:
    """The entries of one stream."""

    def __init__(self, node: int) -> None:
        self._node = node
        self._ends: list[int] = []  # the position of each entry's last change
        self._headers: list[EntryHeader] = []
        self._entries: list[bytes] = []
        self.end = Position(0)  # these three outlive a truncated log
        self._stamp = 0
        self._begins = 0

    def __len__(self) -> int:
        return len(self._entries)

    def size(self) -> int:
        return self._begins - self._headers[0].begins if self._headers else 0

    def append(self, bodies: Sequence[tuple[int, int, bytes]], now: int) -> None:
        """Append entries (table, number of changes, body) of one transaction."""
        stamp = max(self._stamp + 1, now)
        for number, (table, count, body) in enumerate(bodies, 1):
            entry = encode_entry(
                body,
                table=table,
                stream=self._node,
                incarnation=1,
                count=count,
                stamp=stamp,
                begins=self._begins,
                ends_transaction=number == len(bodies),
            )
            self.end, self._stamp, self._begins = Position(self.end + count), stamp, self._begins + len(entry)
            self._ends.append(self.end)
            self._headers.append(decode_header(entry))
            self._entries.append(entry)

    def find_entry(self, position: int) -> tuple[Position, EntryHeader] | None:
        """The entry that holds `position`, with the position of its last change; None past the end or if truncated."""
        at = bisect_left(self._ends, position)
        return (Position(self._ends[at]), self._headers[at]) if at < len(self._ends) else None

    def find_stamp(self, start: int, stamp: int) -> Position:
        """The last position after `start` (or `start` itself) whose transaction was stamped at or before `stamp`."""
        at = bisect_right(self._headers, stamp, key=_STAMP_OF)
        return Position(max(start, self._ends[at - 1] if at else 0))

    def stamp_within(self, start: int, *, changes_max: int, bytes_max: int) -> int | None:
        """The stamp of the transaction that reaches so many changes or bytes after `start`, if one does."""
        limit, first = self.find_entry(start + changes_max), self.find_entry(start + 1)
        stop = limit[0] if limit else self.end
        if first is None or self.bytes_between(start, stop) < bytes_max:
            return limit[1].stamp if limit else None
        at = bisect_left(self._headers, first[1].begins + bytes_max, key=_BEGINS_OF)
        return self._headers[at - 1].stamp

    def bytes_between(self, start: int, stop: int) -> int:
        """The size in bytes of the entries of (start, stop]."""
        first, behind = self.find_entry(start + 1), self.find_entry(stop + 1)
        if first is None or start >= stop:
            return 0
        return (self._begins if behind is None else behind[1].begins) - first[1].begins

    def read(self, start: int, stop: int) -> tuple[list[bytes], list[int]]:
        """The next entries of (start, stop], and where each ends; a bounded number of them, at least one if there is one."""
        found = self.find_entry(start + 1)
        if found is None or found[0] - found[1].count > start:
            raise PositionLost(f"the log no longer holds position {start + 1}", "the epoch that asks for it is over")
        low = bisect_left(self._ends, start + 1)
        high = bisect_right(self._ends, min(stop, max(found[0], start + _READ_CHANGES_MAX)))
        sizes = list(itertools.accumulate(map(len, self._entries[low:high])))
        high = min(high, low + 1 + bisect_left(sizes, _READ_BYTES_MAX))
        return self._entries[low:high], self._ends[low:high]

    def truncate(self, position: int, stamp: int, *, entries_max: int) -> int:
        """Delete entries that end before `position` and are older than `stamp`, up to so many; returns how many.

        The entry at `position` stays: its checksum is still needed (R9).
        """
        old = min(bisect_left(self._ends, position), bisect_left(self._headers, stamp, key=_STAMP_OF), entries_max)
        for column in (self._ends, self._headers, self._entries):
            del column[:old]
        return old
