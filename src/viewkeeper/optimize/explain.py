"""EXPLAIN: the optimized plan of one view or of all, in zones, with the tables it keeps and what is shared.

In: a catalog and the name of a view. Out: text, a Mermaid flowchart or a graph for Graphviz. Always: the same catalog gives
the same answer in every process.
"""

from __future__ import annotations

from viewkeeper.errors import InputError
from viewkeeper.optimize.dot import dot_of
from viewkeeper.optimize.mermaid import mermaid_of
from viewkeeper.optimize.rules import optimize
from viewkeeper.optimize.sharing import views_behind
from viewkeeper.plan.catalog import Catalog, ViewDefinition
from viewkeeper.plan.define import logical_plan
from viewkeeper.plan.logical import LogicalPlan, join_plans
from viewkeeper.plan.tables import tables_at
from viewkeeper.plan.text import node_text
from viewkeeper.plan.zones import zone_at

FORMS = ("text", "mermaid", "dot")


def explain(catalog: Catalog, name: str | None, *, form: str = "text") -> str:
    """The plan of view `name`, or of all views merged, in one of `FORMS`."""
    if form not in FORMS:
        raise InputError(f"there is no form {form!r} of a plan", f"one of {', '.join((*FORMS, 'svg'))}")
    views = catalog.views if name is None else (catalog.view(name),)
    plans = tuple(logical_plan(catalog, view) for view in views)
    plan = optimize(join_plans(plans))
    if form == "text":
        return explain_plan(plan) if views else "no views"
    return mermaid_of(plan) if form == "mermaid" else dot_of(plan)


def explain_view(catalog: Catalog, view: ViewDefinition) -> str:
    """The plan of a view that is defined against the catalog, and need not be in it."""
    return explain_plan(optimize(join_plans((logical_plan(catalog, view),))))


def explain_plan(plan: LogicalPlan) -> str:
    """Canonical text, a heading where the zone changes, the tables kept, and the views behind each shared node."""
    lines: list[str] = []
    zone = ""
    for place, views in enumerate(views_behind(plan)):
        if zone_at(plan, place) != zone:
            zone = zone_at(plan, place)
            lines.append(f"-- zone {zone}")
        shared = f"  -- shared by {', '.join(views)}" if len(views) > 1 else ""
        lines.append(f"r{place} := {node_text(plan, place)}{shared}")
        lines += [f"   -- keeps {table.name}: {table.records}" for table in tables_at(plan, place)]
    return "\n".join(lines)
