"""A log shard: the base rows and the log of one node, and the write groups that it takes; each adapter has its own.

In: groups of writes, positions and stamps. Out: rows, and entries of the log; which node takes a group, or RowsApart.
Always: a group is of one node, by the slots of its keys, and no larger than `Limits`: a row and its change fit in one
Arrow array, so what was acknowledged can be read. A condition is tested inside the transaction that writes. Positions
count changes without a gap, stamps and the bytes before an entry grow with them; so every question about a log is a
search for an entry.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, Protocol

from viewkeeper.errors import BadRow, RowsApart, TooMuchAtOnce, UnsupportedSql
from viewkeeper.model.positions import Position, Positions, Stream
from viewkeeper.model.stored_rows import Expected, Image, RowWrites
from viewkeeper.stores.log_format import EntryHeader, TableChanges, encode_entry, entries_of
from viewkeeper.stores.placement import EVERY, SLOTS, Misplaced, Placement, listed, slots_of

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa

    from viewkeeper.model.positions import SplitPoints


@dataclass(frozen=True, slots=True)
class Limits:
    """In bytes: of a row, of the images that one transaction logs, and of one entry of the log.

    A transaction of one change may log more: the row before and after. So may an entry of one change.
    """

    row: int = 128 << 20
    transaction: int = 512 << 20
    entry: int = 64 << 20

    def require_room(self, befores: Sequence[Image], afters: Sequence[Image]) -> int:
        """Raise unless rows of one group of writes may be stored; returns the size of their images in bytes."""
        size = sum(map(len, filter(None, afters)))
        if size > self.row and (largest := max(map(len, filter(None, afters)))) > self.row:
            raise BadRow(
                f"a row of {largest:,} bytes is more than the {self.row:,} that a row may have",
                "keep large values elsewhere, and in the row where they are",
            )
        if len(afters) > 1:
            size += sum(map(len, filter(None, befores)))
            self.require_transaction(size)
        return size

    def require_transaction(self, size: int) -> None:
        if size > self.transaction:
            raise TooMuchAtOnce(
                f"{size:,} bytes are more than the {self.transaction:,} that are written at once",
                "write them in smaller groups",
            )


LIMITS = Limits()


def node_of_write_group(writes: Sequence[RowWrites], placement: Placement) -> tuple[int, int | None]:
    """The node of all rows of a group, and their slots if they were looked at; RowsApart when they have several."""
    if placement.only is not None:
        return placement.only, None
    slots = slots_of(key for write in writes for key in write.keys)
    found = {placement.slots[slot] for slot in listed(slots)}
    if len(found) > 1:
        raise RowsApart("a group of writes touches rows of several nodes", "write rows of one node at a time")
    return (found.pop() if found else placement.slots[0]), slots


def by_node(keys: Sequence[bytes], placement: Placement) -> list[np.ndarray]:
    """The keys of each node, by their indexes in `keys`; nodes without a key are left out."""
    import numpy as np
    import pyarrow as pa

    from viewkeeper.model.keybatches import hash_all
    from viewkeeper.model.varbinary import VarBinary

    if placement.only is not None:
        return [np.arange(len(keys))]
    placed = np.array(placement.slots)[hash_all(VarBinary.from_arrow(pa.array(keys, pa.binary()))) % SLOTS]
    return [np.flatnonzero(placed == node) for node in np.unique(placed)]


def refuse_mapping(using: str | None) -> None:
    """Raise where a table is to be mapped, in a store that keeps all rows itself."""
    if using is not None:
        raise UnsupportedSql(
            f"USING {using} is not for tables of this store", "leave it out; USING hbase is for a store at hbase://…"
        )


class _Unexpected(Exception):
    """The row that was found is not the expected one."""


def write_if(
    write: Callable[[Sequence[RowWrites]], Positions], writes: RowWrites, expected: Expected
) -> Positions | None:
    """Write only if the row found is as expected."""

    def merge(befores: list[Image]) -> list[Image]:
        if not expected.is_met(befores[0]):
            raise _Unexpected
        return writes.merge(befores)

    try:
        return write([RowWrites(writes.table, writes.keys, merge)])
    except _Unexpected:
        return None


_INCARNATION = 1
NO_TABLE = 0xFFFFFFFF  # of the last entry of a move, whose key is the slots: so every move has a place in both logs


Rows = dict[int, list[tuple[bytes, bytes]]]  # (key, row) pairs by table


class LogEnd(NamedTuple):
    """Position and stamp of the last entry, and how many bytes of entries there were: they outlive a truncated log."""

    position: int
    stamp: int
    bytes: int


class LogShard(Protocol):
    """One stream of a store."""

    number: int
    stream: Stream
    _before_images: bool
    _limits: Limits
    _first_slots: int

    def __init__(self, number: int, *, before_images: bool, limits: Limits, first_slots: int = EVERY) -> None:
        self.number = number
        self._first_slots = first_slots  # before any of them moves
        self.stream = Stream(str(number))
        self._before_images = before_images
        self._limits = limits

    def write(self, groups: Sequence[RowWrites], clock: Callable[[], int], slots: int | None = None) -> Position:
        """One transaction: all groups or none. A write that changes nothing leaves no change in the log.

        Misplaced unless the node has the `slots` of all rows, which are found here if they are not given.
        """
        ...

    def get(self, table: int, key: bytes) -> Image: ...

    def get_many(self, table: int, keys: Sequence[bytes]) -> list[Image]: ...

    def scan_as_of(
        self, table: int, position: Position, low: bytes, high: bytes | None
    ) -> Iterator[tuple[Sequence[bytes], Sequence[bytes]]]:
        """Rows with low < key <= high as of `position`, as (keys, rows)."""
        ...

    def borders(self, table: int, after: bytes, *, rows_max: int, bytes_max: int, pieces: int) -> SplitPoints:
        """The next rows after `after` in about equal pieces."""
        ...

    def count_rows(self, table: int) -> int: ...

    def rows_held(self) -> int:
        """The approximate number of rows of all tables."""
        ...

    def drop_rows(self, table: int) -> None: ...

    def pass_writer_lock(self) -> None:
        """Return when every write transaction that was open at the call has ended."""
        ...

    def sync(self) -> None: ...

    def log_end(self) -> LogEnd: ...

    def log_entries(self) -> int: ...

    def find_entry(self, position: int) -> tuple[Position, EntryHeader] | None:
        """The entry that holds `position`, with the position of its last change; None past the end or if truncated."""
        ...

    def read_log(self, start: int, stop: int) -> Iterator[tuple[int, pa.RecordBatch]]: ...

    def truncate_log(self, position: int, stamp: int, *, entries_max: int) -> int:
        """Delete entries that end before `position` and are older than `stamp`, up to so many; returns how many.

        The entry at `position` stays: its checksum is still needed (R9).
        """
        ...

    def end(self) -> Position:
        return Position(self.log_end().position)

    def find_stamp(self, start: int, stamp: int) -> Position:
        """The last position after `start` (or `start` itself) whose transaction was stamped at or before `stamp`."""
        return self._find_last(start, self.end(), lambda header: header.stamp <= stamp)

    def stamp_within(self, start: int, *, changes_max: int, bytes_max: int) -> int | None:
        """The stamp of the transaction that reaches about so many changes or bytes after `start`.

        None when there are fewer.
        """
        limit, first = self.find_entry(start + changes_max), self.find_entry(start + 1)
        stop = limit[0] if limit else self.end()
        if first is None or self.bytes_between(start, stop) < bytes_max:
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

    def bytes_between(self, start: int, stop: int) -> int:
        """The size in bytes of the entries of (start, stop]."""
        first, next_one = self.find_entry(start + 1), self.find_entry(stop + 1)
        if first is None or start >= stop:
            return 0
        return (self.log_end().bytes if next_one is None else next_one[1].begins) - first[1].begins

    def _changes(self, group: RowWrites, befores: list[Image]) -> tuple[TableChanges, int]:
        """What a group changes of the rows found, and the size of the rows in bytes."""
        afters = group.merge(befores)
        size = self._limits.require_room(befores, afters)
        images = enumerate(zip(befores, afters, strict=True))
        changed = [i for i, (before, after) in images if before != after or group.repeats]
        told: list[Image] = [befores[i] for i in changed] if self._before_images else [None] * len(changed)
        return (group.table, [group.keys[i] for i in changed], told, [afters[i] for i in changed]), size

    @staticmethod
    def _require_slots(owned: int, groups: Sequence[RowWrites], slots: int | None) -> None:
        """Raise Misplaced unless all rows are this node's, which owns these slots in the open transaction."""
        if owned != EVERY:
            wanted = slots_of(key for group in groups for key in group.keys) if slots is None else slots
            if wanted & ~owned:
                raise Misplaced

    @staticmethod
    def _require_absent(owned: int, keys: Iterable[bytes]) -> None:
        """Raise Misplaced where a row that was not found here may be elsewhere."""
        if owned != EVERY and slots_of(keys) & ~owned:
            raise Misplaced

    def _moved(self, rows: Rows, slots: int, *, arrive: bool) -> list[tuple[int, int, bytes]]:
        """The log's entries for rows that move. Where they leave, their images make it possible to finish the move."""
        changes: list[TableChanges] = []
        for table, pairs in rows.items():
            keys, images, none = [key for key, _ in pairs], [row for _, row in pairs], [None] * len(pairs)
            changes.append((table, keys, [*none] if arrive else [*images], [*none]))
        mark: TableChanges = (NO_TABLE, [slots.to_bytes(SLOTS // 8, "little")], [None], [None])
        return list(entries_of([*changes, mark], self._limits.entry))

    def _encode(
        self, bodies: Sequence[tuple[int, int, bytes]], end: LogEnd, now: int, *, is_moved: bool = False
    ) -> Iterator[tuple[LogEnd, bytes]]:
        """Entries (table, number of changes, body) of one transaction after `end`, each with the log's end after it."""
        stamp = max(end.stamp + 1, now)
        for number, (table, count, body) in enumerate(bodies, 1):
            entry = encode_entry(
                body,
                table=table,
                stream=self.number,
                incarnation=_INCARNATION,
                count=count,
                stamp=stamp,
                begins=end.bytes,
                ends_transaction=number == len(bodies),
                is_moved=is_moved,
            )
            end = LogEnd(end.position + count, stamp, end.bytes + len(entry))
            yield end, entry
