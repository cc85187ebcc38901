"""The nodes that an epoch runs for a view, and views defined by hand."""

from __future__ import annotations

from dataclasses import replace

from viewkeeper.model.schema import TableId
from viewkeeper.plan.assign import placed_nodes
from viewkeeper.plan.catalog import Catalog, ViewDefinition
from viewkeeper.plan.define import define_view, lower
from viewkeeper.plan.logical import STORED, Base, Delta, LogicalNode, LogicalPlan
from viewkeeper.plan.nodes import Node


def nodes_of(catalog: Catalog, name: str) -> list[Node]:
    """The nodes of a view, its own last, with their tables."""
    view = catalog.view(name)
    return placed_nodes(lower(catalog, view), catalog.stored(view))


def with_view(catalog: Catalog, name: str, text: str) -> Catalog:
    return catalog.with_view(*define_view(catalog, name, text))


def tables_of(catalog: Catalog, view: ViewDefinition) -> set[int]:
    """All tables of the nodes that a view needs."""
    return {table for node in catalog.stored(view) for table in node.tables}


def with_deltas(catalog: Catalog) -> Catalog:
    """The same tables over a log without before-images."""
    tables = tuple(replace(table, delta=TableId(catalog.next_id + at)) for at, table in enumerate(catalog.tables))
    return replace(catalog, tables=tables, next_id=catalog.next_id + len(tables))


def with_stored_deltas(plan: LogicalPlan) -> LogicalPlan:
    """The same plan over logs without before-images."""

    def stored(node: LogicalNode) -> LogicalNode:
        over_base = isinstance(node, Delta) and isinstance(plan.nodes[node.input], Base)
        return replace(node, old_rows=STORED) if over_base else node

    return LogicalPlan(tuple(map(stored, plan.nodes)))
