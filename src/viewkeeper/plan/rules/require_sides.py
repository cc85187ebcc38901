"""Required sides: σ p (A ⟖ B) = σ p (A ⋈ B), and σ p (A ⟗ B) = σ p (A ⟕ B), where p is true only if A has a row.

In: a relation. Out: the same rows. Always: only for a p that is the key of a product inside of A, which no view could
maintain without it: `FROM a, b RIGHT JOIN c ON b.y = c.y WHERE a.x = b.x`. All other joins stay as they are.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from viewkeeper.plan.rules.products import stacked
from viewkeeper.sql import construct
from viewkeeper.sql.bind_joins import inner_join
from viewkeeper.sql.expressions import Call, Cast, ColumnRef, Expression, conjuncts
from viewkeeper.sql.positions import column_refs, conditions_over, project, shift, with_inputs
from viewkeeper.sql.relations import (
    WHERE_SIDES,
    Join,
    Output,
    Relation,
    equality_of,
    inputs_of,
    is_product,
    sides_of,
    starts_of,
)

# A kind of join and the side that is required → what it is then.
_REQUIRED = {("right", 0): "inner", ("left", 1): "inner", ("full", 0): "left", ("full", 1): "right"}
_ARITHMETIC = frozenset(("+", "-", "*", "/", "%", "div"))


def require_sides(relation: Relation) -> Relation:
    found = _required(relation, [])
    if found.columns == relation.columns:
        return found
    return project(
        found, [Output(ref.name, ref) for ref in column_refs(relation)]
    )  # what could be absent stays nullable


def _required(relation: Relation, known: Sequence[Expression]) -> Relation:
    """`known`: conditions that every row which counts in the end fulfils."""
    join, conditions = conditions_over(relation)
    if not isinstance(join, Join):
        return with_inputs(relation, tuple(_required(part, []) for part in inputs_of(relation)))
    known = [*known, *conditions]
    kind = join.kind
    for side in range(len(join.sides)):
        if (kind, side) in _REQUIRED and any(_requires(join, side, condition) for condition in known):
            kind = _REQUIRED[kind, side]
    sides = tuple(_required(side, _of_side(join, kind, place, known)) for place, side in enumerate(join.sides))
    if kind == join.kind and all(new is old for new, old in zip(sides, join.sides, strict=True)):
        return relation
    if kind != "inner" or join.kind == "inner":
        return stacked(replace(join, kind=kind, sides=sides), conditions)
    return stacked(inner_join(sides[0], sides[1], _on(join), (join.labels[0], join.labels[1])), conditions)


def _requires(join: Join, side: int, condition: Expression) -> bool:
    """Whether the condition is not true where the side is absent, all its columns NULL, and a product inside needs it."""
    if sides_of(condition, join.sides) != {side} or not isinstance(condition, Call):
        return False
    is_needed = _is_key(join.sides[side], shift(condition, -starts_of(join.sides)[side]))
    return is_needed and any(map(_is_null_of_nulls, condition.args))


def _is_key(side: Relation, condition: Expression) -> bool:
    """Whether a product at or below the side has the condition as an equality between its own sides."""
    join, _ = conditions_over(side)
    if not isinstance(join, Join):
        return False
    if is_product(join) and equality_of(condition, join.sides) is not None:
        return True
    spoken = sides_of(condition, join.sides)
    return len(spoken) == 1 and _is_key(join.sides[min(spoken)], shift(condition, -starts_of(join.sides)[min(spoken)]))


def _is_null_of_nulls(expression: Expression) -> bool:
    match expression:
        case ColumnRef():
            return True
        case Cast(arg=arg):
            return _is_null_of_nulls(arg)
        case Call(name=name, args=args) if name in _ARITHMETIC:
            return any(map(_is_null_of_nulls, args))
    return False


def _of_side(join: Join, kind: str, place: int, known: Sequence[Expression]) -> list[Expression]:
    """The conditions that a row of the side fulfils if it is part of a row that counts."""
    if kind != "inner" and place not in WHERE_SIDES[kind]:
        return []
    start = starts_of(join.sides)[place]
    return [shift(condition, -start) for condition in known if sides_of(condition, join.sides) == {place}]


def _on(join: Join) -> list[Expression]:
    by = len(join.sides[0].columns)
    equal = [construct.compare("=", first, shift(second, by)) for first, second in zip(*join.keys, strict=True)]
    return equal if join.residual is None else [*equal, *conjuncts(join.residual)]
