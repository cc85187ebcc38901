"""Logical plan: the DAG of paper 3, figure 3, for the views of one store.

In: nothing; `build` makes it. Out: frozen nodes that name their inputs by place. Always: an input stands before the
node that reads it, every node is read by another or is a view, and expressions speak of their input's columns.

A zone is the set of nodes that share a row key (paper 3, section on zones): between them a row does not move; a border
between zones is a shuffle.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from viewkeeper.errors import InvariantBroken
from viewkeeper.model import types
from viewkeeper.model.schema import Column, TableId, TableSchema
from viewkeeper.sql.expressions import ColumnRef, Expression, FoldRef, walk
from viewkeeper.sql.relations import Grouping, Output


@dataclass(frozen=True, slots=True)
class Base:
    """The rows of a base table, as its log tells them."""

    table: TableSchema


@dataclass(frozen=True, slots=True)
class Delta:
    """δ: old row → new row. Needs no state of its own where the log carries before-images."""

    input: int
    before_images: bool


@dataclass(frozen=True, slots=True)
class Select:
    """σ: the rows for which the predicate is true; behind γ it is HAVING."""

    input: int
    predicate: Expression


@dataclass(frozen=True, slots=True)
class Fold:
    """γ: one row for each group."""

    input: int
    grouping: Grouping


@dataclass(frozen=True, slots=True)
class Project:
    """π: the columns shown."""

    input: int
    outputs: tuple[Output, ...]


@dataclass(frozen=True, slots=True)
class Index:
    """Rows under (indexed columns, base key); positions are those of the base table."""

    input: int
    columns: tuple[int, ...]
    covered: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class View:
    """The sink: what its input says is stored as the table of the view."""

    input: int
    id: TableId
    name: str


LogicalNode = Base | Delta | Select | Fold | Project | Index | View


@dataclass(frozen=True, slots=True)
class LogicalPlan:
    nodes: tuple[LogicalNode, ...]

    def inputs(self, place: int) -> tuple[int, ...]:
        """The inputs of a node; a join will have two."""
        node = self.nodes[place]
        return () if isinstance(node, Base) else (node.input,)

    def readers(self, place: int) -> tuple[int, ...]:
        return tuple(other for other in range(len(self.nodes)) if place in self.inputs(other))

    def base_of(self, place: int) -> TableSchema:
        node = self.nodes[place]
        return node.table if isinstance(node, Base) else self.base_of(node.input)


def with_input(node: LogicalNode, place: int) -> LogicalNode:
    return node if isinstance(node, Base) else replace(node, input=place)


def join_plans(plans: tuple[LogicalPlan, ...]) -> LogicalPlan:
    """Several plans side by side, nothing shared yet."""
    nodes: list[LogicalNode] = []
    for plan in plans:
        start = len(nodes)
        nodes += [node if isinstance(node, Base) else with_input(node, node.input + start) for node in plan.nodes]
    return LogicalPlan(tuple(nodes))


def columns_at(plan: LogicalPlan, place: int) -> tuple[Column, ...]:
    """The columns that the node at `place` gives."""
    match plan.nodes[place]:
        case Base(table=table):
            return table.columns
        case Fold(grouping=grouping):
            parts = (*grouping.groups, *grouping.aggregates)
            return tuple(Column(part.text, part.type, part.nullable) for part in parts)
        case Project(outputs=outputs):
            return tuple(Column(out.name, out.expression.type, out.expression.nullable) for out in outputs)
        case Index(columns=columns, covered=covered):
            table = plan.base_of(place)
            key = tuple(table.position(name) for name in table.key)
            order = (*columns, *(position for position in key if position not in columns), *covered)
            return tuple(table.columns[position] for position in order)
        case node:
            return columns_at(plan, node.input)


def zone_at(plan: LogicalPlan, place: int) -> str:
    """The row key of the zone that the node belongs to."""
    match plan.nodes[place]:
        case Base(table=table):
            return f"{table.name}({', '.join(table.key)})"
        case Fold(grouping=grouping):
            return f"{plan.base_of(place).name} by ({', '.join(group.text for group in grouping.groups)})"
        case Index(columns=columns):
            table = plan.base_of(place)
            names = [table.columns[position].name for position in columns]
            return f"{table.name} by ({', '.join([*names, *(name for name in table.key if name not in names)])})"
        case node:
            return zone_at(plan, node.input)


def validate_plan(plan: LogicalPlan) -> None:
    """Raise InvariantBroken unless the plan is one: the first and the last step of the optimizer."""
    for place, node in enumerate(plan.nodes):
        for source in plan.inputs(place):
            if not 0 <= source < place:
                raise InvariantBroken(f"node r{place} reads r{source}, which does not stand before it")
            if isinstance(plan.nodes[source], View):
                raise InvariantBroken(f"node r{place} reads the view r{source}")
        if not isinstance(node, View) and not plan.readers(place):
            raise InvariantBroken(f"nobody reads node r{place}")
        for expression in _expressions(node):
            _check_expression(plan, place, expression)
        if isinstance(node, Select) and node.predicate.type != types.BOOLEAN:
            raise InvariantBroken(f"the predicate of r{place} is {node.predicate.type}")


def _expressions(node: LogicalNode) -> tuple[Expression, ...]:
    match node:
        case Select(predicate=predicate):
            return (predicate,)
        case Fold(grouping=grouping):
            return (*grouping.groups, *grouping.aggregates)
        case Project(outputs=outputs):
            return tuple(output.expression for output in outputs)
    return ()


def _check_expression(plan: LogicalPlan, place: int, expression: Expression) -> None:
    given = columns_at(plan, plan.inputs(place)[0])
    for part in walk(expression):
        position = _position(plan, place, part)
        if position is None:
            continue
        if position >= len(given) or given[position].type != part.type:
            raise InvariantBroken(f"{part.text} in r{place} is not a column of its input")


def _position(plan: LogicalPlan, place: int, part: Expression) -> int | None:
    """Which column of the input `part` speaks of."""
    if isinstance(part, ColumnRef):
        return part.position
    if not isinstance(part, FoldRef):
        return None
    source = plan.nodes[plan.inputs(place)[0]]
    while isinstance(source, Select):
        source = plan.nodes[source.input]
    if not isinstance(source, Fold):
        raise InvariantBroken(f"{part.text} in r{place} speaks of groups, but its input is no γ")
    return part.position + (len(source.grouping.groups) if part.source == "aggregate" else 0)
