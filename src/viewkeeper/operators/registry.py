"""The table of operators: one for each kind of node.

In: a kind of node. Out: its operator. Always: the only place that lists the kinds of nodes.
"""

from __future__ import annotations

from viewkeeper.operators.aggregate import AggregateOperator
from viewkeeper.operators.delta import DeltaOperator
from viewkeeper.operators.join import JoinOperator
from viewkeeper.operators.operator import EdgeOperator, Operator
from viewkeeper.operators.project import ProjectOperator
from viewkeeper.operators.topn import TopOperator
from viewkeeper.plan.nodes import AggregateNode, DeltaNode, JoinNode, ProjectNode, TopNode

EDGE_OPERATORS: dict[type, type[EdgeOperator]] = {
    ProjectNode: ProjectOperator,
    AggregateNode: AggregateOperator,
    JoinNode: JoinOperator,
    TopNode: TopOperator,
}
OPERATORS: dict[type, type[Operator]] = {**EDGE_OPERATORS, DeltaNode: DeltaOperator}
