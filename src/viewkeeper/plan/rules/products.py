"""Products of a plan: FROM and WHERE as they were written.

In: a relation. Out: the same with each product, and the conditions over it, rewritten. Always: from the inside out, so
that the sides that a change sees are rewritten already.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import reduce

from viewkeeper.sql.expressions import Expression
from viewkeeper.sql.positions import conditions_over, with_inputs
from viewkeeper.sql.relations import Join, Relation, Select, inputs_of, is_product

Change = Callable[[Join, list[Expression]], Relation]


def rewrite_products(relation: Relation, change: Change) -> Relation:
    """`change` gets a product and the conditions above it, in written order."""
    below, conditions = conditions_over(relation)
    if isinstance(below, Join) and is_product(below):
        sides = tuple(rewrite_products(side, change) for side in below.sides)
        return change(replace(below, sides=sides), conditions)
    return with_inputs(relation, tuple(rewrite_products(part, change) for part in inputs_of(relation)))


def stacked(relation: Relation, conditions: Iterable[Expression]) -> Relation:
    """A σ for each condition: over a product there may be more of them than one conjunction can have."""
    return reduce(Select, conditions, relation)
