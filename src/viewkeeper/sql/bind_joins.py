"""Binding of joins: what JOIN … ON means, not how it is best computed.

In: two relations and the conditions of ON, over their columns side by side. Out: one relation, its columns in FROM
order. Always: an inner join is σ over the product of its sources, in one flat list. In any other join the equalities
between the sides are the key, and the rest of ON is the residual.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from viewkeeper.sql.expressions import Expression, rewrite
from viewkeeper.sql.positions import conjunction, is_true, select, shift
from viewkeeper.sql.refusals import refuse_fallible, refuse_keyless
from viewkeeper.sql.relations import ON_SIDES, Join, Relation, Select, equality_of, is_product, sides_of


def inner_join(left: Relation, right: Relation, on: Sequence[Expression], labels: tuple[str, str]) -> Relation:
    """σ over the product; `labels` name the two in messages."""
    first, second = _opened(left, labels[0]), _opened(right, labels[1])
    names = (*first.labels, *second.labels)
    product: Relation = Join("inner", (*first.sides, *second.sides), ((),) * len(names), labels=names)
    for predicate in _predicates(left):
        product = Select(product, predicate)
    for predicate in _predicates(right):
        product = Select(product, shift(predicate, len(left.columns)))
    return select(product, on)


def _opened(relation: Relation, label: str) -> Join:
    while isinstance(relation, Select):
        relation = relation.input
    if isinstance(relation, Join) and is_product(relation):
        return relation
    return Join("inner", (relation,), ((),), labels=(label,))


def _predicates(relation: Relation) -> list[Expression]:
    """The predicates of the σ over a product, the lowest first; FROM contains no other σ."""
    found = []
    while isinstance(relation, Select):
        found.append(relation.predicate)
        relation = relation.input
    return found[::-1]


def outer_join(
    kind: str,
    sides: tuple[Relation, Relation],
    on: Sequence[Expression],
    labels: tuple[str, str],
    called: Callable[[Expression], Expression | None],
    *,
    once: bool,
) -> Relation:
    """A join whose sides cannot be swapped.

    A view needs a key, and its residual must not fail, because no row could be set aside for it; a condition that only
    filters one side may. `called` returns a column's name for messages.
    """
    keys: tuple[list[Expression], list[Expression]] = ([], [])
    residual = []
    for condition in on:
        equality = equality_of(condition, sides)
        if equality is not None:
            for side, term in equality.by_side().items():
                keys[side].append(shift(term, -len(sides[0].columns) if side else 0))
        elif not is_true(condition):
            residual.append(condition)
    if not keys[0] and not once:
        raise refuse_keyless(f"{kind.upper()} JOIN", *labels)
    stays = conjunction([part for part in residual if not _leaves_out(part, sides, kind)])
    if stays is not None and stays.fallible and not once:
        raise refuse_fallible(f"the {kind.upper()} JOIN with {labels[1]}", rewrite(stays, called))
    return Join(kind, sides, (tuple(keys[0]), tuple(keys[1])), conjunction(residual), labels)


def _leaves_out(condition: Expression, sides: Sequence[Relation], kind: str) -> bool:
    spoken = sides_of(condition, sides)
    return len(spoken) == 1 and min(spoken) in ON_SIDES[kind]
