"""Join order: σ a=b∧b=c∧p (A × B × C) = π σ p ((A ⋈ B on a = b) ⋈ C on b = c).

In: a relation. Out: the same rows. Always: sides are joined in written order where the equalities allow it, else the
first that has one with what is joined; a side that has none is left as a product, which no view can maintain. A right
join is a left join with the sides swapped: A ⟖ B = π (B ⟕ A). The parts of a key are in the order of their spelling,
not of the text.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from viewkeeper.plan.canonical import spell
from viewkeeper.plan.rules.products import rewrite_products
from viewkeeper.sql.expressions import Expression
from viewkeeper.sql.positions import keep_columns, relocate, select, shift, with_inputs
from viewkeeper.sql.relations import Equality, Join, Relation, equality_of, inputs_of, starts_of


def join_by_twos(relation: Relation) -> Relation:
    return _settled(rewrite_products(relation, _joined))


def _joined(product: Join, conditions: list[Expression]) -> Relation:
    sides, labels = product.sides, product.labels
    equalities = [one for part in conditions if (one := equality_of(part, sides)) is not None]
    starts = starts_of(sides)
    joined, waiting = [0], list(range(1, len(sides)))
    relation, unused = sides[0], equalities
    while waiting:
        following = next((place for place in waiting if _usable(unused, joined, place)), waiting[0])
        used = _usable(unused, joined, following)
        places = _places(sides, joined)
        left = tuple(relocate(known, places.__getitem__) for known, _ in used.values())
        right = tuple(shift(new, -starts[following]) for _, new in used.values())
        called = (", ".join(labels[place] for place in joined), labels[following])
        relation = Join("inner", (relation, sides[following]), (left, right), labels=called)
        unused = [equality for equality in unused if equality not in used]
        joined.append(following)
        waiting.remove(following)
    places = _places(sides, joined)
    gone = {one.condition for one in equalities} - {one.condition for one in unused}
    above = [relocate(part, places.__getitem__) for part in conditions if part not in gone]
    return keep_columns(select(relation, above), [places[position] for position in sorted(places)])


def _usable(
    equalities: Sequence[Equality], joined: Sequence[int], following: int
) -> dict[Equality, tuple[Expression, Expression]]:
    """The equalities between what is joined and the next side, with that side's term last."""
    found = {}
    for one in equalities:
        if one.left_sides <= set(joined) and one.right_sides == {following}:
            found[one] = (one.left, one.right)
        elif one.right_sides <= set(joined) and one.left_sides == {following}:
            found[one] = (one.right, one.left)
    return found


def _places(sides: Sequence[Relation], joined: Sequence[int]) -> dict[int, int]:
    """Position in FROM order → position in the order of joining."""
    starts = starts_of(sides)
    order = [starts[place] + column for place in joined for column in range(len(sides[place].columns))]
    return {position: place for place, position in enumerate(order)}


def _settled(relation: Relation) -> Relation:
    """The relation without right joins, and with keys whose order does not depend on that of conditions."""
    relation = with_inputs(relation, tuple(map(_settled, inputs_of(relation))))
    if not isinstance(relation, Join):
        return relation
    parts = sorted(zip(*relation.keys, strict=True), key=lambda terms: list(map(spell, terms)))
    if parts:
        relation = replace(relation, keys=tuple(zip(*parts, strict=True)))
    return _left_for_right(relation) if relation.kind == "right" else relation


def _left_for_right(join: Join) -> Relation:
    first, second = (len(side.columns) for side in join.sides)
    residual = join.residual
    if residual is not None:
        residual = relocate(residual, lambda place: place + second if place < first else place - first)
    swapped = Join("left", join.sides[::-1], join.keys[::-1], residual)
    return keep_columns(swapped, [*range(second, second + first), *range(second)])
