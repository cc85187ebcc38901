"""What several views compute alike is computed once, and a base table is read once.

In: a plan. Out: the plan in which each base table and the δ over it, each stored node and each view stands once. Always:
the same views. σ and π are computed by whoever reads them, and stand as often as they are computed.
"""

from __future__ import annotations

from collections.abc import Hashable

from viewkeeper.optimize.rewrite import keep_nodes
from viewkeeper.plan.logical import Base, Delta, LogicalNode, LogicalPlan, View, inputs_of, with_inputs


def share_equal_parts(plan: LogicalPlan) -> LogicalPlan:
    """One pass suffices: inputs stand before their readers, so they are shared when a reader is looked at."""
    first: dict[Hashable, int] = {}
    stand_in: dict[int, int] = {}
    for place, node in enumerate(plan.nodes):
        seen = _identity(plan, with_inputs(node, tuple(stand_in.get(source, source) for source in inputs_of(node))))
        if seen is not None and first.setdefault(seen, place) != place:
            stand_in[place] = first[seen]
    return _without_unread(keep_nodes(plan, stand_in)) if stand_in else plan


def _identity(plan: LogicalPlan, node: LogicalNode) -> Hashable | None:
    """What two nodes that are one have in common; None for what is never shared."""
    match node:
        case Base():
            return node
        case Delta(input=source) if isinstance(plan.nodes[source], Base):
            return node
        case View(id=view):
            return View, view
    stored = getattr(node, "stored", None)
    return None if stored is None else (type(node), stored)


def _without_unread(plan: LogicalPlan) -> LogicalPlan:
    """The plan without nodes that led to one which another stands in for."""
    needed: set[int] = set()
    for place in reversed(range(len(plan.nodes))):
        if place in needed or isinstance(plan.nodes[place], View):
            needed |= {place, *plan.inputs(place)}
    kept = sorted(needed)
    now = {place: number for number, place in enumerate(kept)}
    nodes = (with_inputs(plan.nodes[p], tuple(now[source] for source in plan.inputs(p))) for p in kept)
    return LogicalPlan(tuple(nodes))
