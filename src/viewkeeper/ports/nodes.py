"""Nodes: the port to the nodes of a store, which may come and go while it is used."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from viewkeeper.model.positions import Positions


@dataclass(frozen=True, slots=True)
class NodeFacts:
    """A node: its slots, of 256, about how many rows it has, and its state: in use, being added, being removed, removed."""

    number: int
    slots: int
    rows: int
    state: str


@dataclass(frozen=True, slots=True)
class Altered:
    """The node that was added or removed, and how many rows moved for it."""

    node: int
    rows_moved: int


class Nodes(Protocol):
    """What an operator does with nodes; each call goes on where an interrupted one stopped."""

    def add_node(self) -> Altered:
        """Add a node, and move its share of the rows to it, while readers and writers go on."""
        ...

    def remove_node(self, number: int) -> Altered:
        """Move all rows of a node to the others; its log is read to the end, and then it is forgotten."""
        ...

    def retire_nodes(self, positions: Positions, *, older_than_seconds: float) -> int:
        """Forget removed nodes whose logs are committed up to `positions`, to their ends, and old; returns how many."""
        ...

    def node_facts(self) -> tuple[NodeFacts, ...]:
        """The nodes as they are now."""
        ...
