"""EXPLAIN: the plan that the next epoch runs for one view or for all, in zones, with its tables and what is shared.

In: a catalog and the name of a view. Out: text, a Mermaid flowchart or a graph for Graphviz. Always: the same catalog
gives the same output in every process; it shows the relations that are lowered, and the stored nodes that they became.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from viewkeeper.catalog.catalog import Catalog, ViewDefinition
from viewkeeper.catalog.define import lower
from viewkeeper.errors import InputError
from viewkeeper.plan.explain.cost_text import Costs
from viewkeeper.plan.explain.dot import dot_of
from viewkeeper.plan.explain.lines import DELTA, Explained, Line, Lines, lines_of, views_of
from viewkeeper.plan.explain.mermaid import mermaid_of
from viewkeeper.plan.explain.tables import tables_at
from viewkeeper.plan.explain.text import line_text
from viewkeeper.plan.explain.zones import zone_at
from viewkeeper.sql.relations import Scan

FORMS = ("text", "mermaid", "dot")


def explain(catalog: Catalog, name: str | None, *, form: str = "text", costs: Costs | None = None) -> str:
    """The plan of view `name`, or of all views, in one of `FORMS`; a text with `costs` where they are known."""
    if form not in FORMS:
        raise InputError(f"there is no form {form!r} of a plan", f"one of {', '.join((*FORMS, 'svg'))}")
    lines = plan_lines(catalog, catalog.views if name is None else (catalog.view(name),))
    if form == "text":
        return _with_costs(catalog, lines, costs) if lines else "no views"
    return mermaid_of(lines) if form == "mermaid" else dot_of(lines)


def explain_view(catalog: Catalog, view: ViewDefinition, *, costs: Costs | None = None) -> str:
    """The plan of a view that would be created, and what that would take; `catalog` has it already."""
    text = lines_text(plan_lines(catalog, (view,)), {} if costs is None else costs.notes(catalog))
    return "\n".join([text, *(costs.creation_lines(catalog, view) if costs is not None else ())])


def _with_costs(catalog: Catalog, lines: Lines, costs: Costs | None) -> str:
    notes = {} if costs is None else costs.notes(catalog)
    shown = {table for line in lines if (table := _stored(line)) is not None and table in notes}
    whole = [f"-- together {costs.sum_line(shown)}"] if costs is not None and shown else []
    return "\n".join([lines_text(lines, notes), *whole])


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


def lines_text(lines: Lines, notes: Mapping[int, str] | None = None) -> str:
    """A heading where the zone changes, the tables kept, the views that share a line, and a note on each stored node."""
    told: list[str] = []
    zone, left = "", dict(notes or {})
    for place, (line, views) in enumerate(zip(lines, views_of(lines), strict=True)):
        if zone_at(line) != zone:
            zone = zone_at(line)
            told.append(f"-- zone {zone}")
        shared = f"  -- shared by {', '.join(views)}" if len(views) > 1 else ""
        told.append(f"r{place} := {line_text(line)}{shared}")
        kept = tables_at(lines, place)
        told += [f"   -- keeps {table.name}: {table.records}" for table in kept]
        note = left.pop(_stored(line) or 0, None) if kept else None
        told += [f"   -- {note}"] if note is not None else []
    return "\n".join(told)


def _stored(line: Line) -> int | None:
    """The table of the node that a line is stored by."""
    if line.kind == DELTA and isinstance(line.relation, Scan):
        return line.relation.table.delta
    return line.stored
