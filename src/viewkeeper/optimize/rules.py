"""The optimizer: named rules, run until nothing changes.

In: a valid logical plan. Out: a valid plan of the same views. Always: every rule is pure and keeps the answer; which
rows are set aside is decided by the unoptimized plan, so no rule can change that either. What comes out is what an epoch
does: a rule that epochs do not follow has no place here.
"""

from __future__ import annotations

from collections.abc import Callable

from viewkeeper.errors import InvariantBroken
from viewkeeper.optimize.drop_delta import drop_delta
from viewkeeper.optimize.merge_selections import merge_selections
from viewkeeper.optimize.share_equal_parts import share_equal_parts
from viewkeeper.plan.logical import LogicalPlan
from viewkeeper.plan.validate import validate_plan

RULES: tuple[Callable[[LogicalPlan], LogicalPlan], ...] = (
    drop_delta,
    share_equal_parts,
    merge_selections,
)


def optimize(plan: LogicalPlan) -> LogicalPlan:
    """Run the rules to their fixpoint; each round that changes something removes a node, which bounds the rounds."""
    validate_plan(plan)
    for _ in range(len(plan.nodes) + 1):
        before = plan
        for rule in RULES:
            plan = rule(plan)
        if plan == before:
            validate_plan(plan)
            return plan
    raise InvariantBroken("the optimizer does not come to an end")
