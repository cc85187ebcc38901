"""Before-image δ elimination (paper 3): a log that tells the old row needs no stored copy of it.

In: a plan. Out: the plan without the δ nodes whose log carries before-images. Always: the same views.
"""

from __future__ import annotations

from viewkeeper.optimize.rewrite import keep_nodes
from viewkeeper.plan.logical import Delta, LogicalPlan


def drop_delta_with_before_images(plan: LogicalPlan) -> LogicalPlan:
    """Let the readers of such a δ read its input."""
    stand_in = {
        place: node.input for place, node in enumerate(plan.nodes) if isinstance(node, Delta) and node.before_images
    }
    return keep_nodes(plan, stand_in) if stand_in else plan
