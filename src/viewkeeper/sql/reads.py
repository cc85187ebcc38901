"""Reads: what a query needs of each table that it reads.

In: a bound relation. Out: for each `Scan`, in the order of the walk, the columns that anything refers to and the
conditions that a row must meet to count. Always: skipping other columns, and rows that fail a condition, changes no
result.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from viewkeeper.sql.expressions import ColumnRef, Expression, columns_of, conjuncts
from viewkeeper.sql.positions import relocate
from viewkeeper.sql.relations import Aggregation, Join, Project, Relation, Scan, Select, Union, expressions_of


@dataclass(frozen=True, slots=True)
class Read:
    """`columns` are positions of the table, and `conditions` refer to them."""

    scan: Scan
    columns: tuple[int, ...]
    conditions: tuple[Expression, ...]


def reads_of(relation: Relation) -> list[Read]:
    return list(_reads(relation, frozenset(range(len(relation.columns))), ()))


def _reads(relation: Relation, needed: frozenset[int], conditions: Sequence[Expression]) -> Iterator[Read]:
    own = frozenset(columns_of(*expressions_of(relation)))
    match relation:
        case Scan():
            yield Read(relation, tuple(sorted(needed)), tuple(conditions))
        case Select(input=source, predicate=predicate):
            yield from _reads(source, needed | own, (*conditions, *conjuncts(predicate)))
        case Project(input=source, outputs=outputs):
            shown = columns_of(*(outputs[place].expression for place in needed))
            yield from _reads(source, frozenset(shown), _below(relation, conditions))
        case Aggregation(input=source):
            yield from _reads(source, own, ())
        case Join():
            yield from _sides(relation, needed)
        case Union(inputs=inputs):
            for one in inputs:
                yield from _reads(one, needed, conditions)
        case _:
            # the first rows are the first of all rows: a condition above cannot be applied before
            yield from _reads(relation.input, needed | own, ())


def _below(project: Project, conditions: Sequence[Expression]) -> list[Expression]:
    """The conditions that refer only to columns that π passes on unchanged."""
    moved = {
        place: output.expression.position
        for place, output in enumerate(project.outputs)
        if isinstance(output.expression, ColumnRef)
    }
    return [relocate(one, moved.__getitem__) for one in conditions if set(columns_of(one)) <= set(moved)]


def _sides(join: Join, needed: frozenset[int]) -> Iterator[Read]:
    needed |= frozenset(columns_of(join.residual)) if join.residual is not None else frozenset()
    start = 0
    for side, keys in zip(join.sides, join.keys, strict=True):
        own = frozenset(place for place in range(len(side.columns)) if place + start in needed)
        yield from _reads(side, own | frozenset(columns_of(*keys)), ())
        start += len(side.columns)
