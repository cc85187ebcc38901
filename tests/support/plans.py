"""The nodes that an epoch runs for a view, and views defined by hand."""

from __future__ import annotations

from dataclasses import replace

import viewkeeper as vk
from viewkeeper.catalog.catalog import Catalog, ViewDefinition
from viewkeeper.client.explaining import read_statistics
from viewkeeper.model.schema import TableId
from viewkeeper.plan.define import define_view, lower, relation_of
from viewkeeper.plan.explain.line_text import line_text
from viewkeeper.plan.explain.plan_lines import Explained, Lines, lines_of
from viewkeeper.plan.nodes import Node
from viewkeeper.plan.replacements import optimize_views
from viewkeeper.plan.share_nodes import placed_nodes


def share_all(db: vk.Database, *without: str) -> None:
    """OPTIMIZE VIEWS without the cost model: all views share that can."""
    record, catalog = db.store.read_epoch_record(), db.catalog()
    known = read_statistics(db.store, catalog, catalog.views)
    sizes = {**known.rows, **known.records}
    db.change_catalog(
        lambda now: optimize_views(now, record.committed, without=without, filled=record.filled, sizes=sizes)
    )


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


def bound_lines(catalog: Catalog) -> Lines:
    """What the texts of all views say, before any rule."""
    views = {view.id: Explained(view.id, view.name, relation_of(catalog, view)) for view in catalog.kept}
    return lines_of(tuple(views.values()), views.__getitem__, {table.id: table for table in catalog.tables})


def bound_text(catalog: Catalog) -> str:
    return "\n".join(f"r{place} := {line_text(line)}" for place, line in enumerate(bound_lines(catalog)))
