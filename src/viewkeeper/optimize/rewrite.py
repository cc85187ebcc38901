"""Rewriting a plan: nodes fall out, and their readers are led to stand-ins.

In: a plan and, for each node that falls out, the node that stands in for it. Out: a plan with places counted anew.
Always: stand-ins are followed to their end, and the order of the kept nodes does not change.
"""

from __future__ import annotations

from collections.abc import Mapping

from viewkeeper.plan.logical import LogicalNode, LogicalPlan, inputs_of, with_inputs


def keep_nodes(plan: LogicalPlan, stand_in: Mapping[int, int]) -> LogicalPlan:
    """The plan without the keys of `stand_in`; a stand-in stands before the node it replaces."""
    kept: list[LogicalNode] = []
    place_now: dict[int, int] = {}
    for place, node in enumerate(plan.nodes):
        if place in stand_in:
            place_now[place] = place_now[stand_in[place]]
            continue
        place_now[place] = len(kept)
        kept.append(with_inputs(node, tuple(place_now[source] for source in inputs_of(node))))
    return LogicalPlan(tuple(kept))
