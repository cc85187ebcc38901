"""Rebalance: nodes are added to a store and removed from it (ALTER STORE), and slots move, while everybody reads and writes.

In: a store. Out: slots and their rows spread evenly over its nodes, and an entry in both logs for each move. Always: the
task is kept in the placement before the first row moves, so a statement that was interrupted goes on when it is repeated.
Whatever dies at whichever moment, each row is on one node or in the log of the node that it has just left, from where the
next who meets the intent brings it to its node. Both writers' locks are taken in the order of the nodes' numbers, and
then meta's. Rows are looked up before that, and under the locks only what changed meanwhile.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, suppress
from dataclasses import dataclass, replace
from functools import reduce
from typing import Protocol

from viewkeeper.errors import InputError, InvariantBroken, PositionLost, StoreBusy
from viewkeeper.failpoints import failpoint
from viewkeeper.model.epochs import EpochRecord
from viewkeeper.model.positions import Position, Positions
from viewkeeper.ports.admin import Altered, NodeFacts
from viewkeeper.stores.kv.kernel import TABLE_BYTES, OrderedMap, table_of, table_prefix
from viewkeeper.stores.local.meta import Meta, StoreLayout
from viewkeeper.stores.local.node import NO_TABLE, Node, Rows
from viewkeeper.stores.local.placement import SLOTS, Intent, Placement, even_moves, is_filling, listed, set_of, slot_of
from viewkeeper.stores.open import NODES_MAX

_PIECE_ROWS = 2_500  # moved at once, while writers of both nodes wait
_KEYS_MAX = 500_000  # of rows that were looked up and not moved yet
_LIST_ROWS = 10_000
_POLL_SECONDS = 0.02


class Alterable(Protocol):
    """A store whose nodes come and go; `LocalStore` says what each of these does."""

    layout: StoreLayout
    meta: Meta

    @property
    def nodes(self) -> Sequence[Node]: ...

    def node(self, number: int) -> Node: ...

    def now(self) -> int: ...

    def settle(self) -> None: ...

    def within(self, positions: Positions) -> list[tuple[Node, Position]]: ...

    def make_part(self, part: str) -> None: ...

    def altering(self) -> AbstractContextManager[None]: ...


def add_node(store: Alterable) -> Altered:
    with store.altering():
        placement = _quiesced_placement(store)
        if placement.task is None:
            number = _made(store, placement)
        else:
            number = placement.task[1]
            _require_same_task(placement, "add", number)
        moved = _spread(store)
        store.meta.change_placement(lambda placement, _: replace(placement, task=None))
    return Altered(number, moved)


def remove_node(store: Alterable, number: int) -> Altered:
    with store.altering():
        placement = _quiesced_placement(store)
        if placement.task is not None:
            _require_same_task(placement, "remove", number)
        elif number not in placement.takers:
            known = ", ".join(map(str, placement.takers))
            raise InputError(f"the store has no node {number}", f"its nodes are {known}")
        elif len(placement.takers) == 1:
            raise InputError(f"node {number} is the last one", "a store has at least one node")
        else:
            store.meta.change_placement(lambda placement, _: replace(placement, task=("remove", number)))
        moved = _spread(store)
        store.meta.change_placement(lambda placement, _: placement.with_ended(number))
    return Altered(number, moved)


def retire_nodes(store: Alterable, positions: Positions, before: int) -> None:
    """Forget nodes that were removed, once all of their logs is committed and ended before a stamp."""
    ended = store.meta.read_placement().ended
    found = [(node.number, node.log_end(), position) for node, position in store.within(positions)]
    gone = [
        (number, end.position)
        for number, end, position in found
        if number in ended and position >= end.position and end.stamp < before
    ]
    if gone:
        store.meta.change_placement(
            lambda placement, _: reduce(lambda left, one: left.without_node(*one), gone, placement)
        )


def node_facts(store: Alterable) -> tuple[NodeFacts, ...]:
    nodes, placement = store.nodes, store.meta.read_placement()
    states = dict.fromkeys(placement.ended, "removed")
    if placement.task is not None:
        states.setdefault(placement.task[1], {"add": "being added", "remove": "being removed"}[placement.task[0]])
    return tuple(
        NodeFacts(
            node.number,
            len(listed(placement.slots_of(node.number))),
            node.rows_held(),
            states.get(node.number, "in use"),
        )
        for node in nodes
    )


def _made(store: Alterable, placement: Placement) -> int:
    """A new node without slots, listed once it is durable; one that was made and not listed is made again."""
    if len(placement.takers) >= NODES_MAX:
        raise InputError(f"the store has {NODES_MAX} nodes, and may have no more", "remove one first")
    if len(placement.nodes) >= NODES_MAX:
        raise InputError(
            f"the logs of {len(placement.ended)} removed nodes are still read, and {NODES_MAX} is the most at once",
            "let the pipeline run: it lets go of each some minutes after its log is committed",
        )
    store.make_part(f"node-{placement.next}")
    failpoint("node.made")
    store.meta.change_placement(lambda placement, _: placement.with_node())
    failpoint("node.listed")
    return placement.next


def _quiesced_placement(store: Alterable) -> Placement:
    store.settle()
    return store.meta.read_placement()


def _spread(store: Alterable) -> int:
    """Move slots until all nodes that take them have about the same number; returns how many rows moved."""
    placement, moved = _quiesced_placement(store), 0
    for source, target, slots in even_moves(placement.slots, placement.takers):
        moved += move(store, slots, store.node(source), store.node(target))
    return moved


def _require_same_task(placement: Placement, kind: str, number: int) -> None:
    """Raise unless the interrupted statement is the one to be run."""
    if placement.task is not None and placement.task != (kind, number):
        known, node = placement.task
        told = "ADD NODE" if known == "add" else f"REMOVE NODE {node}"
        raise InputError(f"ALTER STORE {told} was interrupted", f"repeat ALTER STORE {told} first: it goes on")


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


def move(store: Alterable, slots: int, source: Node, target: Node) -> int:
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
    with node.held() as held:
        since = Position(node.state_in(held).end.position)
        for pairs in held.lists(b"", None, size=_LIST_ROWS):
            bare = pa.array([key[TABLE_BYTES:] for key, _ in pairs], pa.binary())
            slot_of_each = (hash_all(VarBinary.from_arrow(bare)) % SLOTS).tolist()
            for (key, _), slot in zip(pairs, slot_of_each, strict=True):
                if slot in keys:
                    keys[slot].append(key)
                    count += 1
            while count > _KEYS_MAX and len(keys) > 1:
                count -= len(keys.popitem()[1])
    return _Found(since, keys)


def _caught_up(node: Node, found: _Found) -> _Found:
    """With the keys of rows that were written since: what is read here need not be read under the locks."""
    with node.held() as held:
        end = Position(node.state_in(held).end.position)
        for key in _changed(node, held, set_of(found.keys), found.since):
            found.keys[slot_of(key[TABLE_BYTES:])].append(key)
    return _Found(end, found.keys)


def _move_piece(store: Alterable, slots: int, source: Node, target: Node, found: _Found) -> int:
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


def _try_piece(store: Alterable, slots: int, source: Node, target: Node, keys: set[bytes], since: Position) -> int:
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
    _record_move(store.meta, intent, position)
    failpoint("move.placed")
    return sum(map(len, rows.values()))


def finish(store: Alterable, intent: Intent) -> None:
    """Wait for the mover; if it is dead, bring the rows that have left to their node, or forget that they were to leave."""
    source, target = store.node(intent.source), store.node(intent.target)
    with ExitStack() as arriving, ExitStack() as leaving:
        here, there = _begin(source, target, leaving, arriving)
        if store.meta.read_placement().intent != intent:
            return
        if source.state_in(here).slots & intent.slots:
            _replace_intent(store.meta, intent, None)
            return
        position = source.find_stamp(intent.after, intent.left)
        if not target.state_in(there).slots & intent.slots:
            stamp = max(intent.left, target.state_in(there).end.stamp + 1)
            begun, intent = intent, replace(intent, arrived=stamp)
            _replace_intent(store.meta, begun, intent)
            rows = _rows_that_left(source, here, intent.after, position)
            target.move(there, rows, intent.slots, stamp, arrive=True)
    _sync(target)
    failpoint("move.finished")
    _record_move(store.meta, intent, position)


def _begin(source: Node, target: Node, leaving: ExitStack, arriving: ExitStack) -> tuple[OrderedMap, OrderedMap]:
    """Write transactions on both nodes, begun in the order of their numbers."""
    begun = {}
    for node, stack in sorted(((source, leaving), (target, arriving)), key=lambda pair: pair[0].number):
        begun[node.number] = stack.enter_context(node.kernel.write("rows"))
    return begun[source.number], begun[target.number]


def _sync(node: Node) -> None:
    """Where commits are not synced: what left must not come back, nor what arrived be lost, by a power loss between."""
    if not node.kernel.synced:
        node.sync()


def _intended(placement: Placement, record: EpochRecord, intent: Intent) -> Placement:
    if placement.intent is not None or is_filling(record):
        raise _NotNow
    later = tuple(move for move in placement.moves if not move.is_in(record.positions))
    return replace(placement, intent=intent, moves=later)


def _replace_intent(meta: Meta, old: Intent, new: Intent | None) -> None:
    meta.change_placement(lambda placement, _: replace(placement, intent=new) if placement.intent == old else placement)


def _record_move(meta: Meta, intent: Intent, position: int) -> None:
    meta.change_placement(
        lambda placement, _: placement.moved(intent, position) if placement.intent == intent else placement
    )


def _changed(node: Node, rows: OrderedMap, slots: int, since: Position) -> set[bytes]:
    """The keys of rows of the slots that changed after `since`; none of these slots has come from elsewhere since."""
    found: set[bytes] = set()
    for table, batch in node.changes_since(rows, since, with_moved=False):
        prefix = table_prefix(table)
        found |= {prefix + key for key in batch["key"].to_pylist() if slots >> slot_of(key) & 1}
    return found


def _rows_of(stored: OrderedMap, keys: Iterable[bytes]) -> Rows:
    rows: Rows = {}
    wanted = sorted(keys)
    for key, row in zip(wanted, stored.get_many(wanted), strict=True):
        if row is not None:
            rows.setdefault(table_of(key), []).append((key[TABLE_BYTES:], row))
    return rows


def _rows_that_left(node: Node, stored: OrderedMap, after: int, position: int) -> Rows:
    rows: Rows = {}
    for table, batch in node.changes_since(stored, after, position):
        if table != NO_TABLE:
            pairs = zip(batch["key"].to_pylist(), batch["before"].to_pylist(), strict=True)
            rows.setdefault(table, []).extend(pairs)
    return rows
