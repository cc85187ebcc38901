"""Moving slots: slots and their rows go from one node to another, while everybody reads and writes; and nodes are made.

In: a store, two nodes and slots; or the store's layout and meta. Out: the rows at the other node, and an entry in both
logs; or the number of a node that has no slots yet. Always: whatever dies at whichever moment, each row is on one node
or in the log of the node that it has just left, from where the next who meets the intent brings it to its node; both
writers' locks are taken in the order of the nodes' numbers, and then meta's. Rows are looked up before the locks are
taken, and only what changed meanwhile is looked up again under them. A new node's environment is durable before it is
listed; one that was made and not listed is removed by the next attempt.
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from typing import Protocol

import lmdb

from viewkeeper.errors import InvariantBroken, PositionLost, StoreBusy
from viewkeeper.failpoints import failpoint
from viewkeeper.model.epochs import EpochRecord
from viewkeeper.model.positions import Position
from viewkeeper.stores.embedded import tree
from viewkeeper.stores.embedded.atomic_directory import sync_directory, sync_tree, translate_os_errors
from viewkeeper.stores.embedded.file_locks import FileLock
from viewkeeper.stores.embedded.layout import Layout, raise_format
from viewkeeper.stores.embedded.lmdb_files import make_part
from viewkeeper.stores.embedded.meta import Meta
from viewkeeper.stores.embedded.node import Node, changes_since
from viewkeeper.stores.log_shard import NO_TABLE, Rows
from viewkeeper.stores.placement import SLOTS, Intent, Placement, is_filling, listed, set_of, slot_of


def make_node(layout: Layout, meta: Meta) -> int:
    """Make and list a node; only within `altering`."""
    number = meta.read_placement().next
    part = layout.part(f"node-{number}")
    folder = layout.path / part.name
    with translate_os_errors(folder):
        if folder.exists():
            shutil.rmtree(folder)
        make_part(folder, part)
        sync_tree(folder)
        sync_directory(layout.path)
    failpoint("node.made")
    meta.change_placement(lambda placement, _: placement.with_node())
    failpoint("node.listed")
    return number


@contextmanager
def altering(layout: Layout) -> Iterator[None]:
    """Within the block no other process adds or removes a node; a process that dies leaves no lock."""
    file = FileLock(layout.path / "alter.lock", os.O_RDWR | os.O_CREAT)
    try:
        if not file.lock(exclusive=True):
            raise StoreBusy(f"{file.holders()} is adding or removing a node", "wait until it has ended")
        raise_format(layout.path)
        yield
    finally:
        file.close()


_PIECE_ROWS = 2_500  # moved at once, while writers of both nodes wait
_KEYS_MAX = 500_000  # of rows that were looked up and not moved yet
_LIST_ROWS = 10_000
_POLL_SECONDS = 0.02


class Moving(Protocol):
    """What a move needs of its store."""

    @property
    def layout(self) -> Layout: ...

    @property
    def meta(self) -> Meta: ...

    def node(self, number: int) -> Node: ...

    def now(self) -> int: ...

    def settle(self) -> None: ...


class _NotNow(Exception):
    """A view is being filled, or another move is not finished."""


@dataclass(frozen=True, slots=True)
class _Found:
    """The keys of rows by slot, as of a position of the log; with their table's prefix."""

    since: Position
    keys: dict[int, list[bytes]]

    def pieces(self) -> Iterator[int]:
        """Sets of slots, each with few rows if its slots have."""
        piece, rows = 0, 0
        for slot, keys in self.keys.items():
            if piece and rows + len(keys) > _PIECE_ROWS:
                yield piece
                piece, rows = 0, 0
            piece, rows = piece | 1 << slot, rows + len(keys)
        if piece:
            yield piece


def move(store: Moving, slots: int, source: Node, target: Node) -> int:
    """Move slots and their rows, piece by piece; returns how many rows."""
    moved = 0
    while slots:
        found = _look_up(source, slots)
        for piece in list(found.pieces()):
            try:
                found = _caught_up(source, found)
                moved += _move_piece(store, piece, source, target, found)
            except PositionLost:  # the log was truncated since the rows were looked up
                break
            slots &= ~piece
    return moved


def _look_up(node: Node, slots: int) -> _Found:
    """The rows of the slots, or of as many of them as have not too many."""
    import pyarrow as pa

    from viewkeeper.model.keybatches import hash_all
    from viewkeeper.model.varbinary import VarBinary

    keys: dict[int, list[bytes]] = {slot: [] for slot in listed(slots)}
    count = 0
    with node.snapshot() as snapshot:
        since = Position(node.state_in(snapshot).end.position)
        for pairs in tree.scan_lists(snapshot, b"", None, size=_LIST_ROWS):
            bare = pa.array([key[tree.TABLE_BYTES :] for key, _ in pairs], pa.binary())
            places = (hash_all(VarBinary.from_arrow(bare)) % SLOTS).tolist()
            for (key, _), slot in zip(pairs, places, strict=True):
                if slot in keys:
                    keys[slot].append(key)
                    count += 1
            while count > _KEYS_MAX and len(keys) > 1:
                count -= len(keys.popitem()[1])
    return _Found(since, keys)


def _caught_up(node: Node, found: _Found) -> _Found:
    """With the keys of rows that were written since: what is read here need not be read under the locks."""
    with node.snapshot() as snapshot:
        end = Position(node.state_in(snapshot).end.position)
        for key in _changed(node, snapshot, set_of(found.keys), found.since):
            found.keys[slot_of(key[tree.TABLE_BYTES :])].append(key)
    return _Found(end, found.keys)


