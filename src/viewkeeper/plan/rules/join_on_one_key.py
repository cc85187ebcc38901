"""One join of many sides: σ a=b∧b=c (A × B × C) = A ⋈ B ⋈ C on a = b = c, as one join (paper 3, section 4.2, case 1).

In: a relation. Out: the same rows. Always: only where the equalities over a product define each key on every side.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from viewkeeper.plan.rules.products import rewrite_products, stacked
from viewkeeper.sql.expressions import Expression
from viewkeeper.sql.positions import select, shift
from viewkeeper.sql.relations import Equality, Join, Relation, equality_of, starts_of


def join_on_one_key(relation: Relation) -> Relation:
    return rewrite_products(relation, _joined)


def _joined(product: Join, conditions: list[Expression]) -> Relation:
    found = [equality_of(condition, product.sides) for condition in conditions]
    count = len(product.sides)
    keys = _shared_keys(count, [one for one in found if one is not None]) if count > 2 else None
    if keys is None:
        return stacked(product, conditions)
    starts = starts_of(product.sides)
    local = (tuple(shift(term, -start) for term in terms) for terms, start in zip(keys, starts, strict=True))
    others = [condition for condition, one in zip(conditions, found, strict=True) if one is None]
    return select(replace(product, keys=tuple(local)), others)


def _shared_keys(count: int, equalities: Sequence[Equality]) -> list[list[Expression]] | None:
    """For each side its terms, when the equalities give all sides the same keys."""
    classes: list[set[tuple[int, Expression]]] = []
    for equality in equalities:
        if len(equality.left_sides) > 1 or len(equality.right_sides) > 1:
            return None
        merged = set(equality.by_side().items())
        for known in [one for one in classes if one & merged]:
            classes.remove(known)
            merged |= known
        classes.append(merged)
    terms = [dict(one) for one in classes]
    if not terms or any(len(one) != count or len(all_) != count for one, all_ in zip(terms, classes, strict=True)):
        return None
    return [[one[side] for one in terms] for side in range(count)]
