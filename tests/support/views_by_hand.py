"""Views by hand: one relation for each kind of node, and their plans, for tests that need no SQL.

In: names of `VIEWS`. Out: plans. Always: the same names give the same plan.
"""

from __future__ import annotations

from tests.support.plans import with_stored_deltas
from tests.support.relations import (
    ARCHIVE,
    CUSTOMERS,
    ITEMS,
    ORDERS,
    PAYMENTS,
    all_of,
    column,
    first,
    folded,
    grouped,
    groups_of,
    joined,
    more,
    shown,
    where,
)
from viewkeeper.model.schema import TableId
from viewkeeper.model.types import INT
from viewkeeper.plan.build import build_view
from viewkeeper.plan.logical import LogicalPlan, join_plans
from viewkeeper.sql import construct
from viewkeeper.sql.expressions import Literal
from viewkeeper.sql.relations import Relation, Scan

orders, customers, items, payments, archive = map(Scan, (ORDERS, CUSTOMERS, ITEMS, PAYMENTS, ARCHIVE))

_big = where(orders, more(orders, "amount", 2), column(orders, "paid"))
_bought = joined("inner", (_big, "customer"), (customers, "id"))
_by_region = grouped(_bought, ("region",), ("count", None), ("max", "amount"), ("sum", "amount"))
_many = where(_by_region, construct.compare(">", groups_of(_by_region)[1], Literal(1, INT)))
_totals = grouped(orders, ("customer",), ("sum", "amount"))
_named_totals = folded(_totals, _totals, "customer", "total")
_histogram = grouped(_named_totals, ("total",), ("count", None), ("count distinct", "customer"))
_both = all_of(shown(orders, "id", "amount"), shown(archive, "id", "amount"))
_distinct = grouped(_both, ("id", "amount"))
_pairs = joined("inner", (customers, "id"), (orders, "customer"))
_lines = joined("inner", (items, "order_id"), (orders, "id"))

VIEWS: dict[str, Relation] = {
    "inner": shown(_bought, "amount", "name"),
    "by_region": folded(_many, _by_region, "region", "n", "most", "total"),
    "left": shown(joined("left", (orders, "customer"), (customers, "id")), "id", "name"),
    "full": shown(joined("full", (orders, "customer"), (customers, "id")), "amount", "name"),
    "self": shown(joined("inner", (orders, "customer"), (orders, "customer")), "id", "amount"),
    "same_key": shown(joined("inner", (orders, "id"), (items, "order_id"), (payments, "id")), "product", "method"),
    "composed": shown(joined("inner", (_lines, "customer"), (customers, "id")), "product", "name", "amount"),
    "nested": folded(_histogram, _histogram, "total", "n", "customers"),
    "union_all": shown(_both, "id", "amount"),
    "union": folded(_distinct, _distinct, "id", "amount"),
    "semi": shown(joined("semi", (orders, "customer"), (customers, "id")), "id"),
    "anti": shown(joined("anti", (customers, "id"), (orders, "customer"), residual=more(_pairs, "amount", 5)), "name"),
    "top": shown(first(_bought, 3, "amount", descending=True), "amount", "name"),
}


def plan_of(*names: str, before_images: bool = True) -> LogicalPlan:
    """The unoptimized plans of these views side by side; of all without names."""
    plans = (
        build_view(VIEWS[name], view_id=TableId(100 + number), name=name) for number, name in enumerate(names or VIEWS)
    )
    plan = join_plans(tuple(plans))
    return plan if before_images else with_stored_deltas(plan)
