"""Placement: which node has which keys, and the moves that change that.

In: keys, and steps of a move. Out: slots, nodes, frozen placements. Always: a key has one slot, by its hash, and a slot
one node. The nodes themselves say which slots they have, inside each transaction; a placement is what is known of that
outside (`docs/decisions/0044-nodes-that-come-and-go.md`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import reduce
from operator import or_
from typing import TYPE_CHECKING

from viewkeeper.errors import RowsApart
from viewkeeper.model.epochs import EpochRecord
from viewkeeper.model.keys import placement_hash
from viewkeeper.model.positions import Positions, Stream
from viewkeeper.model.stored_rows import RowWrites

if TYPE_CHECKING:
    import numpy as np

SLOTS = 256
EVERY = (1 << SLOTS) - 1  # sets of slots are numbers: bit n is slot n


class Misplaced(Exception):
    """The node does not have the slot of a key: ask again which one does."""


def slot_of(key: bytes) -> int:
    return placement_hash(key) % SLOTS


def slots_of(keys: Iterable[bytes]) -> int:
    """The set of the keys' slots."""
    return set_of(map(slot_of, keys))


def set_of(slots: Iterable[int]) -> int:
    found = 0
    for slot in slots:
        found |= 1 << slot
    return found


def listed(slots: int) -> list[int]:
    return [slot for slot in range(SLOTS) if slots >> slot & 1]


def first_slots(node: int, nodes: int) -> int:
    """The slots of a node of a store that is made with so many; those added later have none at first."""
    return set_of(range(node, SLOTS, nodes)) if node < nodes else 0


def are_whole(parts: Iterable[int]) -> bool:
    """Whether each slot is in exactly one of the sets."""
    parts = list(parts)
    return sum(parts) == reduce(or_, parts, 0) == EVERY


@dataclass(frozen=True, slots=True)
class Intent:
    """A move under way: `after` is where the log of `source` ended before it; the stamps are those of its entries."""

    slots: int
    source: int
    target: int
    after: int
    left: int
    arrived: int


@dataclass(frozen=True, slots=True)
class Move:
    """A move done: no cut lies between its stamps. It ends at `position` of the log of `source`."""

    left: int
    arrived: int
    source: int
    position: int

    def is_in(self, positions: Positions) -> bool:
        return positions.get(Stream(str(self.source)), 0) >= self.position


