"""Lookups: the sides of a join that have at most one row under a join key.

In: a join. Out: indexes of its sides. Always: such a side's whole row key is in the join key, so that its entries need no
other key, and another side's row key identifies the rows of the join.
"""

from __future__ import annotations

from collections.abc import Sequence

from viewkeeper.sql.expressions import ColumnRef, Expression
from viewkeeper.sql.positions import over_columns
from viewkeeper.sql.relations import Aggregation, Join, Project, Relation, Scan, Select, ViewRows


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
