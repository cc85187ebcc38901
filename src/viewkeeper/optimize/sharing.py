"""Sharing: which views stand behind a node.

In: a plan. Out: for each node the names of the views that need it. Always: in the order of the plan.
"""

from __future__ import annotations

from viewkeeper.plan.logical import LogicalPlan, View


def views_behind(plan: LogicalPlan) -> tuple[tuple[str, ...], ...]:
    """For each place the views that need the node there; what stands once in a plan is done once for all of them."""
    behind: list[set[int]] = [set() for _ in plan.nodes]
    for place in reversed(range(len(plan.nodes))):
        if isinstance(plan.nodes[place], View):
            behind[place].add(place)
        for source in plan.inputs(place):
            behind[source] |= behind[place]
    names = {place: node.name for place, node in enumerate(plan.nodes) if isinstance(node, View)}
    return tuple(tuple(names[place] for place in sorted(views)) for views in behind)
