"""Base tables are read once for all views: an epoch decodes a log one time, and a table has one DELTA.

In: a plan. Out: the plan in which each base table, and the δ over it, stands once. Always: the same views. All else is
computed for each view by itself, also what two views compute alike, and stands as often as it is computed.
"""

from __future__ import annotations

from viewkeeper.optimize.rewrite import keep_nodes
from viewkeeper.plan.logical import Base, Delta, LogicalPlan, inputs_of, with_inputs


def share_base_tables(plan: LogicalPlan) -> LogicalPlan:
    """One pass suffices: inputs stand before their readers, so they are shared when a reader is looked at."""
    first: dict[object, int] = {}
    stand_in: dict[int, int] = {}
    for place, node in enumerate(plan.nodes):
        is_base = isinstance(node, Base) or (isinstance(node, Delta) and isinstance(plan.nodes[node.input], Base))
        if not is_base:
            continue
        seen = with_inputs(node, tuple(stand_in.get(source, source) for source in inputs_of(node)))
        if seen in first:
            stand_in[place] = first[seen]
        else:
            first[seen] = place
    return keep_nodes(plan, stand_in) if stand_in else plan
