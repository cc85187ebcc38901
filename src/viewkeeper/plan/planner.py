"""The planner: the plan of the next epoch, for all views, for a repair, or for rows that were set aside.

In: a catalog, and the state of its nodes in the epoch record. Out: a physical plan: each node of all views once, or the
tables of a repair with their shadows, or all nodes with a request for rows set aside; and the repair or request that is
due. Always: pure; plans are made from the views' texts, so that SQL is never older than the code. A repair is due once
its shadows are filled, a request once all views are; each is done once.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from viewkeeper.catalog.catalog import Catalog, with_dependents
from viewkeeper.model.schema import TableId
from viewkeeper.plan.define import lower
from viewkeeper.plan.nodes import AggregateNode, Node, RepairNode
from viewkeeper.plan.optimize import evaluate_once
from viewkeeper.plan.physical import PhysicalPlan
from viewkeeper.plan.share_nodes import placed_nodes

if TYPE_CHECKING:
    from viewkeeper.catalog.catalog import ViewDefinition
    from viewkeeper.model.epochs import AsideRequest, EpochRecord


def physical_plan(
    catalog: Catalog, *, filling: Collection[int] = (), stopped: Collection[int] = (), late: Collection[int] = ()
) -> PhysicalPlan:
    """The plan of an epoch that maintains all views, and the tables that it reads.

    A table that has a DELTA is always read: DELTA must hold every row. Left out are nodes that are `stopped`, with their
    readers, and backfills that have not begun, if they are `late` or one that they read from is `filling`.
    """
    left_out = _left_out(catalog, filling, stopped, late)
    for known, without, plan in _planned:
        if without == left_out and (known is catalog or known == catalog):
            return plan
    plan = _plan(catalog, left_out)
    _planned.appendleft((catalog, left_out, plan))
    return plan


_planned: deque[tuple[Catalog, frozenset[int], PhysicalPlan]] = deque(maxlen=4)  # the newest: each epoch asks again


def _plan(catalog: Catalog, left_out: frozenset[int]) -> PhysicalPlan:
    found: dict[TableId, Node] = {}
    alone: set[TableId] = set()
    for view in catalog.kept:
        if left_out.issuperset(view.needs):
            continue
        for node in placed_nodes(lower(catalog, view), catalog.stored(view)):
            if node.table not in left_out and node.table not in found:
                found[node.table] = node
                alone |= {node.table} if evaluate_once.__name__ in view.rules_off else set()
    read = {edge.source for node in found.values() for edge in node.edges}
    tables = tuple(table for table in catalog.tables if table.id in read or table.delta is not None)
    return PhysicalPlan(tables, evaluate_once(tuple(found.values()), alone))


def unfilled(catalog: Catalog, *, filled: Collection[int], stopped: Collection[int]) -> frozenset[int]:
    """The backfills that are still to be done; those stopped, and those waiting for them, are not."""
    left_out = _left_out(catalog, (), stopped)
    return frozenset(node.backfill for node in catalog.nodes if node.table not in left_out).difference(filled)


def _left_out(
    catalog: Catalog, filling: Collection[int], stopped: Collection[int], waiting_too: Collection[int] = ()
) -> frozenset[int]:
    nodes = catalog.nodes
    begun = {node.table for node in nodes if node.backfill in filling}
    late = {node.backfill for node in nodes if not begun.isdisjoint(node.reads)}.difference(filling).union(waiting_too)
    while True:
        waiting = with_dependents(nodes, [node.table for node in nodes if node.backfill in late])
        more = {node.backfill for node in nodes if node.table in waiting}
        if more <= late:
            return with_dependents(nodes, [*waiting, *(node.table for node in nodes if node.table in stopped)])
        late |= more  # a backfill waits as a whole: also its nodes over base tables


@dataclass(frozen=True, slots=True)
class DueRepair:
    """Twins that are filled, with the views that they are compared with."""

    backfill: int
    pairs: tuple[tuple[ViewDefinition, ViewDefinition], ...]


def due_repair(catalog: Catalog, record: EpochRecord) -> DueRepair | None:
    """The next repair to be done; twins of a view that is stopped, or stopped themselves, are not compared."""
    views = {view.id: view for view in catalog.views}
    pairs: dict[int, list[tuple[ViewDefinition, ViewDefinition]]] = {}
    for twin in catalog.replacements:
        view = views.get(twin.replaces[-1])
        if twin.twin != "repair" or view is None or twin.node.backfill not in record.filled:
            continue
        if record.stopped.keys().isdisjoint({*view.needs, *twin.needs}):
            pairs.setdefault(twin.node.backfill, []).append((view, twin))
    done = {one.backfill for one in record.repaired.values()}
    return next((DueRepair(one, tuple(found)) for one, found in pairs.items() if one not in done), None)


def done_with(catalog: Catalog, record: EpochRecord) -> frozenset[int]:
    """The backfills of twins that are compared, or that cannot be: they, or their views, are stopped."""
    views = {view.id: view for view in catalog.views}
    done = {one.backfill for one in record.repaired.values()}
    twins = [twin for twin in catalog.replacements if twin.twin == "repair"]
    for twin in twins:
        needs = {*twin.needs, *(views[twin.replaces[-1]].needs if twin.replaces[-1] in views else ())}
        if not record.stopped.keys().isdisjoint(needs):
            done.add(twin.node.backfill)
    return frozenset(done.intersection(twin.node.backfill for twin in twins))


def due_aside(catalog: Catalog, record: EpochRecord) -> AsideRequest | None:
    """The next request for rows set aside, once all views are filled: until then a view may not have those rows yet."""
    if unfilled(catalog, filled=record.filled, stopped=record.stopped):
        return None
    done = asides_done_with(catalog, record)
    return next((request for request in catalog.asides if request.id not in done), None)


def asides_done_with(catalog: Catalog, record: EpochRecord) -> frozenset[int]:
    """The requests that are done, or that cannot be: what they are for is stopped or dropped."""
    lists = {one.table: node.table for node in catalog.nodes for one in node.exceptions}
    gone = with_dependents(catalog.nodes, record.stopped)
    return frozenset(
        request.id
        for request in catalog.asides
        if request.id <= record.aside or request.table not in lists or lists[TableId(request.table)] in gone
    )


def aside_plan(catalog: Catalog, record: EpochRecord, request: AsideRequest) -> PhysicalPlan:
    """All nodes: rows that no longer fail go through those that read them."""
    return replace(physical_plan(catalog, stopped=record.stopped), aside=request)


def repair_plan(catalog: Catalog, due: DueRepair) -> PhysicalPlan:
    """Each table of the views' nodes, with its twin."""
    found: dict[int, RepairNode] = {}
    lists = {one.table for node in catalog.nodes for one in node.exceptions if one.kind == "aside"}
    for view, twin in due.pairs:
        nodes = placed_nodes(lower(catalog, view), catalog.stored(view))
        grouped = [node for node in nodes if isinstance(node, AggregateNode)]
        # of each PRE-AGGREGATION the group key and the number of slots
        slots = {table: (node.key, len(used)) for node in grouped for table, used in node.slots.items()}
        for node, copy in zip(catalog.stored(view), catalog.stored(twin), strict=True):
            for table, other in zip(node.tables, copy.tables, strict=True):
                group, count = slots.get(table, ((), 0))
                found[table] = RepairNode(table, other, group, count, table in lists)
    return PhysicalPlan((), (), tuple(found.values()))
