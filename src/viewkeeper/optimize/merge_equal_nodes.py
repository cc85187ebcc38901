"""Vertical merge of equal nodes across views (paper 3): what two views compute alike is computed once.

In: a plan. Out: the plan in which no two nodes of equal text read equal inputs. Always: the same views; view nodes
stay, because each is a table of its own. Joins of different kinds over equal sides share their REVERSE-JOIN.
"""

from __future__ import annotations

from viewkeeper.optimize.rewrite import keep_nodes
from viewkeeper.plan.logical import LogicalPlan, View, inputs_of, with_inputs


def merge_equal_nodes(plan: LogicalPlan) -> LogicalPlan:
    """One pass suffices: inputs stand before their readers, so they are merged when a reader is looked at."""
    first: dict[object, int] = {}
    stand_in: dict[int, int] = {}
    for place, node in enumerate(plan.nodes):
        if isinstance(node, View):
            continue
        seen = with_inputs(node, tuple(stand_in.get(source, source) for source in inputs_of(node)))
        if seen in first:
            stand_in[place] = first[seen]
        else:
            first[seen] = place
    return keep_nodes(plan, stand_in) if stand_in else plan
