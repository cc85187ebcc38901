"""Physical plan: what an epoch runs, self-contained.

In: nothing but this value, which is stored before an epoch begins (`docs/epochs.md`, R9). Out: nodes, each after all that
it reads. Always: a re-run needs no catalog, no parser and no planner; equal plans have equal JSON in every process.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection
from dataclasses import dataclass

from viewkeeper.errors import EpochFailed, InvariantBroken
from viewkeeper.model.epochs import AsideRequest
from viewkeeper.model.json_codec import Remembered, from_json_value, to_json_value
from viewkeeper.model.positions import Chunk
from viewkeeper.model.schema import Column, TableId, TableSchema
from viewkeeper.plan.nodes import NODE_KINDS, AppliedNode, CellDeltaNode, DeltaNode, Node, OutputNode, RepairNode

FORMAT = 2  # of the JSON; a plan in another one is not run


@dataclass(frozen=True, slots=True)
class PhysicalPlan:
    """All nodes of one epoch, and the base tables they read. δ needs no node: the changes of a table with a DELTA go through
    that first; other logs hold rows before and after. An epoch of `repairs`, or of a request for rows set `aside`, reads no
    log and fills no view.
    """

    tables: tuple[TableSchema, ...]
    nodes: tuple[Node, ...]
    repairs: tuple[RepairNode, ...] = ()
    aside: AsideRequest | None = None

    @property
    def deltas(self) -> tuple[DeltaNode, ...]:
        """The DELTAs that changes go through first."""
        return tuple(
            DeltaNode(table.delta, table) if table.foreign is None else CellDeltaNode(table.delta, table)
            for table in self.tables
            if table.delta is not None
        )

    @property
    def stages(self) -> tuple[tuple[AppliedNode, ...], ...]:
        """All nodes by stages, with a shuffle between them: DELTAs first, then each node right after all that it reads."""
        if self.repairs:
            return (self.repairs,)
        levels: dict[int, int] = {}
        for node in self.nodes:
            levels[node.table] = 1 + max((levels.get(edge.source, 0) for edge in node.edges), default=0)
        found: list[tuple[AppliedNode, ...]] = [self.deltas] if self.deltas else []
        for level in range(1, max(levels.values(), default=0) + 1):
            found.append(tuple(node for node in self.nodes if levels[node.table] == level))
        return tuple(found)

    def node(self, table: int) -> AppliedNode:
        """The node whose own table this is."""
        nodes = (*self.nodes, *self.deltas, *self.repairs)
        if (found := next((node for node in nodes if node.table == table), None)) is None:
            raise InvariantBroken(f"no node of the plan has table {table}")
        return found

    def delta_of(self, source: int) -> DeltaNode | None:
        """The DELTA of a base table, if it has one."""
        return next((delta for delta in self.deltas if delta.source.id == source), None)

    def readers(self, source: int) -> list[tuple[Node, int]]:
        """The readers of a table or a node: a node, and which of its edges."""
        return [(node, i) for node in self.nodes for i, edge in enumerate(node.edges) if edge.source == source]

    def edge_with_aside(self, table: int) -> tuple[Node, int]:
        """The node, and the index of its edge, that lists rows set aside in `table`."""
        return next((node, i) for node in self.nodes for i, edge in enumerate(node.edges) if edge.aside == table)

    def sources_of(self, backfill: int, filled: Collection[int] = ()) -> tuple[int, ...]:
        """The sources of a backfill's rows, by id: base tables and `filled` nodes; other nodes are filled from theirs."""
        nodes = {node.table: node for node in self.nodes}
        found, waiting, seen = set(), [node for node in self.nodes if node.backfill == backfill], set()
        while waiting:
            node = waiting.pop()
            seen.add(node.table)
            for source in {edge.source for edge in node.edges} - seen:
                below = nodes.get(source)
                if below is None or below.backfill in filled:
                    found.add(source)
                else:
                    waiting.append(below)
        return tuple(sorted(found))

    @property
    def bases(self) -> dict[int, frozenset[int]]:
        """The base tables that each node is computed from, by its table."""
        found: dict[int, frozenset[int]] = {delta.table: frozenset((delta.source.id,)) for delta in self.deltas}
        for node in self.nodes:
            sources = (edge.source for edge in node.edges)
            found[node.table] = frozenset().union(*(found.get(source, {source}) for source in sources))
        return found

    @property
    def backfills(self) -> tuple[int, ...]:
        """The backfills that fill, or filled, the nodes."""
        return tuple(dict.fromkeys(node.backfill for node in self.nodes))

    def reads_log(self, chunks: tuple[Chunk, ...]) -> bool:
        """Whether a change can matter: not when all views are yet to be filled, and there is no DELTA."""
        waiting = {backfill for chunk in chunks if chunk.opens for backfill in chunk.tables}
        return bool(self.deltas) or not waiting.issuperset(self.backfills)

    def schema(self, source: int) -> TableSchema:
        """The columns of a base table, or of a node with records, for its readers."""
        table = next((table for table in self.tables if table.id == source), None)
        if table is not None:
            return table
        node = next(node for node in self.nodes if node.table == source)
        if not isinstance(node, OutputNode):
            raise InvariantBroken(f"node {source} has no records for readers")
        parts = (("k", node.key), ("v", node.row))
        columns = tuple(Column(f"{name}{i}", c.type, c.nullable) for name, part in parts for i, c in enumerate(part))
        return TableSchema(TableId(source), "", columns, tuple(f"k{index}" for index in range(len(node.key))))

    def stored_in(self, source: int) -> int | None:
        """The table whose records are the rows of a source; None for a base table whose log has before-images."""
        table = next((table for table in self.tables if table.id == source), None)
        return source if table is None else table.delta

    @property
    def digest(self) -> str:
        """The name that it is stored under; equal plans have the same."""
        return hashlib.blake2b(json.dumps(self.to_json(), sort_keys=True).encode(), digest_size=16).hexdigest()

    def to_json(self) -> dict[str, object]:
        plain = {"format": FORMAT, "tables": to_json_value(self.tables), "nodes": [node_to_json(n) for n in self.nodes]}
        more = {"repairs": to_json_value(self.repairs)} if self.repairs else {}
        return plain | more | ({"aside": to_json_value(self.aside)} if self.aside else {})

    @staticmethod
    def from_json(value: dict) -> PhysicalPlan:
        """The plan; EpochFailed if a release with another format stored it."""
        return _parse(value)


def _from_plain(value: dict) -> PhysicalPlan:
    if value.get("format", 1) != FORMAT:
        raise EpochFailed("the plan of the epoch in flight was stored by another release", "it is planned anew")
    tables = tuple(from_json_value(TableSchema, table) for table in value["tables"])
    repairs = tuple(from_json_value(RepairNode, node) for node in value.get("repairs", ()))
    aside = from_json_value(AsideRequest, value["aside"]) if "aside" in value else None
    return PhysicalPlan(tables, tuple(node_from_json(node) for node in value["nodes"]), repairs, aside)


_parse = Remembered("plan", _from_plain)


def node_to_json(node: Node) -> dict[str, object]:
    kind = next(name for name, kind in NODE_KINDS.items() if isinstance(node, kind))
    return {"node": kind} | to_json_value(node)


def node_from_json(value: dict) -> Node:
    return from_json_value(NODE_KINDS[value["node"]], {name: part for name, part in value.items() if name != "node"})
