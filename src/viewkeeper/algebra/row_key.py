"""Row keys: what identifies the rows of a relation, and which groups can be computed from finer ones.

In: a relation, or group expressions. Out: the parts of the row key, with their origin and the columns that show them; the
sides of a join that are looked up; groups over the key of a finer γ. Always: the key of a join is the keys of its sides
without those that are looked up, because the row of such a side follows from the others. A group of the finer γ is in
exactly one of the coarser; a DOUBLE's key is not its value, so no group is computed from it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from viewkeeper.algebra.canonical import spell
from viewkeeper.algebra.expressions import ColumnRef, Expression, children, rewrite
from viewkeeper.algebra.relations import (
    Aggregation,
    Index,
    Join,
    Project,
    Relation,
    RowsOfGroups,
    Scan,
    Select,
    Top,
    Union,
    ViewRows,
    starts_of,
)
from viewkeeper.algebra.rewriting import over_columns
from viewkeeper.errors import InvariantBroken
from viewkeeper.model.types import DOUBLE, INT, SqlType


@dataclass(frozen=True, slots=True)
class KeyPart:
    """Part `number` of the key of `origin`, and the columns that show it. The key of a union is the branch and the key of the
    row there, that of a top-n the rank.
    """

    origin: Scan | Index | Aggregation | Union | Top
    number: int
    columns: frozenset[int] = frozenset()


def row_key(relation: Relation) -> tuple[KeyPart, ...]:
    match relation:
        case Scan(table=table):
            return tuple(KeyPart(relation, n, frozenset((table.position(name),))) for n, name in enumerate(table.key))
        case Index(key=key):
            return tuple(KeyPart(relation, n, frozenset((n,))) for n in range(len(key)))
        case Aggregation(grouping=grouping):
            return tuple(KeyPart(relation, n, frozenset((n,))) for n in range(len(grouping.groups)))
        case Union():
            return KeyPart(relation, 0), KeyPart(relation, 1)
        case Top():
            return (KeyPart(relation, 0),)
        case Join(shown_sides=sides, kind=kind):
            lookups, starts = looked_up(relation), starts_of(relation.sides)
            # of a full join no columns: its rows that lack one side may show what those that lack the other do
            return tuple(
                replace(part, columns=frozenset(start + at for at in part.columns if kind != "full"))
                for number, (side, start) in enumerate(zip(sides, starts, strict=False))
                if number not in lookups
                for part in row_key(side)
            )
        case Project(input=below, outputs=outputs):
            shown = [over_columns(output.expression, below) for output in outputs]
            moved = [(at, one.position) for at, one in enumerate(shown) if isinstance(one, ColumnRef)]
            return tuple(
                replace(part, columns=frozenset(at for at, position in moved if position in part.columns))
                for part in row_key(below)
            )
        case RowsOfGroups(input=below):  # its columns are those of the rows that were grouped
            return tuple(replace(part, columns=frozenset()) for part in row_key(below))
    return row_key(relation.input)


def has_row_key(relation: Relation, expressions: Iterable[Expression]) -> bool:
    """Whether the whole row key is among expressions over a relation: no two rows agree in them then."""
    plain = (over_columns(one, relation) for one in expressions)
    columns = {one.position for one in plain if isinstance(one, ColumnRef)}
    return not any(part.columns.isdisjoint(columns) for part in row_key(relation))


def root_of(relation: Relation) -> Relation:
    """The relation at or below that determines the row key; σ, π and a view do not change it."""
    while isinstance(relation, Select | Project | ViewRows):
        relation = relation.input
    return relation


def looked_up(join: Join) -> frozenset[int]:
    """The sides that are looked up by their row key: never all, and none whose rows are in the result without a match.

    A table or a γ can be. A join is not, even where the join key has its whole key: stored entries are laid out so.
    """
    preserved = {"inner": 0, "full": len(join.sides)}.get(join.kind, 1)
    found = [
        number
        for number, (side, key) in enumerate(zip(join.sides, join.keys, strict=True))
        if number >= preserved and has_row_key(side, key) and isinstance(root := root_of(side), Scan | Aggregation)
        if isinstance(root, Aggregation) or root.is_lookup
    ]
    return frozenset(found if len(found) < len(join.sides) else found[1:])


def key_sides(join: Join) -> tuple[Relation, ...]:
    """The sides whose row keys make up that of the result."""
    lookups = looked_up(join)
    return tuple(side for number, side in enumerate(join.shown_sides) if number not in lookups)


def united_key(branches: Sequence[Sequence[SqlType]]) -> tuple[list[SqlType], list[list[int]]]:
    """The key of a union whose branches have keys of these types, and where the parts of each branch are in it.

    The number of the branch is first; the others are shared by parts of one type, and NULL in branches that lack them.
    """
    types: list[SqlType] = [INT]
    indexes: list[list[int]] = []
    for parts in branches:
        own: list[int] = []
        for part in parts:
            free = (index for index, known in enumerate(types) if index and index not in own and known == part)
            own.append(next(free, len(types)))
            if own[-1] == len(types):
                types.append(part)
        indexes.append(own)
    return types, indexes


def can_regroup(groups: Sequence[Expression], finer: Sequence[Expression]) -> bool:
    """Whether each of `groups` is a function of `finer`."""
    known = frozenset(spell(one) for one in finer if one.type != DOUBLE)
    return all(_is_made_of(one, known) for one in groups)


def regrouped(group: Expression, finer: Sequence[Expression]) -> Expression:
    """The group as an expression over the key of the `finer` γ."""
    indexes = {spell(one): index for index, one in enumerate(finer)}

    def over_key(part: Expression) -> Expression | None:
        index = indexes.get(spell(part))
        if index is None and isinstance(part, ColumnRef):
            raise InvariantBroken(f"{group.text} cannot be made of {', '.join(one.text for one in finer)}")
        return None if index is None else ColumnRef(index, part.text, part.type, part.nullable)

    return rewrite(group, over_key)


def _is_made_of(expression: Expression, known: frozenset[str]) -> bool:
    if spell(expression) in known:
        return True
    return not isinstance(expression, ColumnRef) and all(_is_made_of(part, known) for part in children(expression))
