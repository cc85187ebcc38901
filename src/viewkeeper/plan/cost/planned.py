"""Planned nodes: the nodes that epochs run, each with the relation that it keeps.

In: a catalog. Out: nodes with their tables, in the order in which they are applied. Always: those of `planner`, of all
views that are kept.
"""

from __future__ import annotations

from dataclasses import dataclass

from viewkeeper.catalog.catalog import Catalog
from viewkeeper.catalog.define import lower
from viewkeeper.plan.assign import placed_nodes
from viewkeeper.plan.nodes import Node
from viewkeeper.sql.relations import Relation


@dataclass(frozen=True, slots=True)
class PlannedNode:
    node: Node
    relation: Relation


def planned_nodes(catalog: Catalog) -> tuple[PlannedNode, ...]:
    found: dict[int, PlannedNode] = {}
    for view in catalog.kept:
        lowered = lower(catalog, view)
        kept = {text: relation for relation, texts in lowered.relations.items() for text in texts}
        for node, text in zip(placed_nodes(lowered, catalog.stored(view)), lowered.texts, strict=True):
            found.setdefault(node.table, PlannedNode(node, kept[text]))
    return tuple(found.values())
