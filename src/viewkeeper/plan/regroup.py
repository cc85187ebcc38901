"""Regrouping: which groups can be made of finer ones.

In: expressions by which rows are grouped. Out: the same over the key of a finer γ, where that is possible. Always: a group of
the finer γ is in exactly one of the coarser; the key of a DOUBLE is not the value, so nothing is made of it.
"""

from __future__ import annotations

from collections.abc import Sequence

from viewkeeper.errors import InvariantBroken
from viewkeeper.model.types import DOUBLE
from viewkeeper.plan.canonical import spell
from viewkeeper.sql.expressions import ColumnRef, Expression, children, rewrite


def can_regroup(groups: Sequence[Expression], finer: Sequence[Expression]) -> bool:
    """Whether each of `groups` is a function of `finer`."""
    known = frozenset(spell(one) for one in finer if one.type != DOUBLE)
    return all(_is_made_of(one, known) for one in groups)


def regrouped(group: Expression, finer: Sequence[Expression]) -> Expression:
    """A group over the columns of a key that `finer` are."""
    places = {spell(one): place for place, one in enumerate(finer)}

    def over_key(part: Expression) -> Expression | None:
        place = places.get(spell(part))
        if place is None and isinstance(part, ColumnRef):
            raise InvariantBroken(f"{group.text} cannot be made of {', '.join(one.text for one in finer)}")
        return None if place is None else ColumnRef(place, part.text, part.type, part.nullable)

    return rewrite(group, over_key)


def _is_made_of(expression: Expression, known: frozenset[str]) -> bool:
    if spell(expression) in known:
        return True
    return not isinstance(expression, ColumnRef) and all(_is_made_of(part, known) for part in children(expression))
