"""Pushdown: σ p∧q (A ⋈ B) = σ q (σ p (A) ⋈ B), and A ⟕ on θ∧p B = A ⟕ on θ σ p (B), where p refers to that side alone.

In: a relation. Out: the same rows. Always: at a join that is not inner, a condition above it goes into a side whose
every row is in the result, a condition of ON into a side whose rows it only leaves out. A condition that can fail stays
above, where it sees only joined rows, unless it is a key that a join further down needs, or ON names it for that side.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from viewkeeper.plan.rules.products import stacked
from viewkeeper.sql.expressions import Expression, conjuncts
from viewkeeper.sql.positions import conditions_over, conjunction, select, shift, with_inputs
from viewkeeper.sql.relations import (
    ON_SIDES,
    WHERE_SIDES,
    Join,
    Relation,
    equality_of,
    inputs_of,
    is_product,
    sides_of,
    starts_of,
)


def push_conditions(relation: Relation) -> Relation:
    below, conditions = conditions_over(relation)
    if not isinstance(below, Join):
        return with_inputs(relation, tuple(map(push_conditions, inputs_of(relation))))
    join, above = _pushed(below, conditions)
    join = replace(join, sides=tuple(map(push_conditions, join.sides)))
    return stacked(join, above) if is_product(join) else select(join, above)


def _pushed(join: Join, conditions: Sequence[Expression]) -> tuple[Join, list[Expression]]:
    """The join with the conditions that go into its sides, and those that stay above it."""
    starts = starts_of(join.sides)
    inside: list[list[Expression]] = [[] for _ in join.sides]
    above, residual = [], []
    for condition in conditions:
        if _goes_into(join, condition):
            inside[min(sides_of(condition, join.sides))].append(condition)
        else:
            above.append(condition)
    for condition in () if join.residual is None else conjuncts(join.residual):
        spoken = sides_of(condition, join.sides)
        if len(spoken) == 1 and min(spoken) in ON_SIDES[join.kind]:
            inside[min(spoken)].append(condition)
        else:
            residual.append(condition)
    together = zip(join.sides, inside, starts, strict=True)
    sides = tuple(select(side, [shift(one, -start) for one in mine]) for side, mine, start in together)
    return replace(join, sides=sides, residual=conjunction(residual)), above


def _goes_into(join: Join, condition: Expression) -> bool:
    spoken = sides_of(condition, join.sides)
    if len(spoken) != 1:
        return False
    (number,) = spoken
    if join.kind != "inner" and number not in WHERE_SIDES[join.kind]:
        return False
    local = shift(condition, -starts_of(join.sides)[number])
    return not condition.fallible or _is_key(join.sides[number], local)


def _is_key(side: Relation, condition: Expression) -> bool:
    """Whether a product at or below the side can have the condition as its key."""
    below, _ = conditions_over(side)
    if not isinstance(below, Join):
        return False
    if is_product(below):
        return equality_of(condition, below.sides) is not None
    return _goes_into(below, condition)
