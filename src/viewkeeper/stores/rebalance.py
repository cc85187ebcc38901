"""Rebalance: nodes are added to a store and removed from it (ALTER STORE), and slots are spread evenly over the others.

In: a store. Out: slots spread evenly over its nodes. Always: the task is kept in the placement before the first row
moves, so a statement that was interrupted goes on where it stopped when it is repeated; another one is refused until
then.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from dataclasses import replace
from typing import Protocol

from viewkeeper.errors import InputError
from viewkeeper.ports.admin import Altered, NodeFacts
from viewkeeper.stores.local_store import LocalStore
from viewkeeper.stores.open import NODES_MAX
from viewkeeper.stores.placement import Placement, even_moves, listed


class AlterableStore(LocalStore, Protocol):
    """A store whose nodes come and go."""

    def move(self, slots: int, source: int, target: int) -> int:
        """Move slots from one node to another; returns how many rows moved with them."""
        ...

    def make_node(self) -> int:
        """A new node without slots; returns its number."""
        ...

    def altering(self) -> AbstractContextManager[None]: ...

    def add_node(self) -> Altered:
        with self.altering():
            placement = _quiesced_placement(self)
            if placement.task is None:
                _require_room(placement)
                number = self.make_node()
            else:
                number = _resumed(placement, "add", placement.task[1])
            moved = _spread(self)
            self.meta.change_placement(lambda placement, _: replace(placement, task=None))
        return Altered(number, moved)

    def remove_node(self, number: int) -> Altered:
        with self.altering():
            placement = _quiesced_placement(self)
            if placement.task is not None:
                _resumed(placement, "remove", number)
            elif number not in placement.takers:
                known = ", ".join(map(str, placement.takers))
                raise InputError(f"the store has no node {number}", f"its nodes are {known}")
            elif len(placement.takers) == 1:
                raise InputError(f"node {number} is the last one", "a store has at least one node")
            else:
                self.meta.change_placement(lambda placement, _: replace(placement, task=("remove", number)))
            moved = _spread(self)
            self.meta.change_placement(lambda placement, _: placement.with_ended(number))
        return Altered(number, moved)

    def node_facts(self) -> tuple[NodeFacts, ...]:
        nodes, placement = self.nodes, self.meta.read_placement()
        task = {placement.task[1]: placement.task[0]} if placement.task else {}
        states = {"add": "being added", "remove": "being removed"}
        return tuple(
            NodeFacts(
                node.number,
                len(listed(placement.slots_of(node.number))),
                node.rows_held(),
                "removed" if node.number in placement.ended else states.get(task.get(node.number, ""), "in use"),
            )
            for node in nodes
        )


def _quiesced_placement(store: AlterableStore) -> Placement:
    store.settle()
    return store.meta.read_placement()


def _spread(store: AlterableStore) -> int:
    """Move slots until all nodes that take them have about the same number; returns how many rows moved."""
    placement, moved = _quiesced_placement(store), 0
    for source, target, slots in even_moves(placement.slots, placement.takers):
        moved += store.move(slots, source, target)
    return moved


def _require_room(placement: Placement) -> None:
    if len(placement.takers) >= NODES_MAX:
        raise InputError(f"the store has {NODES_MAX} nodes, and may have no more", "remove one first")
    if len(placement.nodes) >= NODES_MAX:
        raise InputError(
            f"the logs of {len(placement.ended)} removed nodes are still read, and {NODES_MAX} is the most at once",
            "let the pipeline run: it lets go of each some minutes after its log is committed",
        )


def _resumed(placement: Placement, kind: str, number: int) -> int:
    """The node of the interrupted statement, if that is the one to be run."""
    if placement.task != (kind, number):
        known, node = placement.task or (kind, number)
        told = "ADD NODE" if known == "add" else f"REMOVE NODE {node}"
        raise InputError(f"ALTER STORE {told} was interrupted", f"repeat ALTER STORE {told} first: it goes on")
    return number
