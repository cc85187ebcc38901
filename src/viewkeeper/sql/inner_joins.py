"""Inner joins: sources and equalities become joins on keys.

In: relations side by side and the equalities between them, over their columns side by side. Out: one relation, where each
column has gone, and the equalities that no join used. Always: sources that are all equal on the same keys are one join;
others are joined two at a time, in written order where the equalities allow it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from viewkeeper.sql.expressions import Call, Expression
from viewkeeper.sql.positions import relocate, shift
from viewkeeper.sql.refusals import refuse_keyless
from viewkeeper.sql.relations import Join, Relation


@dataclass(frozen=True, slots=True)
class Equality:
    """`left = right`, where each side speaks of sources of its own."""

    condition: Expression
    left: Expression
    right: Expression
    left_parts: frozenset[int]
    right_parts: frozenset[int]

    def by_side(self) -> dict[int, Expression]:
        """Of an equality between two sources: what it says of each."""
        return {min(self.left_parts): self.left, min(self.right_parts): self.right}


def equality_of(condition: Expression, parts_of: Callable[[Expression], frozenset[int]]) -> Equality | None:
    """The condition as an equality that can be a key, if it is one."""
    if not (isinstance(condition, Call) and condition.name == "="):
        return None
    left, right = condition.args
    spoken = parts_of(left), parts_of(right)
    if not spoken[0] or not spoken[1] or spoken[0] & spoken[1]:
        return None
    return Equality(condition, left, right, *spoken)


@dataclass(frozen=True, slots=True)
class Joined:
    """`places`: position side by side → position in `relation`."""

    relation: Relation
    places: dict[int, int]
    unused: list[Equality]


def join_inner(
    sides: Sequence[Relation], equalities: Sequence[Equality], labels: Sequence[str], *, once: bool = False
) -> Joined:
    keys = _shared_keys(len(sides), equalities) if len(sides) > 2 else None
    if keys is None:
        return _join_by_twos(sides, equalities, labels, once)
    starts = _starts(sides)
    local = [tuple(shift(term, -start) for term in terms) for terms, start in zip(keys, starts, strict=True)]
    return Joined(Join("inner", tuple(sides), tuple(local)), _places(sides, range(len(sides))), [])


def _starts(sides: Sequence[Relation]) -> list[int]:
    return [sum(len(side.columns) for side in sides[:place]) for place in range(len(sides))]


def _shared_keys(count: int, equalities: Sequence[Equality]) -> list[list[Expression]] | None:
    """For each source its terms, when the equalities say that all sources have the same keys."""
    classes: list[set[tuple[int, Expression]]] = []
    for equality in equalities:
        if len(equality.left_parts) > 1 or len(equality.right_parts) > 1:
            return None
        merged = set(equality.by_side().items())
        for known in [one for one in classes if one & merged]:
            classes.remove(known)
            merged |= known
        classes.append(merged)
    terms = [dict(one) for one in classes]
    if not terms or any(len(one) != count or len(all_) != count for one, all_ in zip(terms, classes, strict=True)):
        return None
    return [[one[place] for one in terms] for place in range(count)]


def _join_by_twos(
    sides: Sequence[Relation], equalities: Sequence[Equality], labels: Sequence[str], once: bool
) -> Joined:
    starts = _starts(sides)
    joined, waiting, unused = [0], list(range(1, len(sides))), list(equalities)
    relation = sides[0]
    while waiting:
        following = next((place for place in waiting if _usable(unused, joined, place)), None)
        if following is None and once:
            following = waiting[0]
        if following is None:
            raise refuse_keyless("JOIN", ", ".join(labels[place] for place in joined), labels[waiting[0]])
        used = _usable(unused, joined, following)
        places = _places(sides, joined)
        left = tuple(relocate(known, places.__getitem__) for known, _ in used.values())
        right = tuple(shift(new, -starts[following]) for _, new in used.values())
        relation = Join("inner", (relation, sides[following]), (left, right))
        unused = [equality for equality in unused if equality not in used]
        joined.append(following)
        waiting.remove(following)
    return Joined(relation, _places(sides, joined), unused)


def _usable(
    equalities: Sequence[Equality], joined: Sequence[int], following: int
) -> dict[Equality, tuple[Expression, Expression]]:
    """The equalities between what is joined and the source that follows, with that source's side last."""
    found = {}
    for one in equalities:
        if one.left_parts <= set(joined) and one.right_parts == {following}:
            found[one] = (one.left, one.right)
        elif one.right_parts <= set(joined) and one.left_parts == {following}:
            found[one] = (one.right, one.left)
    return found


def _places(sides: Sequence[Relation], joined: Sequence[int]) -> dict[int, int]:
    """Position in FROM order → position in the order of joining."""
    starts = _starts(sides)
    order = [starts[place] + column for place in joined for column in range(len(sides[place].columns))]
    return {position: place for place, position in enumerate(order)}
