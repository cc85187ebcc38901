"""EXPLAIN: the plan that the next epoch runs for one view or for all, in zones, with its tables, what is shared, and
costs.

In: a catalog, the name of a view, and perhaps statistics. Out: text, a Mermaid flowchart or a graph for Graphviz.
Always: the same catalog gives the same output in every process; it shows the relations that are lowered, and the stored
nodes that they became. No cost is given for a node whose base tables have no rows, and an estimate is marked as one;
two digits are enough.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from viewkeeper.algebra.relations import Scan
from viewkeeper.catalog.catalog import Catalog, StoredNode, ViewDefinition
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


@dataclass(frozen=True, slots=True)
class Costs:
    """What a plan costs, and what that is taken from."""

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
        held = _held(sum(n.records for n in plan.nodes.values()), sum(n.stored_bytes for n in plan.nodes.values()))
        return f"{held}; {seconds_text(self._per_change(plan))} of CPU for each change"

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
        done = (node.reads / each, node.writes / each, node.bytes / each)
        return f"{held}; each change: {work_text(*done)}{self._measured(table, node)}"

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
        lines = _used_lines(catalog, view, [node for node in needed if node.backfill != view.id])
        if not new:
            return [*lines, "-- nothing is to be filled, and no change costs more"]
        if not self._known(catalog).issuperset(node.table for node in new):
            return lines
        cost = self.plan.only(node.table for node in new)
        sources = {source for node in new for source in node.reads}.difference(node.table for node in new)
        rows = {source: self._rows(source) for source in sources}
        held = _held(sum(n.records for n in cost.nodes.values()), sum(n.stored_bytes for n in cost.nodes.values()))
        edges = sum(rows.get(source, 0.0) for node in new for source in node.reads)
        seconds = seconds_text(self.weights.of_filling(cost, edges))
        tables = sum(len(node.tables) for node in cost.nodes.values())
        filled = f"{tables} table{'s'[: tables - 1]}"
        lines.append(f"-- to be filled: {filled} from {about(sum(rows.values()))} rows, {held}, {seconds}")
        before = self.plan.only(self.plan.nodes.keys() - cost.nodes.keys())
        lines.append(
            f"-- each change costs {seconds_text(self._per_change(cost))} of CPU more; "
            f"now {seconds_text(self._per_change(before))}"
        )
        return lines

    def _rows(self, source: int) -> float:
        if source in self.statistics.rows:
            return self.statistics.rows[source]
        return self.plan.nodes[source].tables[source].records


def _used_lines(catalog: Catalog, view: ViewDefinition, used: Sequence[StoredNode]) -> list[str]:
    """The views that stored nodes are kept for already."""
    names: Mapping[str, None] = dict.fromkeys(
        other.name for node in used for other in catalog.kept if other.id != view.id and node.table in other.needs
    )
    if not names:
        return []
    count = len(used)
    return [f"-- uses {count} stored node{'s'[: count - 1]} of {', '.join(names)}"]


def _held(records: float, size: float, *, is_counted: bool = False) -> str:
    count = f"{records:,.0f}" if is_counted else f"about {about(records)}"
    return f"{count} record{'' if count in ('1', 'about 1') else 's'}, {bytes_text(size)}"


def work_text(reads: float, writes: float, size: float) -> str:
    return ", ".join(map(_counted, (reads, writes, size), ("read", "write", "byte")))


def _counted(number: float, word: str) -> str:
    text = about(number)
    return f"{text} {word}{'' if text == '1' else 's'}"


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
