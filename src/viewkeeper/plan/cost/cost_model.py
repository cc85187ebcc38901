"""The cost model (paper 3, section 5.1): the work of a plan's nodes in an epoch, and the records that they keep.

In: a catalog, or nodes with their relations, base tables and statistics. Out: a `PlanCost`; seconds of plans, planned or
not. Always: pure; nodes are visited in the order of the plan, each from the rates of changes and the numbers of rows of
its sources (equations 5 and 7). An epoch reads and writes a record once, so equation 4 counts distinct records.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace
from functools import partial

from viewkeeper.algebra.expressions import children
from viewkeeper.algebra.relations import Aggregation, Index, Join, Project, Relation, RowsOfGroups, Top, tables_of
from viewkeeper.algebra.rewriting import column_refs
from viewkeeper.algebra.row_key import has_row_key
from viewkeeper.catalog.catalog import Catalog
from viewkeeper.model.entryblocks import BLOCK_BYTES, BLOCK_BYTES_MAX, ENTRY_BYTES
from viewkeeper.model.schema import Column, TableId, TableSchema
from viewkeeper.model.work_stats import Kinds
from viewkeeper.plan.cost.costs import NodeCost, PlanCost, TableCost, Weights
from viewkeeper.plan.cost.join_cost import JoinSide, join_cost
from viewkeeper.plan.cost.row_flows import (
    Flow,
    Learned,
    Path,
    PlannedNode,
    Tables,
    changed_by,
    kept,
    moved_by,
    names_of_groups,
    passing,
    paths_of,
    sum_flows,
    sum_of,
    written,
)
from viewkeeper.plan.cost.statistics import (
    DISTINCT_SHARE,
    HAVING_SHARE,
    ROWS,
    TEXT_BYTES,
    Statistics,
    alone_share,
    compact_bytes,
    distinct,
    key_bytes,
    net_changes,
    row_bytes,
)
from viewkeeper.plan.define import lower
from viewkeeper.plan.lower import Lowered
from viewkeeper.plan.nodes import AggregateNode, Edge, Entries, JoinNode, Node, OutputNode, ProjectNode, TopNode
from viewkeeper.plan.share_nodes import placed_nodes, with_tables


def planned_nodes(catalog: Catalog) -> tuple[PlannedNode, ...]:
    found: dict[int, PlannedNode] = {}
    for view in catalog.kept:
        lowered = lower(catalog, view)
        kept = {text: relation for relation, texts in lowered.relations.items() for text in texts}
        for node, text in zip(placed_nodes(lowered, catalog.stored(view)), lowered.texts, strict=True):
            found.setdefault(node.table, PlannedNode(node, kept[text]))
    return tuple(found.values())


_BLOCK_HEAD_BYTES = 14
Estimated = tuple[float, dict[int, TableCost]]  # rows that a node computes with, and its tables


def plan_cost(
    tables: Sequence[TableSchema], nodes: Sequence[PlannedNode], known: Statistics, learned: Learned | None = None
) -> PlanCost:
    """The cost of maintaining `nodes`, and the DELTAs of `tables`; `learned`: from other nodes than these."""
    return _Estimate(tables, nodes, known, learned).whole()


class _Estimate:
    def __init__(
        self, tables: Sequence[TableSchema], nodes: Sequence[PlannedNode], known: Statistics, learned: Learned | None
    ) -> None:
        self._tables, self._planned, self._known = tables, nodes, known
        self._rates = known.rates([table.id for table in tables])
        self._rows: dict[int, float] = {table.id: known.rows.get(table.id, ROWS) for table in tables}
        self._flows: dict[int, Flow] = {table.id: {table.id: self._rates[table.id]} for table in tables}
        self._texts: dict[int, float] = {table.id: known.text_bytes.get(table.id, TEXT_BYTES) for table in tables}
        self._renewed: dict[int, float] = {}  # of a γ: how likely an end of a group that is met changes
        self._learned = learned or Learned(nodes, known, self._rows)

    def whole(self) -> PlanCost:
        found: dict[int, NodeCost] = {}
        found |= {table.delta: self._delta(table) for table in self._tables if table.delta is not None}
        for planned in self._planned:
            node, sources = planned.node, {edge.source for edge in planned.node.edges}
            self._texts[node.table] = sum(map(self._texts.__getitem__, sources)) / len(sources)
            computed, tables = self._node(planned)
            bases = {base for source in sources for base in self._flows[source]}
            changes = sum(self._rates[base].total for base in bases)
            found[node.table] = NodeCost(changes, computed, _steps(node), tables)
        return PlanCost(sum(one.total for one in self._rates.values()), found)

    def _node(self, planned: PlannedNode) -> Estimated:
        match planned.node, planned.relation:
            case ProjectNode() as node, relation:
                return self._project(node, relation)
            case AggregateNode() as node, Aggregation() as relation:
                return self._aggregate(node, relation)
            case JoinNode() as node, Join() as relation:
                return self._join(node, relation)
            case TopNode() as node, Top() as relation:
                return self._top(node, relation)
        raise ValueError(f"no cost of {planned}")

    def _delta(self, table: TableSchema) -> NodeCost:
        kinds, rows = self._rates[table.id], self._rows[table.id]
        size = self._size(table.id, table.key_columns, table.value_columns)
        return NodeCost(kinds.total, kinds.total, 1, {table.delta or 0: kept(kinds, rows, *size)})

    def _project(self, node: ProjectNode, relation: Relation) -> Estimated:
        """A record for each row that passes; one whose columns an update does not change is read, and not written."""
        ((below, paths),) = paths_of(relation)
        computed, rows, flow = self._input(node.edges, paths)
        if isinstance(relation, Index):
            refs = column_refs(below)
            flow = moved_by(flow, changed_by(below, *(refs[position] for position in relation.key)))
            shown = changed_by(below, *(refs[position] for position in relation.covered))
        elif isinstance(relation, Project):
            shown = changed_by(relation.input, *(output.expression for output in relation.outputs))
        else:
            shown = changed_by(relation, *column_refs(relation))
        records = self._known.records.get(node.table, rows)
        size = self._size(node.table, node.key, node.row)
        differs = {base: one if base in shown else replace(one, updates=0.0) for base, one in flow.items()}
        self._rows[node.table], self._flows[node.table] = records, differs
        found = kept(sum_of(flow), records, *size)
        less = found if differs == flow else replace(kept(sum_of(differs), records, *size), gets=found.gets)
        return computed, {node.table: less}

    def _aggregate(self, node: AggregateNode, relation: Aggregation) -> Estimated:
        ((below, paths),) = paths_of(relation)
        computed, rows, flow = self._input(node.edges, paths)
        grouping = relation.grouping
        groups = self._group_count(node, relation, paths, rows)
        valued = changed_by(below, *(part for one in grouping.aggregates for part in children(one)))
        is_fed = isinstance(relation.input, RowsOfGroups)  # by records, whose changes leave them in their group
        grouped = frozenset[int]() if is_fed else changed_by(below, *grouping.groups)
        alone = alone_share(rows, groups) if grouping.groups else 0.0
        touched, flow_out = _touched(flow, grouped, valued, groups, alone)
        is_summed = any(one.args and not one.needs_entries for one in grouping.aggregates)
        if not is_summed:
            flow_out = _netted(flow, flow_out, grouped, groups)
        key, row = self._size(node.table, node.key, node.group_row)
        row = self._row_bytes(node.group_table, key, min(row, compact_bytes(node.group_row)))
        groups_cost = replace(written(sum_of(flow_out), groups, key, row), gets=touched)
        tables: dict[int, TableCost] = {node.group_table: groups_cost}
        shown = 1.0
        if node.having:
            shown = self._known.records.get(node.table, groups * HAVING_SHARE) / groups
            size = self._size(node.table, node.key, node.row)
            copy = written(sum_of(flow_out).times(shown), groups * shown, *size)
            tables = {node.table: replace(copy, gets=touched), **tables}
        changes = sum_of(moved_by(flow, grouped | valued))
        met = changes.inserts + changes.deletes
        self._renewed[node.table] = met / touched / (rows / groups) if touched and rows else 0.0
        for table, indexes in node.slots.items():
            slots = [node.entries[index] for index in indexes]
            if is_fed:
                renewed = 1.0 - (1.0 - min(1.0, self._renewed[node.edges[0].source])) ** len(slots)
                changes = Kinds(deletes=sum_of(flow).total * renewed)
            tables[table] = self._entries(node, table, slots, changes, rows, groups)
        self._rows[node.table] = groups * shown
        self._flows[node.table] = {base: kinds.times(min(1.0, shown)) for base, kinds in flow_out.items()}
        return computed, tables

    def _entries(
        self, node: AggregateNode, table: int, slots: Sequence[Entries], kinds: Kinds, rows: float, groups: float
    ) -> TableCost:
        """PRE-AGGREGATION: a block for each group, and more for those with many values, each of which has at most one row
        as far as is known.
        """
        (key, _), value = self._size(node.table, node.key, ()), key_bytes(slots[0].values, self._texts[node.table])
        of_group = rows / groups * (value + ENTRY_BYTES)
        pieces = math.ceil(of_group / BLOCK_BYTES) if of_group > BLOCK_BYTES_MAX else 1
        records = max(groups, self._known.records.get(table, groups * pieces))
        row = self._row_bytes(table, key, _BLOCK_HEAD_BYTES + of_group / pieces)
        new, gone = (count * alone_share(rows, groups) for count in (kinds.inserts, kinds.deletes))
        picks = kinds.inserts + kinds.deletes - new
        touched, written = new + distinct(picks, groups), new + distinct(picks, records)
        others, has_last = 1.0 - groups / records, any(one.facts.last for one in slots)
        return TableCost(
            gets=touched + written * others + (distinct(picks, groups) * others if has_last else 0.0),
            writes=written,
            bytes=written * (key + value * others + row) - min(gone, written) * row,
            records=records,
            record_bytes=key + value * others + row,
        )

    def _row_bytes(self, table: int, key: float, otherwise: float) -> float:
        """How long rows are that epochs wrote, else those that are stored."""
        done = self._known.measured.counts.tables.get(table)
        if done is not None and done.writes:
            return max(0.0, done.bytes / done.writes - key)
        found = self._known.record_bytes.get(table)
        return otherwise if found is None else max(0.0, found - key)

    def _group_count(self, node: AggregateNode, relation: Aggregation, paths: Sequence[Path], rows: float) -> float:
        groups = relation.grouping.groups
        if not groups:
            return 1.0
        known = self._known.records.get(node.group_table)
        if known is None and has_row_key(relation.input, groups):
            known = rows
        if known is None:
            names = names_of_groups(node, relation, paths)
            possible = next((self._learned.groups[name] for name in names if name in self._learned.groups), None)
            known = rows * DISTINCT_SHARE if possible is None else distinct(rows, possible)
        return max(1.0, min(known, rows))

    def _join(self, node: JoinNode, relation: Join) -> Estimated:
        edges = iter(node.edges)
        computed, sides = 0.0, list[JoinSide]()
        for (below, paths), key in zip(paths_of(relation), relation.keys, strict=True):
            own = [next(edges) for _ in paths]
            delta_rows, rows, flow = self._input(own, paths)
            computed, among = computed + delta_rows, sum(self._rows[edge.source] for edge in own)
            sides.append(JoinSide(rows, among, flow, changed_by(below, *key), has_row_key(below, key)))
        cost = join_cost(node, relation, sides, self._learned.pairs.get(node.table), partial(self._size, node.table))
        self._rows[node.table], self._flows[node.table] = cost.rows, cost.flow
        return computed + sum_of(cost.flow).delta_rows, cost.tables

    def _top(self, node: TopNode, relation: Top) -> Estimated:
        ((below, paths),) = paths_of(relation)
        computed, rows, flow = self._input(node.edges, paths)
        records = self._known.records.get(node.table, rows)
        flow = moved_by(flow, changed_by(below, *(part.expression for part in relation.order)))
        kinds, limit = sum_of(flow), min(float(node.limit), records)
        table = kept(kinds, records, *self._size(node.table, (*node.order, *node.key), node.row))
        read = min(records, limit + kinds.deletes + kinds.updates) if kinds.total else 0.0
        reached = kinds.total * limit / records if records else 0.0
        shifted = min(limit, reached * limit / 2)  # a row that comes or goes moves those after it
        whole = kinds.total or 1.0
        self._rows[node.table] = limit
        self._flows[node.table] = {base: Kinds(updates=shifted * one.total / whole) for base, one in flow.items()}
        return computed, {node.table: replace(table, scanned=read)}

    def _input(self, edges: Sequence[Edge], paths: Sequence[Path]) -> tuple[float, float, Flow]:
        """Of all edges: the delta rows that conditions are computed for, the rows that pass, and their changes."""
        computed, rows, flows = 0.0, 0.0, list[Flow]()
        for edge, path in zip(edges, paths, strict=True):
            flow = self._flows[edge.source]
            share = self._learned.share(edge.source, path)
            computed += sum_of(flow).delta_rows
            rows += self._rows[edge.source] * share
            flows.append(passing(flow, path, share))
        return computed, rows, sum_flows(flows)

    def _size(self, table: int, key: Sequence[Column], row: Sequence[Column]) -> tuple[float, float]:
        return key_bytes(key, self._texts[table]), row_bytes(row, self._texts[table])


def _steps(node: Node) -> int:
    """The queries of a node in an epoch, as measured; each state that one computes and each relation that it joins counts."""
    match node:
        case AggregateNode(edges=edges, state=state, entries=entries):
            return 2 * len(edges) + 2 + 2 * len(entries) + len(state)
        case JoinNode(edges=edges, sides=sides):
            # changed rows of each side meet changed and unchanged ones of the others
            return len(edges) + (2 ** len(sides) - 1) * (len(sides) - 1)
        case TopNode(edges=edges):
            return len(edges) + 1
    return len(node.edges)


def _touched(flow: Flow, grouped: Tables, valued: Tables, groups: float, alone: float) -> tuple[float, Flow]:
    """How many groups an epoch reads, and the changes of their records. `grouped` and `valued`: the base tables whose updates
    change the group, and an aggregate's argument. `alone`: the share of rows that are the only one of their group.
    """
    touches, found = 0.0, dict[int, Kinds]()
    for base, kinds in flow.items():
        moved = (1.0 - 1.0 / groups) if base in grouped else 0.0  # a group drawn anew may be the same
        met = kinds.inserts + kinds.deletes + kinds.updates * (2 * moved + (1 - moved) * (base in valued))
        came, went = ((count + moved * kinds.updates) * alone for count in (kinds.inserts, kinds.deletes))
        found[base] = Kinds(came, max(0.0, met - came - went), went)
        touches += met
    new = sum_of(found).inserts
    touched = new + distinct(touches - new, groups)
    share = touched / touches if touches else 0.0
    return touched, {base: kinds.times(share) for base, kinds in found.items()}


def _netted(flow: Flow, found: Flow, grouped: Tables, groups: float) -> Flow:
    """Without the groups that as many rows left as joined: where only rows are counted, their records stay the same."""
    net = net_changes(sum_of(moved_by(flow, grouped)), groups)
    share = net.changed / net.met if net.met else 1.0
    return {base: replace(kinds, updates=kinds.updates * share) for base, kinds in found.items()}


class PlanModel:
    """The cost of plans, given others: the estimate by which the optimizer chooses (paper 3, algorithm 2, step 2).

    The CPU seconds of an epoch. A node that another plan has already costs nothing. Statistics of nodes that are filled serve
    for nodes that are not. `bytes_moved`: how many bytes the store moves for one that is written.
    """

    def __init__(self, catalog: Catalog, statistics: Statistics, *, bytes_moved: float = 1.0) -> None:
        self._known = replace(statistics, rows={table: rows for table, rows in statistics.rows.items() if rows})
        self._bases = catalog.tables
        planned = planned_nodes(catalog)
        weights = Weights()
        if statistics.measured.epochs:
            weights = Weights.fitted(statistics.measured, plan_cost(catalog.tables, planned, self._known))
        self._weights = weights.moving(bytes_moved)
        self._learned = Learned(planned, self._known, dict(self._known.rows))
        self._stored = {node.text: node.tables for node in catalog.nodes}
        self._free = itertools.count(catalog.next_id)
        self._planned: dict[tuple[object, ...], PlannedNode] = {}

    def knows(self, relation: Relation) -> bool:
        """Whether all its base tables have rows."""
        return all(self._known.rows.get(table.id) for table in tables_of(relation))

    def seconds(self, plans: Iterable[Lowered], beside: Collection[str] = ()) -> float:
        """The CPU seconds of an epoch for the nodes of some plans, without the nodes that are stored (`beside`)."""
        found: dict[int, PlannedNode] = {}
        homes: dict[str, tuple[TableId, ...]] = {}
        counted: set[int] = set()
        for lowered in plans:
            shared = _shared(lowered, {*homes, *beside})
            relations = {text: relation for relation, texts in lowered.relations.items() for text in texts}
            placed: dict[int, TableId] = {}
            for text, node in zip(lowered.texts, lowered.nodes, strict=True):
                if text not in homes or text not in shared:
                    tables = self._tables(text, node, is_second=text in homes)
                    homes[text] = tables
                    placed |= zip(node.tables, tables, strict=True)
                    found[tables[0]] = self._with_tables(node, text, relations[text], placed)
                    counted |= set() if text in shared else {tables[0]}
                placed |= zip(node.tables, homes[text], strict=True)
        cost = plan_cost(self._bases, tuple(found.values()), self._known, self._learned)
        return self._weights.of_plan(cost.only(counted))

    def _tables(self, text: str, node: Node, *, is_second: bool) -> tuple[TableId, ...]:
        """Those of the stored node with that text, if there is one; a second node has tables of its own."""
        if text in self._stored and not is_second:
            return self._stored[text]
        own = tuple(TableId(next(self._free)) for _ in node.tables)
        if not is_second:
            self._stored[text] = own
        return own

    def _with_tables(self, node: Node, text: str, relation: Relation, placed: dict[int, TableId]) -> PlannedNode:
        inputs = tuple(placed.get(edge.source, edge.source) for edge in node.edges)
        name = (text, placed[node.table], inputs)
        if name not in self._planned:
            self._planned[name] = PlannedNode(with_tables(node, placed), relation)
        return self._planned[name]


def _shared(lowered: Lowered, known: Collection[str]) -> frozenset[str]:
    """The nodes of a plan that are known: copies and γ, and what only these read (see `share_nodes`)."""
    readers = lowered.readers()
    found: set[str] = set()
    for text, node in zip(reversed(lowered.texts), reversed(lowered.nodes), strict=True):
        is_read_by_these = bool(readers[text]) and found.issuperset(readers[text])
        if text in known and (isinstance(node, OutputNode) or is_read_by_these):
            found.add(text)
    return frozenset(found)
