"""The table of operators: one for each kind of node.

In: a kind of node. Out: its operator. Always: all that the rest of the program knows of a kind of node.
"""

from __future__ import annotations

from viewkeeper.plan.nodes import CopyNode, DeltaNode, FoldNode, JoinNode, TopNode
from viewkeeper.views.aggregate import AggregateOperator
from viewkeeper.views.copy import ProjectOperator
from viewkeeper.views.deltas import DeltaOperator
from viewkeeper.views.join import JoinOperator
from viewkeeper.views.operator import Operator
from viewkeeper.views.top import TopOperator

OPERATORS: dict[type, type[Operator]] = {
    CopyNode: ProjectOperator,
    FoldNode: AggregateOperator,
    JoinNode: JoinOperator,
    TopNode: TopOperator,
    DeltaNode: DeltaOperator,
}
