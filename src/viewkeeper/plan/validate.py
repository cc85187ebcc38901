"""Whether a plan is one.

In: a plan. Out: nothing, or `InvariantBroken`. Always: it is the first and the last step of the optimizer, so that a rule
that breaks a plan is caught before anything is made of it.
"""

from __future__ import annotations

from viewkeeper.errors import InvariantBroken
from viewkeeper.model import types
from viewkeeper.model.schema import Column
from viewkeeper.plan.logical import (
    Fold,
    Join,
    LogicalPlan,
    Project,
    ReverseJoin,
    Select,
    Top,
    Union,
    View,
    columns_at,
    fold_position,
)
from viewkeeper.sql.expressions import ColumnRef, Expression, FoldRef, walk


def validate_plan(plan: LogicalPlan) -> None:
    """Raise InvariantBroken unless inputs come first, every node is needed, and expressions fit their input."""
    for place, node in enumerate(plan.nodes):
        for source in plan.inputs(place):
            if not 0 <= source < place:
                raise InvariantBroken(f"node r{place} reads r{source}, which does not stand before it")
            if isinstance(plan.nodes[source], ReverseJoin) and not isinstance(node, Join):
                raise InvariantBroken(f"node r{place} reads the REVERSE-JOIN r{source}, but is no join")
        _check_node(plan, place)
    read = {source for place in range(len(plan.nodes)) for source in plan.inputs(place)}
    for place, node in enumerate(plan.nodes):
        if not isinstance(node, View) and place not in read:
            raise InvariantBroken(f"nobody reads node r{place}")


def _check_node(plan: LogicalPlan, place: int) -> None:
    match plan.nodes[place]:
        case Select(input=source, predicate=predicate):
            _check_condition(plan, place, source, predicate)
        case Fold(input=source, grouping=grouping):
            _check_all(plan, place, source, (*grouping.groups, *grouping.aggregates))
        case Project(input=source, outputs=outputs):
            _check_all(plan, place, source, tuple(output.expression for output in outputs))
        case Top(input=source, order=order, limit=limit):
            _check_all(plan, place, source, tuple(part.expression for part in order))
            if limit < 0:
                raise InvariantBroken(f"the limit of r{place} is {limit}")
        case ReverseJoin() as table:
            _check_sides(plan, place, table)
        case Join(input=source, residual=residual):
            plan.reverse_join(place)
            if residual is not None:
                _check_condition(plan, place, source, residual)
        case Union(inputs=inputs):
            _check_branches(plan, place, inputs)


def _check_sides(plan: LogicalPlan, place: int, table: ReverseJoin) -> None:
    if not 1 < len(table.inputs) == len(table.keys) == len(table.widths):
        raise InvariantBroken(f"the REVERSE-JOIN r{place} does not have a key for each of at least two sides")
    if len({tuple(part.type for part in key) for key in table.keys}) > 1:
        raise InvariantBroken(f"the join keys of r{place} have different types")
    for source, key, width in zip(table.inputs, table.keys, table.widths, strict=True):
        if width > len(columns_at(plan, source)):
            raise InvariantBroken(f"r{place} wants {width} columns of r{source}, which has fewer")
        _check_all(plan, place, source, key)


def _check_branches(plan: LogicalPlan, place: int, inputs: tuple[int, ...]) -> None:
    wanted = [column.type for column in columns_at(plan, place)]
    for source in inputs:
        if [column.type for column in columns_at(plan, source)][: len(wanted)] != wanted:
            raise InvariantBroken(f"the branches of r{place} have different columns")


def _check_condition(plan: LogicalPlan, place: int, source: int, predicate: Expression) -> None:
    _check_all(plan, place, source, (predicate,))
    if predicate.type != types.BOOLEAN:
        raise InvariantBroken(f"the predicate of r{place} is {predicate.type}")


def _check_all(plan: LogicalPlan, place: int, source: int, expressions: tuple[Expression, ...]) -> None:
    given = columns_at(plan, source)
    for expression in expressions:
        for part in walk(expression):
            if isinstance(part, ColumnRef | FoldRef):
                _check_reference(part, _position(plan, source, part), given, place)


def _check_reference(part: Expression, position: int, given: tuple[Column, ...], place: int) -> None:
    if position >= len(given) or given[position].type != part.type:
        raise InvariantBroken(f"{part.text} in r{place} is not a column of its input")


def _position(plan: LogicalPlan, source: int, part: ColumnRef | FoldRef) -> int:
    """Which column of the node at `source` `part` speaks of."""
    if isinstance(part, ColumnRef):
        return part.position
    return fold_position(plan, source, part)
