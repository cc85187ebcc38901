"""Validation of a relation.

In: a relation. Out: nothing, or `InvariantBroken`. Always: it is the first and the last step of the optimizer, so that
a rule that breaks a plan is caught before the plan is used.
"""

from __future__ import annotations

from collections.abc import Sequence

from viewkeeper.errors import InvariantBroken
from viewkeeper.model import types
from viewkeeper.model.schema import Column
from viewkeeper.sql.expressions import AggregationRef, ColumnRef, Expression, walk
from viewkeeper.sql.positions import aggregation_below
from viewkeeper.sql.relations import Join, Relation, Select, Top, Union, expressions_of, inputs_of, walk_relations


def validate(relation: Relation) -> None:
    """Raise InvariantBroken unless all expressions fit what they refer to."""
    for part in walk_relations(relation):
        if isinstance(part, Join):
            _check_join(part)
        elif expressions := expressions_of(part):
            _check(expressions, inputs_of(part)[0])
        predicate = part.predicate if isinstance(part, Select) else part.residual if isinstance(part, Join) else None
        if predicate is not None and predicate.type != types.BOOLEAN:
            raise InvariantBroken(f"the condition {predicate.text} is {predicate.type}")
        if isinstance(part, Top) and part.limit < 0:
            raise InvariantBroken(f"the limit is {part.limit}")
        if isinstance(part, Union) and len({tuple(c.type for c in one.columns) for one in part.inputs}) > 1:
            raise InvariantBroken("the branches of a union have different columns")


def _check_join(join: Join) -> None:
    if not 1 < len(join.sides) == len(join.keys):
        raise InvariantBroken("a join does not have a key for each of at least two sides")
    if len({tuple(part.type for part in key) for key in join.keys}) > 1:
        raise InvariantBroken("the join keys have different types")
    for side, key in zip(join.sides, join.keys, strict=True):
        _check(key, side)
    if join.residual is not None:
        _check_columns(join.residual, [column for side in join.sides for column in side.columns])


def _check(expressions: Sequence[Expression], source: Relation) -> None:
    """Expressions over `source`; directly above γ they may refer to groups and aggregates."""
    columns, aggregation = source.columns, aggregation_below(source)
    for expression in expressions:
        _check_columns(expression, columns)
    for part in (part for expression in expressions for part in walk(expression)):
        if isinstance(part, AggregationRef):
            grouping = aggregation and aggregation.grouping
            told = grouping and (grouping.groups if part.source == "group" else grouping.aggregates)
            if not told or part.of not in told[part.position : part.position + 1]:
                raise InvariantBroken(f"{part.text} is no group or aggregate of what it speaks of")


def _check_columns(expression: Expression, given: Sequence[Column]) -> None:
    for part in walk(expression):
        if isinstance(part, ColumnRef) and (part.position >= len(given) or given[part.position].type != part.type):
            raise InvariantBroken(f"{part.text} is not a column of its input")
