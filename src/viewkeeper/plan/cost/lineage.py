"""Lineage: what a node's relation tells about the rows that reach it.

In: relations. Out: the conditions of each edge, which columns are a row key, and which base tables can change a column of
a row that stays. Always: an update is taken to change every column of its row that is not in the key.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from viewkeeper.plan.canonical import spell
from viewkeeper.plan.lookups import looked_up
from viewkeeper.sql.expressions import AggregationRef, ColumnRef, Expression, columns_of, conjuncts
from viewkeeper.sql.positions import over_columns
from viewkeeper.sql.relations import (
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
    inputs_of,
    starts_of,
    tables_of,
)

Tables = frozenset[int]
NONE: Tables = frozenset()


@dataclass(frozen=True, slots=True)
class Condition:
    """One condition of a σ, and the base tables whose updates can change whether a row passes."""

    expression: Expression
    changed_by: Tables


@dataclass(frozen=True, slots=True)
class Path:
    """What is between a node and one of its sources. `is_direct`: no π is below a condition, so that positions are those of
    the source; `is_projected`: one is somewhere.
    """

    conditions: tuple[Condition, ...] = ()
    is_direct: bool = True
    is_projected: bool = False

    @property
    def signature(self) -> tuple[str, ...] | None:
        """The conditions, to be compared with those of other edges over the same source; None if they cannot be."""
        return tuple(sorted(spell(one.expression) for one in self.conditions)) if self.is_direct else None


def paths_of(relation: Relation) -> tuple[tuple[Relation, tuple[Path, ...]], ...]:
    """Each input of a node that keeps `relation`, with the paths to its sources in the order of the node's edges."""
    match relation:
        case Join(sides=sides):
            return tuple((side, tuple(_paths(side))) for side in sides)
        case Aggregation(input=below) | Top(input=below) | Index(input=below):
            return ((below, tuple(_paths(below))),)
    return ((relation, tuple(_paths(relation))),)


def _paths(relation: Relation) -> Iterable[Path]:
    match relation:
        case Select(input=below, predicate=predicate):
            plain = over_columns(predicate, below)
            found = tuple(Condition(part, changed_by(below, part)) for part in conjuncts(plain))
            return [
                Path((*one.conditions, *found), one.is_direct and not one.is_projected, one.is_projected)
                for one in _paths(below)
            ]
        case Project(input=below):
            return [replace(one, is_projected=True) for one in _paths(below)]
        case Union(inputs=inputs):
            return [one for part in inputs for one in _paths(part)]
    return [Path()]


def changed_by(relation: Relation, *expressions: Expression) -> Tables:
    """The base tables whose updates can change one of the expressions over a row of `relation` that stays."""
    plain = [over_columns(one, relation) for one in expressions]
    return NONE.union(*(_column_changed_by(relation, position) for position in columns_of(*plain)))


def _column_changed_by(relation: Relation, position: int) -> Tables:
    match relation:
        case Scan(table=table):
            return NONE if table.columns[position].name in table.key else frozenset((table.id,))
        case Project(input=below, outputs=outputs):
            return changed_by(below, outputs[position].expression)
        case Aggregation(grouping=grouping):
            return NONE if position < len(grouping.groups) else _bases(relation)
        case Join(sides=sides):
            number, lookups = sum(start <= position for start in starts_of(sides)) - 1, looked_up(relation)
            found = _column_changed_by(sides[number], position - starts_of(sides)[number])
            if number in lookups:  # a row that refers to another partner stays
                others = [place for place in range(len(sides)) if place not in lookups]
                found = found.union(*(changed_by(sides[place], *relation.keys[place]) for place in others))
            return found
        case Union(inputs=inputs):
            return NONE.union(*(_column_changed_by(one, position) for one in inputs))
        case Top():
            return _bases(relation)
        case RowsOfGroups(rows=rows):
            return _column_changed_by(rows, position)
    return _column_changed_by(inputs_of(relation)[0], position)


def _bases(relation: Relation) -> Tables:
    return frozenset(table.id for table in tables_of(relation))


def is_unique(relation: Relation, expressions: Iterable[Expression]) -> bool:
    """Whether no two rows of `relation` agree in the expressions, because these contain its row key."""
    key = _key(relation)
    plain = (over_columns(one, relation) for one in expressions)
    return key is not None and key <= {one.position for one in plain if isinstance(one, ColumnRef)}


def _key(relation: Relation) -> frozenset[int] | None:
    """The positions of the row key; None where not all of it is among the columns."""
    match relation:
        case Scan(table=table):
            return frozenset(table.position(name) for name in table.key)
        case Aggregation(grouping=grouping):
            return frozenset(range(len(grouping.groups)))
        case Project(input=below, outputs=outputs):
            return _shown_key(below, [output.expression for output in outputs])
        case Join(sides=sides) if not relation.keeps_first:
            keys = [_key(side) for side in sides]
            starts = starts_of(sides)
            whole = [{start + part for part in key} for start, key in zip(starts, keys, strict=True) if key is not None]
            return frozenset().union(*whole) if len(whole) == len(sides) else None
        case Union() | Index() | RowsOfGroups():
            return None
    return _key(inputs_of(relation)[0])


def _shown_key(below: Relation, shown: list[Expression]) -> frozenset[int] | None:
    key = _key(below)
    plain = [over_columns(one, below) if isinstance(one, AggregationRef) else one for one in shown]
    places = {one.position: place for place, one in enumerate(plain) if isinstance(one, ColumnRef)}
    return frozenset(places[part] for part in key) if key is not None and key <= places.keys() else None
