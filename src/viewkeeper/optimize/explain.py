"""EXPLAIN: the optimized plan of one view or of all, in zones, with who shares what.

In: a catalog and the name of a view, or a query that is not created. Out: text. Always: the same catalog gives the same
text in every process.
"""

from __future__ import annotations

from viewkeeper.model.schema import TableId
from viewkeeper.optimize.rules import optimize
from viewkeeper.plan.build import build_view
from viewkeeper.plan.catalog import Catalog
from viewkeeper.plan.define import logical_plan
from viewkeeper.plan.logical import LogicalPlan, View, join_plans, zone_at
from viewkeeper.plan.text import node_text
from viewkeeper.sql.bind import bind_query


def explain(catalog: Catalog, name: str | None, *, before_images: bool = True) -> str:
    """The plan of view `name`, or of all views merged."""
    views = catalog.views if name is None else (catalog.view(name),)
    if not views:
        return "no views"
    plans = tuple(logical_plan(catalog, view, before_images=before_images) for view in views)
    return explain_plan(optimize(join_plans(plans)))


def explain_query(catalog: Catalog, query_text: str, *, before_images: bool = True) -> str:
    """The plan that a query would have as a view; nothing is created."""
    query = bind_query(query_text, catalog.table)
    plan = build_view(query, view_id=TableId(catalog.next_id), name="(query)", before_images=before_images)
    return explain_plan(optimize(plan))


def explain_plan(plan: LogicalPlan) -> str:
    """Canonical text, a heading where the zone changes, and the views behind each shared node."""
    lines: list[str] = []
    zone = ""
    for place in range(len(plan.nodes)):
        if zone_at(plan, place) != zone:
            zone = zone_at(plan, place)
            lines.append(f"-- zone {zone}")
        views = views_behind(plan, place)
        shared = f"  -- shared by {', '.join(views)}" if len(views) > 1 else ""
        lines.append(f"r{place} := {node_text(plan, place)}{shared}")
    return "\n".join(lines)


def views_behind(plan: LogicalPlan, place: int) -> tuple[str, ...]:
    """The views that need the node, in the order of the plan."""
    node = plan.nodes[place]
    if isinstance(node, View):
        return (node.name,)
    return tuple(dict.fromkeys(view for reader in plan.readers(place) for view in views_behind(plan, reader)))
