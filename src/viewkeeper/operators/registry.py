"""The table of operators: one for each kind of node.

In: a kind of node. Out: its operator. Always: every kind of node that a plan may hold (`NODE_KINDS`) is
here, and those of DELTAs, which the plan derives from its tables, and `RepairNode`.
"""

from __future__ import annotations

from viewkeeper.operators.aggregate import AggregateOperator
from viewkeeper.operators.join import JoinOperator
from viewkeeper.operators.keyed_copies import CellDeltaOperator, DeltaOperator, ProjectOperator
from viewkeeper.operators.operator import EdgeOperator, Operator
from viewkeeper.operators.topn import TopOperator
from viewkeeper.plan.nodes import AggregateNode, CellDeltaNode, DeltaNode, JoinNode, ProjectNode, RepairNode, TopNode

EDGE_OPERATORS: dict[type, type[EdgeOperator]] = {
    ProjectNode: ProjectOperator,
    AggregateNode: AggregateOperator,
    JoinNode: JoinOperator,
    TopNode: TopOperator,
}
OPERATORS: dict[type, type[Operator]] = {
    **EDGE_OPERATORS,
    DeltaNode: DeltaOperator,
    CellDeltaNode: CellDeltaOperator,
    RepairNode: Operator,
}
