"""The nodes that an epoch runs for a view, and views defined by hand."""

from __future__ import annotations

from viewkeeper.plan.assign import placed_nodes
from viewkeeper.plan.catalog import Catalog, ViewDefinition
from viewkeeper.plan.define import define_view, lower
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
