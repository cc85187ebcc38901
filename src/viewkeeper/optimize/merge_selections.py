"""Merging of σ over σ, where nobody else reads the lower one.

In: a plan. Out: the plan with such chains as one σ of the conjunction, in written order. Always: the same views; a
lower σ that several views read stays, because sharing it is worth more than one node less.
"""

from __future__ import annotations

from viewkeeper.optimize.rewrite import keep_nodes
from viewkeeper.plan.logical import LogicalPlan, Select
from viewkeeper.sql.construct import logical


def merge_selections(plan: LogicalPlan) -> LogicalPlan:
    """Merge the first pair found; the fixpoint does the rest."""
    for place, node in enumerate(plan.nodes):
        lower = plan.nodes[node.input] if isinstance(node, Select) else None
        if isinstance(node, Select) and isinstance(lower, Select) and plan.readers(node.input) == (place,):
            nodes = list(plan.nodes)
            nodes[place] = Select(node.input, logical("and", lower.predicate, node.predicate))
            return keep_nodes(LogicalPlan(tuple(nodes)), {node.input: lower.input})
    return plan
