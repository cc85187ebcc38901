"""Stored nodes: the catalog's entries for the plan's nodes that keep records.

In: nothing; `assign` makes them. Out: frozen values that go to JSON and back. Always: a stored node is identified by
its own table and found by its canonical text; it belongs to no view, and exists for as long as a view needs it. Its SQL
is not here: that is made anew with every plan.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from viewkeeper.model.plain import from_plain, to_plain
from viewkeeper.model.schema import Column, TableId


@dataclass(frozen=True, slots=True)
class Exceptions:
    """A table that lists the keys of rows set aside ("aside") or of groups with a value that does not fit ("degraded")."""

    kind: str
    table: TableId
    key: tuple[Column, ...]


@dataclass(frozen=True, slots=True)
class StoredNode:
    """`table` holds its records, `key` → `row`. `reads` are the base tables and nodes that it reads.

    `tables` are all that it writes, in the order in which lowering asks for them. `backfill` is the id of the view with
    which it was made: nodes made together are filled together.
    """

    table: TableId
    text: str
    reads: tuple[TableId, ...]
    tables: tuple[TableId, ...]
    backfill: TableId
    key: tuple[Column, ...]
    row: tuple[Column, ...]
    exceptions: tuple[Exceptions, ...]

    def to_json(self) -> dict[str, object]:
        return {name: to_plain(getattr(self, name)) for name in self.__slots__}

    @staticmethod
    def from_json(value: dict) -> StoredNode:
        return from_plain(StoredNode, value)


def with_dependents(nodes: Collection[StoredNode], tables: Collection[int]) -> frozenset[int]:
    """The tables of some nodes, and of all that is computed from them."""
    found = {node.table for node in nodes if node.table in tables}
    while more := {node.table for node in nodes if node.table not in found and not found.isdisjoint(node.reads)}:
        found |= more
    return frozenset(found)
