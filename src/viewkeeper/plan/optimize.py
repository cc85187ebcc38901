"""The optimizer: named rules, one after the other, from what a text means to what is computed for it.

In: a bound relation. Out: a relation of the same columns and rows. Always: pure; every rule preserves the result. The
rules of `RULES` can be left out one by one; before and after them come those of `FIRST` and `NEEDED`, without which some
relation, or none, can be lowered. Rules
about several views are applied elsewhere: equal nodes are one (`assign`), similar copies and groupings are one, and fine
groupings feed coarse ones (`rules.share_copies`, `rules.share_groupings`), expressions over changed rows are evaluated once
for all γ (`operators.direct`).
"""

from __future__ import annotations

from collections.abc import Callable, Collection

from viewkeeper.errors import InvariantBroken
from viewkeeper.plan.rules.imply_conditions import imply_conditions
from viewkeeper.plan.rules.join_by_twos import join_by_twos
from viewkeeper.plan.rules.join_on_one_key import join_on_one_key
from viewkeeper.plan.rules.push_conditions import push_conditions
from viewkeeper.plan.rules.require_sides import require_sides
from viewkeeper.plan.validate import validate
from viewkeeper.sql.relations import Relation

Rule = Callable[[Relation], Relation]

FIRST: tuple[Rule, ...] = (require_sides,)
RULES: tuple[Rule, ...] = (imply_conditions, push_conditions, join_on_one_key)
NEEDED: tuple[Rule, ...] = (join_by_twos,)
SHARE_NODES, SHARE_COPIES, SHARE_GROUPINGS = "share_nodes", "share_copies", "share_groupings"
FEED_GROUPINGS, EVALUATE_ONCE = "feed_groupings", "evaluate_once"
SWITCHES = (
    *(rule.__name__ for rule in RULES),
    *(SHARE_NODES, SHARE_COPIES, SHARE_GROUPINGS, FEED_GROUPINGS, EVALUATE_ONCE),
)


def optimize(relation: Relation, *, without: Collection[str] = ()) -> Relation:
    """`without` are names of rules that are left out."""
    validate(relation)
    columns = relation.columns
    for rule in (*FIRST, *(rule for rule in RULES if rule.__name__ not in without), *NEEDED):
        relation = rule(relation)
    validate(relation)
    if relation.columns != columns:
        raise InvariantBroken("the optimizer changed the columns of a view")
    return relation
