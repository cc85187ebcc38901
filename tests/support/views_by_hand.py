"""Views by hand: one relation for each kind of node, and their lines, for tests that need no SQL.

In: names of `VIEWS`. Out: lines. Always: the same names give the same plan.
"""

from __future__ import annotations

from dataclasses import replace

from tests.support.relations import (
    ARCHIVE,
    CUSTOMERS,
    ITEMS,
    ORDERS,
    PAYMENTS,
    aggregated,
    all_of,
    column,
    first,
    grouped,
    groups_of,
    joined,
    more,
    shown,
    where,
)
from viewkeeper.algebra import construct
from viewkeeper.algebra.expressions import Literal
from viewkeeper.algebra.relations import Relation, Scan, tables_of
from viewkeeper.model.schema import TableId, TableSchema
from viewkeeper.model.types import INT
from viewkeeper.plan.explain.plan_lines import Explained, Lines, lines_of
from viewkeeper.plan.lower import lower_view
from viewkeeper.plan.share_nodes import with_tables

orders, customers, items, payments, archive = map(Scan, (ORDERS, CUSTOMERS, ITEMS, PAYMENTS, ARCHIVE))

_big = where(orders, more(orders, "amount", 2), column(orders, "paid"))
_bought = joined("inner", (_big, "customer"), (customers, "id"))
_by_region = grouped(_bought, ("region",), ("count", None), ("max", "amount"), ("sum", "amount"))
_many = where(_by_region, construct.compare(">", groups_of(_by_region)[1], Literal(1, INT)))
_totals = grouped(orders, ("customer",), ("sum", "amount"))
_named_totals = aggregated(_totals, _totals, "customer", "total")
_histogram = grouped(_named_totals, ("total",), ("count", None), ("count distinct", "customer"))
_both = all_of(shown(orders, "id", "amount"), shown(archive, "id", "amount"))
_distinct = grouped(_both, ("id", "amount"))
_pairs = joined("inner", (customers, "id"), (orders, "customer"))
_lines = joined("inner", (items, "order_id"), (orders, "id"))

VIEWS: dict[str, Relation] = {
    "inner": shown(_bought, "amount", "name"),
    "by_region": aggregated(_many, _by_region, "region", "n", "most", "total"),
    "left": shown(joined("left", (orders, "customer"), (customers, "id")), "id", "name"),
    "full": shown(joined("full", (orders, "customer"), (customers, "id")), "amount", "name"),
    "self": shown(joined("inner", (orders, "customer"), (orders, "customer")), "id", "amount"),
    "same_key": shown(joined("inner", (orders, "id"), (items, "order_id"), (payments, "id")), "product", "method"),
    "composed": shown(joined("inner", (_lines, "customer"), (customers, "id")), "product", "name", "amount"),
    "nested": aggregated(_histogram, _histogram, "total", "n", "customers"),
    "union_all": shown(_both, "id", "amount"),
    "union": aggregated(_distinct, _distinct, "id", "amount"),
    "semi": shown(joined("semi", (orders, "customer"), (customers, "id")), "id"),
    "anti": shown(joined("anti", (customers, "id"), (orders, "customer"), residual=more(_pairs, "amount", 5)), "name"),
    "top": shown(first(_bought, 3, "amount", descending=True), "amount", "name"),
}


def plan_of(*names: str, before_images: bool = True) -> Lines:
    """The lines of these views; of all without names."""
    return lines_for({name: VIEWS[name] for name in names or VIEWS}, before_images=before_images)


def lines_for(views: dict[str, Relation], *, before_images: bool = True) -> Lines:
    asked = [explained(TableId(1_000 * (number + 1)), name, view) for number, (name, view) in enumerate(views.items())]
    tables = {table.id: table for view in views.values() for table in tables_of(view)}
    return lines_of(asked, {}.__getitem__, tables | by_id(before_images=before_images))


def explained(number: TableId, name: str, view: Relation) -> Explained:
    """A view with nodes of its own, whose tables follow its number."""
    lowered = lower_view(view)
    placed = {table: TableId(number - table) for node in lowered.nodes for table in node.tables}
    nodes = dict(zip(lowered.texts, with_tables(lowered.nodes, placed), strict=True))
    stored = {part: [nodes[text].table for text in texts] for part, texts in lowered.relations.items()}
    by_table = {node.table: node for node in nodes.values()}
    return Explained(number, name, view, placed[lowered.root.table], stored, by_table, lowered.shown)


def by_id(*, before_images: bool = True) -> dict[TableId, TableSchema]:
    tables = (ORDERS, CUSTOMERS, ITEMS, PAYMENTS, ARCHIVE)
    return {table.id: table if before_images else replace(table, delta=TableId(90)) for table in tables}