def _move_piece(store: Moving, slots: int, source: Node, target: Node, found: _Found) -> int:
    keys = {key for slot in listed(slots) for key in found.keys[slot]}
    until = time.monotonic() + store.layout.busy_seconds
    while True:
        with suppress(_NotNow):
            if not is_filling(store.meta.read_epoch_record()):  # asked first: writers wait for one who tries
                return _try_piece(store, slots, source, target, keys, found.since)
        if time.monotonic() > until:
            raise StoreBusy(
                "views are being filled, and no row may move meanwhile",
                "let the pipeline fill them, then repeat the statement: it goes on where it stopped",
            )
        time.sleep(_POLL_SECONDS)
        store.settle()


def _try_piece(store: Moving, slots: int, source: Node, target: Node, keys: set[bytes], since: Position) -> int:
    with ExitStack() as arriving, ExitStack() as leaving:  # the transaction that leaves is committed first
        leaving.callback(failpoint, "move.left")
        leaving.callback(_sync, source)
        here, there = _begin(source, target, leaving, arriving)
        known, (end, owned, _) = store.meta.read_placement(), source.state_in(here)
        if slots & ~owned:
            raise InvariantBroken(f"node {source.number} does not have the slots that are to leave it")
        rows = _rows_of(here, keys | _changed(source, here, slots, since))
        floor = max(end.stamp, target.state_in(there).end.stamp, *(move.arrived for move in known.moves), 0)
        stamp = max(floor + 1, store.now())
        intent = Intent(slots, source.number, target.number, end.position, stamp, stamp)
        store.meta.change_placement(lambda placement, record: _intended(placement, record, intent))
        failpoint("move.intent")
        target.move(there, rows, slots, stamp, arrive=True)
        position = source.move(here, rows, slots, stamp, arrive=False)
    _sync(target)
    failpoint("move.arrived")
    _place(store.meta, intent, position)
    failpoint("move.placed")
    return sum(map(len, rows.values()))


def finish(store: Moving, intent: Intent) -> None:
    """Wait for the mover; if it is dead, bring the rows that have left to their node, or forget that they were to leave."""
    source, target = store.node(intent.source), store.node(intent.target)
    with ExitStack() as arriving, ExitStack() as leaving:
        here, there = _begin(source, target, leaving, arriving)
        if store.meta.read_placement().intent != intent:
            return
        if source.state_in(here).slots & intent.slots:
            store.meta.change_placement(lambda placement, _: _forgotten(placement, intent))
            return
        position = source.find_stamp(intent.after, intent.left)
        if not target.state_in(there).slots & intent.slots:
            stamp = max(intent.left, target.state_in(there).end.stamp + 1)
            begun, intent = intent, replace(intent, arrived=stamp)
            store.meta.change_placement(lambda placement, _: _begun_again(placement, begun, intent))
            rows = _rows_that_left(source, here, intent.after, position)
            target.move(there, rows, intent.slots, stamp, arrive=True)
    _sync(target)
    failpoint("move.finished")
    _place(store.meta, intent, position)


def _begin(
    source: Node, target: Node, leaving: ExitStack, arriving: ExitStack
) -> tuple[lmdb.Transaction, lmdb.Transaction]:
    """Write transactions on both nodes, begun in the order of their numbers."""
    begun = {}
    for node, stack in sorted(((source, leaving), (target, arriving)), key=lambda pair: pair[0].number):
        begun[node.number] = stack.enter_context(node.environment.write("rows"))
    return begun[source.number], begun[target.number]


def _sync(node: Node) -> None:
    """Where commits are not synced: what left must not come back, nor what arrived be lost, by a power loss between."""
    if not node.environment.synced:
        node.sync()


def _intended(placement: Placement, record: EpochRecord, intent: Intent) -> Placement:
    if placement.intent is not None or is_filling(record):
        raise _NotNow
    later = tuple(move for move in placement.moves if not move.is_in(record.positions))
    return replace(placement, intent=intent, moves=later)


def _forgotten(placement: Placement, intent: Intent) -> Placement:
    return replace(placement, intent=None) if placement.intent == intent else placement


def _begun_again(placement: Placement, old: Intent, new: Intent) -> Placement:
    return replace(placement, intent=new) if placement.intent == old else placement


def _place(meta: Meta, intent: Intent, position: int) -> None:
    meta.change_placement(
        lambda placement, _: placement.moved(intent, position) if placement.intent == intent else placement
    )


def _changed(node: Node, transaction: lmdb.Transaction, slots: int, since: Position) -> set[bytes]:
    """The keys of rows of the slots that changed after `since`; none of these slots has come from elsewhere since."""
    found: set[bytes] = set()
    log = node.environment.database("log")
    for table, batch in changes_since(transaction, log, since, with_moved=False):
        prefix = tree.table_prefix(table)
        found |= {prefix + key for key in batch["key"].to_pylist() if slots >> slot_of(key) & 1}
    return found


def _rows_of(transaction: lmdb.Transaction, keys: Iterable[bytes]) -> Rows:
    rows: Rows = {}
    wanted = sorted(keys)
    for key, row in zip(wanted, tree.get_many(transaction, wanted), strict=True):
        if row is not None:
            rows.setdefault(tree.table_of(key), []).append((key[tree.TABLE_BYTES :], row))
    return rows


def _rows_that_left(node: Node, transaction: lmdb.Transaction, after: int, position: int) -> Rows:
    rows: Rows = {}
    for table, batch in changes_since(transaction, node.environment.database("log"), after, position):
        if table != NO_TABLE:
            pairs = zip(batch["key"].to_pylist(), batch["before"].to_pylist(), strict=True)
            rows.setdefault(table, []).extend(pairs)
    return rows
