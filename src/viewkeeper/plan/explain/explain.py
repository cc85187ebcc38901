"""EXPLAIN: the plan that the next epoch runs for one view or for all, in zones, with its tables and what is shared.

In: a catalog and the name of a view. Out: text, a Mermaid flowchart or a graph for Graphviz. Always: the same catalog
gives the same output in every process; it shows the relations that are lowered, and the stored nodes that they became.
"""

from __future__ import annotations

from collections.abc import Sequence

from viewkeeper.catalog.catalog import Catalog, ViewDefinition
from viewkeeper.catalog.define import lower
from viewkeeper.errors import InputError
from viewkeeper.plan.explain.dot import dot_of
from viewkeeper.plan.explain.lines import Explained, Lines, lines_of, views_of
from viewkeeper.plan.explain.mermaid import mermaid_of
from viewkeeper.plan.explain.tables import tables_at
from viewkeeper.plan.explain.text import line_text
from viewkeeper.plan.explain.zones import zone_at

FORMS = ("text", "mermaid", "dot")


def explain(catalog: Catalog, name: str | None, *, form: str = "text") -> str:
    """The plan of view `name`, or of all views, in one of `FORMS`."""
    if form not in FORMS:
        raise InputError(f"there is no form {form!r} of a plan", f"one of {', '.join((*FORMS, 'svg'))}")
    lines = plan_lines(catalog, catalog.views if name is None else (catalog.view(name),))
    if form == "text":
        return lines_text(lines) if lines else "no views"
    return mermaid_of(lines) if form == "mermaid" else dot_of(lines)


def explain_view(catalog: Catalog, view: ViewDefinition) -> str:
    """The plan of a view that is defined against the catalog, and need not be in it."""
    return lines_text(plan_lines(catalog, (view,)))


def plan_lines(catalog: Catalog, views: Sequence[ViewDefinition]) -> Lines:
    """The lines of some views; base tables are shown as they are now, not as they were when a view was written."""
    kept = {view.id: view for view in (*catalog.kept, *views)}
    tables = {table.id: table for table in catalog.tables}
    asked = [_explained(catalog, view) for view in views]
    return lines_of(asked, lambda view: _explained(catalog, kept[view]), tables)


def _explained(catalog: Catalog, view: ViewDefinition) -> Explained:
    by_text = {node.text: node for node in catalog.stored(view)}
    lowered = lower(catalog, view)
    stored = {part: [by_text[text].table for text in texts] for part, texts in lowered.relations.items()}
    reads: dict[int, Sequence[int]] = {node.table: node.reads for node in by_text.values()}
    return Explained(view.id, view.name, lowered.relation, view.node.table, stored, reads)


def lines_text(lines: Lines) -> str:
    """A heading where the zone changes, the tables kept, and the views that share a line."""
    told: list[str] = []
    zone = ""
    for place, (line, views) in enumerate(zip(lines, views_of(lines), strict=True)):
        if zone_at(line) != zone:
            zone = zone_at(line)
            told.append(f"-- zone {zone}")
        shared = f"  -- shared by {', '.join(views)}" if len(views) > 1 else ""
        told.append(f"r{place} := {line_text(line)}{shared}")
        told += [f"   -- keeps {table.name}: {table.records}" for table in tables_at(lines, place)]
    return "\n".join(told)
