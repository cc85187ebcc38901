"""EXPLAIN: the plan of one view or of all, in zones, with its tables, the views that share them, and costs.

In: a catalog, the name of a view, and perhaps statistics. Out: text, a Mermaid flowchart or a graph for Graphviz.
Always: the same catalog gives the same output in every process; it shows the relations that are lowered, their nodes, and
the tables that these write. A node whose base tables have no rows has no cost; estimates are marked, and have two digits.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from viewkeeper.algebra.relations import Scan
from viewkeeper.catalog.catalog import Catalog, ViewDefinition
from viewkeeper.errors import InputError
from viewkeeper.model.work_stats import Work, add_up
from viewkeeper.plan.cost.cost_model import plan_cost, planned_nodes
from viewkeeper.plan.cost.costs import NodeCost, PlanCost, Weights
from viewkeeper.plan.cost.statistics import Statistics
from viewkeeper.plan.define import lower
from viewkeeper.plan.explain.line_text import line_text, tables_at
from viewkeeper.plan.explain.names import zone_at
from viewkeeper.plan.explain.pictures import dot_of, mermaid_of
from viewkeeper.plan.explain.plan_lines import DELTA, Explained, Line, Lines, lines_of, views_of
from viewkeeper.plan.nodes import Node
from viewkeeper.plan.share_nodes import placed_nodes


@dataclass(frozen=True, slots=True)
class Costs:
    """The cost of a plan, with the statistics and weights that it follows from."""

    plan: PlanCost
    statistics: Statistics
    weights: Weights

    @staticmethod
    def of(catalog: Catalog, statistics: Statistics) -> Costs:
        plan = plan_cost(catalog.tables, planned_nodes(catalog), statistics)
        return Costs(plan, statistics, Weights.fitted(statistics.measured, plan))

    def notes(self, catalog: Catalog) -> dict[int, str]:
        """A line for each node that something is known of, by its table."""
        known = self._known(catalog)
        return {table: self._note(table, node) for table, node in self.plan.nodes.items() if table in known}

    def sum_line(self, tables: Collection[int]) -> str:
        """What some nodes hold, and cost for each change of any base table."""
        plan = self.plan.only(tables)
        return f"{_held_by(plan)}; {seconds_text(self._per_change(plan))} of CPU for each change"

    def _known(self, catalog: Catalog) -> frozenset[int]:
        """The tables of nodes whose base tables have rows."""
        known = {number for table in catalog.tables if self.statistics.rows.get(table.id) for number in table.tables}
        for node in catalog.nodes:
            if not known.isdisjoint(node.reads):
                known.add(node.table)
        return frozenset(known)

    def _note(self, table: int, node: NodeCost) -> str:
        own = [self.statistics.records.get(one) for one in node.tables]
        is_counted = all(one is not None for one in own)
        records = sum(one or 0 for one in own) if is_counted else node.records
        held = _held(records, node.stored_bytes, is_counted=is_counted)
        each = node.changes or 1.0
        done = {"read": node.reads, "write": node.writes, "byte": node.bytes}
        counts = ((about(number / each), word) for word, number in done.items())
        work = ", ".join(f"{text} {word}{'' if text == '1' else 's'}" for text, word in counts)
        return f"{held}; each change: {work}{self._measured(table, node)}"

    def _measured(self, table: int, node: NodeCost) -> str:
        measured = self.statistics.measured
        seen = measured.seen.get(table)
        if not seen:
            return ""
        work: Work = add_up([Work(), *(measured.counts.tables.get(one, Work()) for one in node.tables)])
        return f"; measured: {', '.join(about(n / seen) for n in (work.reads, work.writes, work.bytes))}"

    def _per_change(self, plan: PlanCost) -> float:
        return self.weights.of_plan(plan) / (self.plan.changes or 1.0)

    def creation_lines(self, catalog: Catalog, view: ViewDefinition) -> list[str]:
        """What creating `view`, which is among the views of `catalog`, uses, fills, and adds to each change."""
        needed = catalog.stored(view)
        new = [node for node in needed if node.backfill == view.id]
        used = [node for node in needed if node.backfill != view.id]
        others = [other for other in catalog.kept if other.id != view.id]
        names = dict.fromkeys(other.name for node in used for other in others if node.table in other.needs)
        nodes = f"{len(used)} stored node{'s'[: len(used) - 1]}"
        lines = [f"-- uses {nodes} of {', '.join(names)}"] if names else []
        if not new:
            return [*lines, "-- nothing is to be filled, and no change costs more"]
        if not self._known(catalog).issuperset(node.table for node in new):
            return lines
        cost = self.plan.only(node.table for node in new)
        sources = {source for node in new for source in node.reads}.difference(node.table for node in new)
        known = self.statistics.rows
        rows = {one: known[one] if one in known else self.plan.nodes[one].tables[one].records for one in sources}
        edges = sum(rows.get(source, 0.0) for node in new for source in node.reads)
        seconds = seconds_text(self.weights.of_filling(cost, edges))
        tables = sum(len(node.tables) for node in cost.nodes.values())
        filled = f"{tables} table{'s'[: tables - 1]} from {about(sum(rows.values()))} rows"
        before = self.plan.only(self.plan.nodes.keys() - cost.nodes.keys())
        more, now = (seconds_text(self._per_change(one)) for one in (cost, before))
        lines.append(f"-- to be filled: {filled}, {_held_by(cost)}, {seconds}")
        return [*lines, f"-- each change costs {more} of CPU more; now {now}"]


def _held(records: float, size: float, *, is_counted: bool = False) -> str:
    count = f"{records:,.0f}" if is_counted else f"about {about(records)}"
    return f"{count} record{'' if count in ('1', 'about 1') else 's'}, {bytes_text(size)}"


def _held_by(plan: PlanCost) -> str:
    return _held(sum(n.records for n in plan.nodes.values()), sum(n.stored_bytes for n in plan.nodes.values()))


def about(number: float) -> str:
    """Two digits: 0.012, 1.5, 12, 1,200."""
    if number < 0.0005:
        return "0"
    rounded = float(f"{number:.2g}")
    return f"{rounded:,.0f}" if rounded >= 10 else f"{rounded:g}"


def bytes_text(size: float) -> str:
    for unit, factor in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if size >= factor:
            return f"{about(size / factor)} {unit}"
    return f"{about(size)} bytes"


def seconds_text(seconds: float) -> str:
    for unit, factor in (("s", 1.0), ("ms", 1e-3)):
        if seconds >= factor:
            return f"{about(seconds / factor)} {unit}"
    return f"{about(seconds / 1e-6)} µs"


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
    lowered = lower(catalog, view)
    nodes = placed_nodes(lowered, catalog.stored(view))
    by_text = dict(zip(lowered.texts, nodes, strict=True))
    stored = {part: [by_text[text].table for text in texts] for part, texts in lowered.relations.items()}
    by_table: dict[int, Node] = {node.table: node for node in nodes}
    return Explained(view.id, view.name, lowered.relation, view.node.table, stored, by_table, view.shown)


def lines_text(lines: Lines, notes: Mapping[int, str] | None = None) -> str:
    """A heading where the zone changes, the tables kept, the views that share a line, and a note on each stored node."""
    texts: list[str] = []
    zone, left = "", dict(notes or {})
    for number, (line, views) in enumerate(zip(lines, views_of(lines), strict=True)):
        if zone_at(line) != zone:
            zone = zone_at(line)
            texts.append(f"-- zone {zone}")
        shared = f"  -- shared by {', '.join(views)}" if len(views) > 1 else ""
        texts.append(f"r{number} := {line_text(line)}{shared}")
        kept = tables_at(lines, number)
        texts += [f"   -- keeps {table.name}: {table.records}" for table in kept]
        note = left.pop(_stored(line) or 0, None) if kept else None
        texts += [f"   -- {note}"] if note is not None else []
    return "\n".join(texts)


def _stored(line: Line) -> int | None:
    """The table of the node that a line is stored by."""
    if line.kind == DELTA and isinstance(line.relation, Scan):
        return line.relation.table.delta
    return line.stored
