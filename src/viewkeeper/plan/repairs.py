"""Repairs: the plan of an epoch that puts records right, or does what was asked for rows set aside.

In: a catalog, and the state of its nodes in the epoch record. Out: a physical plan of repairs, and of which backfill, or of a
request. Always: pure; a repair is due once its twins are filled, and done once; so is a request, once all views are filled.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from viewkeeper.catalog.catalog import with_dependents
from viewkeeper.catalog.define import lower
from viewkeeper.model.schema import TableId
from viewkeeper.plan.assign import placed_nodes
from viewkeeper.plan.nodes import AggregateNode, RepairNode
from viewkeeper.plan.physical import PhysicalPlan
from viewkeeper.plan.planner import physical_plan, unfilled

if TYPE_CHECKING:
    from viewkeeper.catalog.catalog import Catalog, ViewDefinition
    from viewkeeper.model.asides import AsideRequest
    from viewkeeper.model.epochs import EpochRecord


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
        slots = _slots(catalog, view)
        for node, copy in zip(catalog.stored(view), catalog.stored(twin), strict=True):
            for table, other in zip(node.tables, copy.tables, strict=True):
                group, count = slots.get(table, ((), 0))
                found[table] = RepairNode(table, other, group, count, table in lists)
    return PhysicalPlan((), (), tuple(found.values()))


def _slots(catalog: Catalog, view: ViewDefinition) -> dict[int, tuple[tuple, int]]:
    """The PRE-AGGREGATIONs of a view: the group key and how many slots each has."""
    nodes = placed_nodes(lower(catalog, view), catalog.stored(view))
    grouped = [node for node in nodes if isinstance(node, AggregateNode)]
    return {table: (node.key, len(places)) for node in grouped for table, places in node.slots.items()}
