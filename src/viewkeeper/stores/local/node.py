"""A node: base rows and their log, in one kernel and hence in one transaction.

In: groups of writes. Out: the position of the last change. Always: a row and its log entry are committed together. A
write takes only rows of the node's slots, which are looked at inside the transaction, and no more than `Limits`: a row
and its change fit in one Arrow array, so what was acknowledged can be read. Stamps grow within a node, and are taken
under the writer's lock, so that a cut by time (R17) is a state of the whole base.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass

from viewkeeper.errors import BadRow, TooMuchAtOnce
from viewkeeper.failpoints import failpoint
from viewkeeper.model.keys import after_prefix
from viewkeeper.model.positions import Position
from viewkeeper.model.stored_rows import Image, RowWrites
from viewkeeper.stores.kv.kernel import TABLE_BYTES, Kernel, OrderedMap, range_after, table_prefix
from viewkeeper.stores.local import log_format
from viewkeeper.stores.local.log_format import TableChanges, entries_of
from viewkeeper.stores.local.node_log import LogEnd, NodeLog, NodeState
from viewkeeper.stores.local.placement import EVERY, SLOTS, Misplaced, slots_of

_LAST = b"last"  # the `LogEnd`; then the node's slots, once some have moved
_LAST_FACTS = struct.Struct(">QQQ")
_NOTHING = bytes(_LAST_FACTS.size)
NO_TABLE = 0xFFFFFFFF  # of the last entry of a move, whose key is the slots: so every move has a place in both logs
_DROP_MAX = 5_000
_SCAN_ROWS = 50_000
_RELOG_ROWS = 10_000

Rows = dict[int, list[tuple[bytes, bytes]]]  # (key, row) pairs by table


@dataclass(frozen=True, slots=True)
class Limits:
    """Bytes of a row, of the images a transaction logs, and of a log entry; one change may log more: before and after."""

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


class Node(NodeLog):
    """One stream of the store, and its rows."""

    def __init__(
        self,
        handle: Callable[[], Kernel],
        number: int,
        *,
        synced: bool,
        before_images: bool,
        limits: Limits = LIMITS,
        first_slots: int = EVERY,
    ) -> None:
        super().__init__(handle, number)
        self._first_slots = first_slots  # before any of them moves
        self._synced = synced
        self._before_images = before_images
        self._limits = limits

    def write(self, groups: Sequence[RowWrites], clock: Callable[[], int], slots: int | None = None) -> Position:
        """One transaction: all groups or none. A write that changes nothing leaves no change in the log.

        Misplaced unless the node has the `slots` of all rows, which are found here if they are not given.
        """
        kernel, size = self._handle(), 0
        with kernel.write("rows") as rows:
            state = self.state_in(rows)
            if state.slots != EVERY:
                wanted = slots_of(key for group in groups for key in group.keys) if slots is None else slots
                if wanted & ~state.slots:
                    raise Misplaced
            applied: list[TableChanges] = []
            for group in groups:
                prefix = table_prefix(group.table)
                befores = rows.get_many([prefix + key for key in group.keys])
                changes, logged_bytes = self._changes(group, befores)
                _, keys, _, afters = changes
                put = [prefix + key for key, row in zip(keys, afters, strict=True) if row is not None]
                rows.put_many(put, [row for row in afters if row is not None])
                if len(put) < len(keys):
                    rows.delete_many([prefix + key for key, row in zip(keys, afters, strict=True) if row is None])
                applied.append(changes)
                size += logged_bytes
            if len(groups) > 1:
                self._limits.require_transaction(size)
            position = self._append(rows, state, list(entries_of(applied, self._limits.entry)), clock())
            failpoint("node.write.before_commit")
        if self._synced and not kernel.synced:  # the process's handle was opened with sync=off
            kernel.sync()
        failpoint("node.write.committed")
        return position

    def state_in(self, some_map: OrderedMap) -> NodeState:
        value = some_map.of("info").get(_LAST) or _NOTHING
        slots = value[_LAST_FACTS.size :]
        end = LogEnd(*_LAST_FACTS.unpack_from(value))
        return NodeState(end, int.from_bytes(slots, "little") if slots else self._first_slots, slots)

    def _changes(self, group: RowWrites, befores: list[Image]) -> tuple[TableChanges, int]:
        """What a group changes of the rows found, and the size of the rows in bytes."""
        afters = group.merge(befores)
        size = self._limits.require_room(befores, afters)
        images = enumerate(zip(befores, afters, strict=True))
        changed = [i for i, (before, after) in images if before != after or group.repeats]
        told: list[Image] = [befores[i] for i in changed] if self._before_images else [None] * len(changed)
        return (group.table, [group.keys[i] for i in changed], told, [afters[i] for i in changed]), size

    def _append(
        self,
        some_map: OrderedMap,
        state: NodeState,
        bodies: Sequence[tuple[int, int, bytes]],
        now: int,
        *,
        is_moved: bool = False,
    ) -> Position:
        """Write entries (table, number of changes, body) of one transaction; returns where the log ends."""
        log, end = some_map.of("log"), state.end
        stamp = max(end.stamp + 1, now)
        moved = log_format.MOVED if is_moved else 0
        for number, (table, count, body) in enumerate(bodies, 1):
            flags = moved | (log_format.ENDS_TRANSACTION if number == len(bodies) else 0)
            entry = log_format.encode_entry(
                body, flags=flags, table=table, stream=self.number, count=count, stamp=stamp, begins=end.bytes
            )
            end = LogEnd(end.position + count, stamp, end.bytes + len(entry))
            log.put(log_format.position_key(end.position), entry, is_last=True)
        if bodies:
            some_map.of("info").put(_LAST, _LAST_FACTS.pack(*end) + state.stored)
        return Position(end.position)

    def move(self, rows: OrderedMap, moved: Rows, slots: int, stamp: int, *, arrive: bool) -> Position:
        """Put or delete rows that come or go with their slots; the log's entries of those that leave can finish the move."""
        changes: list[TableChanges] = []
        for table, pairs in moved.items():
            prefix, none = table_prefix(table), [None] * len(pairs)
            keys, images = [key for key, _ in pairs], [row for _, row in pairs]
            stored = [prefix + key for key in keys]
            rows.put_many(stored, images) if arrive else rows.delete_many(stored)
            changes.append((table, keys, [*none] if arrive else [*images], [*none]))
        changes.append((NO_TABLE, [slots.to_bytes(SLOTS // 8, "little")], [None], [None]))
        state = self.state_in(rows)
        owned = state.slots | slots if arrive else state.slots & ~slots
        changed = NodeState(state.end, owned, owned.to_bytes(SLOTS // 8, "little"))
        return self._append(rows, changed, list(entries_of(changes, self._limits.entry)), stamp, is_moved=True)

    def log_rows(self, tables: Sequence[int], clock: Callable[[], int]) -> None:
        """Log every row of some tables again, in bounded transactions: a DELTA is built from the log alone."""
        for table in tables:
            prefix, after = table_prefix(table), b""
            while True:
                with self.kernel.write("rows") as rows:
                    pairs = next(rows.lists(*range_after(prefix, after, None), size=_RELOG_ROWS), None)
                    if pairs is None:
                        break
                    keys = [key[TABLE_BYTES:] for key, _ in pairs]
                    images: list[Image] = [row for _, row in pairs]
                    told = list(entries_of([(table, keys, [None] * len(keys), images)], self._limits.entry))
                    self._append(rows, self.state_in(rows), told, clock())
                after = keys[-1]

    def get(self, table: int, key: bytes) -> Image:
        with self._handle().read("rows") as rows:
            row = rows.get(table_prefix(table) + key)
            if row is None:  # one that is found is here: no node has rows of slots that it has not
                self._require_absent(rows, (key,))
            return row

    def get_many(self, table: int, keys: Sequence[bytes]) -> list[Image]:
        prefix = table_prefix(table)
        with self._handle().read("rows") as rows:
            found = rows.get_many([prefix + key for key in keys])
            if None in found:
                self._require_absent(rows, (key for key, row in zip(keys, found, strict=True) if row is None))
            return found

    def _require_absent(self, rows: OrderedMap, keys: Iterable[bytes]) -> None:
        """Raise Misplaced where a row that was not found here may be elsewhere."""
        owned = self.state_in(rows).slots
        if owned != EVERY and slots_of(keys) & ~owned:
            raise Misplaced

    def held(self) -> AbstractContextManager[OrderedMap]:
        """All rows as they are now, for as long as a scan takes."""
        return self.kernel.held("rows")

    def count_rows(self, table: int) -> int:
        with self.kernel.read("rows") as rows:
            prefix = table_prefix(table)
            return rows.count(prefix, after_prefix(prefix))

    def rows_held(self) -> int:
        """The approximate number of rows of all tables."""
        with self.kernel.read("rows") as rows:
            return len(rows)

    def scan_as_of(
        self, table: int, position: Position, low: bytes, high: bytes | None
    ) -> Iterator[tuple[list[bytes], list[bytes]]]:
        """Rows with low < key <= high as of `position`, as (keys, rows): the current ones with later changes undone."""
        from viewkeeper.stores.local.log_batches import images_before

        with self.kernel.read("rows") as stored:
            changes = self.changes_since(stored, position)
            earlier = images_before((batch for number, batch in changes if number == table), low, high)
            for pairs in stored.lists(*range_after(table_prefix(table), low, high), size=_SCAN_ROWS):
                keys = [key[TABLE_BYTES:] for key, _ in pairs]
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
            with self.kernel.write("rows") as rows:
                gone = rows.drop(table_prefix(table), limit=_DROP_MAX)
