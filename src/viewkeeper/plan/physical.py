"""Physical plan: what an epoch runs, complete in itself.

In: nothing but this value (it is stored in the epoch record at begin, `epochs.md` R9). Out: nodes in an order in which a
node stands behind all that it reads. Always: a re-run needs no catalog, no parser and no planner, and two processes write
the same JSON for the same plan.
"""

from __future__ import annotations

from dataclasses import dataclass

from viewkeeper.model.fills import Chunk
from viewkeeper.model.schema import TableSchema
from viewkeeper.plan.nodes import NODE_KINDS, Node
from viewkeeper.plan.plain import from_plain, remembered, to_plain


@dataclass(frozen=True, slots=True)
class PhysicalPlan:
    """All nodes of one epoch, and the base tables they read.

    δ needs no node: a table that has a DELTA goes through it first, the log of any other says both images of a row.
    """

    tables: tuple[TableSchema, ...]
    nodes: tuple[Node, ...]

    @property
    def deltas(self) -> tuple[TableSchema, ...]:
        """The tables that go through a stored DELTA."""
        return tuple(table for table in self.tables if table.delta is not None)

    @property
    def levels(self) -> tuple[int, ...]:
        """The level of each node: 1 over base tables alone, else one above the highest that it reads.

        All nodes of a level are settled together; between levels lies a shuffle.
        """
        found: dict[int, int] = {}
        for node in self.nodes:
            found[node.table] = 1 + max((found.get(feed.source, 0) for feed in node.feeds), default=0)
        return tuple(found[node.table] for node in self.nodes)

    def readers(self, source: int) -> list[tuple[int, int]]:
        """Who reads a table or a node: (node, feed) by their places."""
        return [
            (number, place)
            for number, node in enumerate(self.nodes)
            for place, feed in enumerate(node.feeds)
            if feed.source == source
        ]

    def sources_of(self, view: int) -> tuple[int, ...]:
        """The base tables that a view is computed from, in the order in which they were made."""
        bases = {table.id for table in self.tables}
        return tuple(sorted({f.source for node in self.nodes if node.view == view for f in node.feeds} & bases))

    @property
    def views(self) -> tuple[int, ...]:
        """The views that the nodes belong to."""
        return tuple(dict.fromkeys(node.view for node in self.nodes))

    def reads_log(self, chunks: tuple[Chunk, ...]) -> bool:
        """Whether a change can matter: not when all views are only about to be filled, and no DELTA is kept."""
        waiting = {view for chunk in chunks if chunk.opens for view in chunk.tables}
        return bool(self.deltas) or any(view not in waiting for view in self.views)

    def table(self, table_id: int) -> TableSchema:
        return next(table for table in self.tables if table.id == table_id)

    def to_json(self) -> dict[str, object]:
        return {"tables": [table.to_json() for table in self.tables], "nodes": [node_to_json(n) for n in self.nodes]}

    @staticmethod
    @remembered
    def from_json(value: dict) -> PhysicalPlan:
        tables = tuple(TableSchema.from_json(table) for table in value["tables"])
        return PhysicalPlan(tables, tuple(node_from_json(node) for node in value["nodes"]))


def node_to_json(node: Node) -> dict[str, object]:
    kind = next(name for name, kind in NODE_KINDS.items() if isinstance(node, kind))
    return {"node": kind} | to_plain(node)


def node_from_json(value: dict) -> Node:
    return from_plain(NODE_KINDS[value["node"]], {name: part for name, part in value.items() if name != "node"})
