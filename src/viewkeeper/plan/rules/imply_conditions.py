"""Conditions that a disjunction implies: σ (p∧q)∨(p∧r) (A × B) = σ (p∧q)∨(p∧r) σ p (A × B).

In: a relation. Out: the same rows. Always: conditions are added, none is removed; only such as can go into a side or be
a key, and only out of a disjunction that cannot fail.
"""

from __future__ import annotations

from viewkeeper.plan.rules.products import rewrite_products, stacked
from viewkeeper.sql.expressions import Expression, implied
from viewkeeper.sql.relations import Join, Relation, equality_of, sides_of


def imply_conditions(relation: Relation) -> Relation:
    return rewrite_products(relation, _with_implied)


def _with_implied(product: Join, conditions: list[Expression]) -> Relation:
    across = [part for part in conditions if not part.fallible and len(sides_of(part, product.sides)) > 1]
    told = [part for condition in across for part in implied(condition) if _helps(part, product)]
    return stacked(product, dict.fromkeys((*conditions, *told)))


def _helps(condition: Expression, product: Join) -> bool:
    return len(sides_of(condition, product.sides)) == 1 or equality_of(condition, product.sides) is not None
