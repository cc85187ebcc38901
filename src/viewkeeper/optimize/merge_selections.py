"""Merging of σ over σ, where nobody else reads the lower one.

In: a plan. Out: the plan with such chains as one σ of the conjunction, in written order. Always: the same views; a
lower σ that several views read stays, because sharing it is worth more than one node less.
"""

from __future__ import annotations

from collections import Counter

from viewkeeper.optimize.rewrite import keep_nodes
from viewkeeper.plan.logical import LogicalPlan, Select
from viewkeeper.sql.construct import logical


def merge_selections(plan: LogicalPlan) -> LogicalPlan:
    """From the bottom up, so that a chain becomes one σ in one pass."""
    read_by = Counter(source for place in range(len(plan.nodes)) for source in set(plan.inputs(place)))
    nodes = list(plan.nodes)
    stand_in: dict[int, int] = {}
    for place, node in enumerate(plan.nodes):
        lower = nodes[node.input] if isinstance(node, Select) else None
        if isinstance(node, Select) and isinstance(lower, Select) and read_by[node.input] == 1:
            nodes[place] = Select(node.input, logical("and", lower.predicate, node.predicate))
            stand_in[node.input] = lower.input
    return keep_nodes(LogicalPlan(tuple(nodes)), stand_in) if stand_in else plan
