"""Vertical merge of equal nodes across views (paper 3): what two views compute alike is computed once.

In: a plan. Out: the plan in which no two nodes of equal text read equal inputs. Always: the same views; view nodes
stay, because each is a table of its own.
"""

from __future__ import annotations

from viewkeeper.optimize.rewrite import keep_nodes
from viewkeeper.plan.logical import Base, LogicalPlan, View, with_input


def merge_equal_nodes(plan: LogicalPlan) -> LogicalPlan:
    """One pass suffices: inputs stand before their readers, so they are merged when a reader is looked at."""
    first: dict[object, int] = {}
    stand_in: dict[int, int] = {}
    for place, node in enumerate(plan.nodes):
        if isinstance(node, View):
            continue
        seen = node if isinstance(node, Base) else with_input(node, stand_in.get(node.input, node.input))
        if seen in first:
            stand_in[place] = first[seen]
        else:
            first[seen] = place
    return keep_nodes(plan, stand_in) if stand_in else plan
