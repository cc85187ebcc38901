"""δ elimination (paper 3, section 4.2): where the old row is at hand, no copy of it is stored.

In: a plan. Out: the plan without the δ nodes whose old rows are elsewhere: in a log that carries before-images, or, behind γ,
⋈ and top-n, in the version of their own records below the epoch. Always: the same views; what stays is a stored DELTA.
"""

from __future__ import annotations

from viewkeeper.optimize.rewrite import keep_nodes
from viewkeeper.plan.logical import STORED, Delta, LogicalPlan


def drop_delta(plan: LogicalPlan) -> LogicalPlan:
    """Let the readers of such a δ read its input."""
    stand_in = {
        place: node.input
        for place, node in enumerate(plan.nodes)
        if isinstance(node, Delta) and node.old_rows != STORED
    }
    return keep_nodes(plan, stand_in) if stand_in else plan
