"""The plan of the next epoch: all views' nodes, each once.

In: a catalog, and the state of stored nodes in the epoch record. Out: a physical plan. Always: pure; made from the
views' texts, so that SQL is never older than the code that makes it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection
from dataclasses import replace

from viewkeeper.catalog.catalog import Catalog, with_dependents
from viewkeeper.catalog.define import lower
from viewkeeper.model.schema import TableId
from viewkeeper.plan.assign import placed_nodes
from viewkeeper.plan.nodes import AggregateNode, Node
from viewkeeper.plan.optimize import EVALUATE_ONCE
from viewkeeper.plan.physical import PhysicalPlan


def physical_plan(
    catalog: Catalog,
    *,
    filling: Collection[int] = (),
    stopped: Collection[int] = (),
    late: Collection[int] = (),
) -> PhysicalPlan:
    """What an epoch runs to maintain all views, and the tables that it reads.

    A table that has a DELTA is always read: DELTA must hold every row. Nodes that are `stopped` are left out, and so
    are their readers. So is a backfill that has not begun, while one that it reads from is `filling`, or that is `late`.
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
    for view in catalog.kept:
        if left_out.issuperset(view.needs):
            continue
        for node in placed_nodes(lower(catalog, view), catalog.stored(view)):
            if node.table not in left_out:
                found.setdefault(node.table, node if EVALUATE_ONCE not in view.rules_off else _evaluated_alone(node))
    read = {edge.source for node in found.values() for edge in node.edges}
    tables = tuple(table for table in catalog.tables if table.id in read or table.delta is not None)
    return PhysicalPlan(tables, tuple(found.values()))


def _evaluated_alone(node: Node) -> Node:
    return replace(node, direct=None) if isinstance(node, AggregateNode) else node


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
