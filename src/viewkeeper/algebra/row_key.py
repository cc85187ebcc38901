"""Row keys: which expressions identify the rows of a relation, and which groups can be made of finer ones.

In: a join, or the expressions by which rows are grouped. Out: indexes of the sides that have at most one row under a
join key; or groups over the key of a finer γ. Always: the whole row key of such a side is in the join key, so that its
entries need no other key, and the other sides' row keys identify the rows of the join. A group of the finer γ is in
exactly one of the coarser; the key of a DOUBLE is not the value, so nothing is made of it.
"""

from __future__ import annotations

from collections.abc import Sequence

from viewkeeper.algebra.canonical import spell
from viewkeeper.algebra.expressions import ColumnRef, Expression, children, rewrite
from viewkeeper.algebra.relations import Aggregation, Join, Project, Relation, Scan, Select, ViewRows
from viewkeeper.algebra.rewriting import over_columns
from viewkeeper.errors import InvariantBroken
from viewkeeper.model.types import DOUBLE


def looked_up(join: Join) -> frozenset[int]:
    """The sides that are looked up by their row key: never all, and none whose rows are in the result without a match."""
    preserved = {"inner": 0, "full": len(join.sides)}.get(join.kind, 1)
    sides = enumerate(zip(join.sides, join.keys, strict=True))
    found = [number for number, (side, key) in sides if number >= preserved and has_row_key(side, key)]
    return frozenset(found if len(found) < len(join.sides) else found[1:])


def key_sides(join: Join) -> tuple[Relation, ...]:
    """The sides whose row keys make up that of the result."""
    lookups = looked_up(join)
    return tuple(side for number, side in enumerate(join.shown_sides) if number not in lookups)


def has_row_key(relation: Relation, expressions: Sequence[Expression]) -> bool:
    """Whether the whole row key is among expressions over a relation."""
    places = {part.position for part in expressions if isinstance(part, ColumnRef)}
    match relation:
        case Scan(table=table):
            return places.issuperset(map(table.position, table.key))
        case Aggregation(grouping=grouping):
            return places.issuperset(range(len(grouping.groups)))
        case Project(input=below, outputs=outputs):
            return has_row_key(below, [over_columns(outputs[place].expression, below) for place in sorted(places)])
        case Select(input=below) | ViewRows(input=below):
            return has_row_key(below, expressions)
    return False


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