@dataclass(frozen=True, slots=True)
class Placement:
    """The node of each slot. `ended` nodes have none any more and their logs are still read; `retired` are gone.

    `task` is what an ALTER STORE that has not ended does, and to which node; `moves` are those not committed yet.
    """

    version: int
    slots: tuple[int, ...]
    nodes: tuple[int, ...]
    next: int
    ended: tuple[int, ...] = ()
    retired: dict[int, int] = field(default_factory=dict)  # and where their logs ended
    task: tuple[str, int] | None = None
    intent: Intent | None = None
    moves: tuple[Move, ...] = ()
    only: int | None = field(init=False, default=None)  # the node of all slots, if there is one

    def __post_init__(self) -> None:
        if len(set(self.slots)) == 1:
            object.__setattr__(self, "only", self.slots[0])

    @staticmethod
    def first(nodes: int) -> Placement:
        """That of a store that is made with so many nodes."""
        return Placement(0, tuple(slot % nodes for slot in range(SLOTS)), tuple(range(nodes)), nodes)

    def slots_of(self, node: int) -> int:
        return set_of(slot for slot, owner in enumerate(self.slots) if owner == node)

    def node_of_group(self, writes: Sequence[RowWrites]) -> tuple[int, int]:
        """The node of all rows of a group of writes, and their slots; RowsApart when they have several."""
        slots = slots_of(key for write in writes for key in write.keys)
        found = {self.slots[slot] for slot in listed(slots)}
        if len(found) > 1:
            fact = f"this group of writes has rows of several nodes: {', '.join(map(str, sorted(found)))}"
            raise RowsApart(fact, "use put_many or single puts, which together are not one atomic step")
        return (found.pop() if found else self.slots[0]), slots

    def by_node(self, keys: Sequence[bytes]) -> list[np.ndarray]:
        """The keys of each node, by their indexes in `keys`; nodes without a key are left out."""
        import numpy as np
        import pyarrow as pa

        from viewkeeper.model.keybatches import hash_all
        from viewkeeper.model.varbinary import VarBinary

        if self.only is not None:
            return [np.arange(len(keys))]
        placed = np.array(self.slots)[hash_all(VarBinary.from_arrow(pa.array(keys, pa.binary()))) % SLOTS]
        return [np.flatnonzero(placed == node) for node in np.unique(placed)]

    def first_move_after(self, positions: Positions) -> Move | None:
        later = [move for move in self.moves if not move.is_in(positions)]
        return min(later, key=lambda move: move.left, default=None)

    def moves_after(self, stamp: int) -> bool:
        return any(move.left > stamp for move in self.moves)

    def may_have_moved(self, stamp: int) -> bool:
        """Whether rows have moved since, or are about to: a fill that began then would miss them (R12)."""
        return self.intent is not None or self.moves_after(stamp)

    def is_apart(self, stamp: int) -> bool:
        """Whether an instant lies between a move's stamps, where rows are on no node."""
        return any(move.left <= stamp < move.arrived for move in self.moves)

    def moved(self, intent: Intent, position: int) -> Placement:
        """The placement after a move that ends at `position` of the source's log."""
        owners = [intent.target if intent.slots >> slot & 1 else owner for slot, owner in enumerate(self.slots)]
        move = Move(intent.left, intent.arrived, intent.source, position)
        return replace(self, slots=tuple(owners), moves=(*self.moves, move), intent=None)

    def with_node(self) -> Placement:
        """One node more, which has no slots yet and is to get its share."""
        return replace(self, nodes=(*self.nodes, self.next), next=self.next + 1, task=("add", self.next))

    def with_ended(self, node: int) -> Placement:
        return replace(self, ended=(*self.ended, node), task=None)

    def without_node(self, node: int, position: int) -> Placement:
        """An ended node is retired: its log ends at `position`, and all of it is committed."""
        left, ended = (tuple(n for n in some if n != node) for some in (self.nodes, self.ended))
        return replace(self, nodes=left, ended=ended, retired=self.retired | {node: position})

    @property
    def takers(self) -> tuple[int, ...]:
        """The nodes that have, or are to get, slots."""
        leaving = self.task[1] if self.task and self.task[0] == "remove" else None
        return tuple(node for node in self.nodes if node not in self.ended and node != leaving)


def fills_from(record: EpochRecord) -> int | None:
    """The instant whose rows the epoch in flight fills views from; None when it fills none."""
    inflight = record.inflight
    return inflight.stop.stamp if inflight and inflight.chunks else None


def is_filling(record: EpochRecord) -> bool:
    """Whether a view is being filled: cursors go by node and key (R12), so no row may move now."""
    return bool(record.filling) or fills_from(record) is not None


def even_moves(slots: Sequence[int], takers: Sequence[int]) -> list[tuple[int, int, int]]:
    """(source, target, slots): the fewest that give all takers the same number of slots, but for one, and others none."""
    held = {node: [slot for slot, owner in enumerate(slots) if owner == node] for node in {*slots, *takers}}
    share, more = divmod(SLOTS, len(takers))
    ranked = sorted(takers, key=lambda node: (-len(held[node]), node))
    goals = {node: share + (index < more) for index, node in enumerate(ranked)}
    surplus = [(node, slot) for node in sorted(held) for slot in held[node][goals.get(node, 0) :]]
    found: dict[tuple[int, int], int] = {}
    for target in ranked:
        for _ in range(goals[target] - len(held[target])):
            source, slot = surplus.pop(0)
            found[source, target] = found.get((source, target), 0) | 1 << slot
    return [(source, target, moved) for (source, target), moved in found.items()]
