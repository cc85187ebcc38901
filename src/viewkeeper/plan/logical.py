"""Logical plan: the DAG of paper 3, figure 3, for the views of one store.

In: nothing; `build` makes it. Out: frozen nodes that name their inputs by place. Always: an input stands before the
node that reads it, every node is read by another or is a view, and expressions speak of their input's columns.

Base tables, REVERSE-JOINs and views are the paper's table vertices, all else its expression vertices; `tables` says which
further tables an expression keeps. `stored` is the table of the stored node that a part belongs to: parts with one table
are one, whichever view they stand under.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from viewkeeper.errors import InvariantBroken
from viewkeeper.model.schema import Column, TableId, TableSchema
from viewkeeper.sql.expressions import Expression, FoldRef
from viewkeeper.sql.relations import Grouping, Ordering, Output


@dataclass(frozen=True, slots=True)
class Base:
    """The rows of a base table, as its log tells them."""

    table: TableSchema


BEFORE_IMAGES, STORED, VERSIONS = "before-images", "stored", "versions"


@dataclass(frozen=True, slots=True)
class Delta:
    """δ: old row → new row. `old_rows` says where the old row is found.

    `before-images`: in the log. `stored`: in the DELTA of the base table. `versions`: behind γ, ⋈ and top-n, in the version
    of their own records below the epoch.
    """

    input: int
    old_rows: str


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
    stored: int | None = None


@dataclass(frozen=True, slots=True)
class Project:
    """π: the columns shown."""

    input: int
    outputs: tuple[Output, ...]
    stored: int | None = None


@dataclass(frozen=True, slots=True)
class ReverseJoin:
    """The table behind a join: the rows of all sides under (join key, side, row key).

    `keys[i]` are expressions over the first `widths[i]` columns of `inputs[i]`; what stands behind them came with an ALTER
    TABLE after the view was written, which knows nothing of it.
    """

    inputs: tuple[int, ...]
    keys: tuple[tuple[Expression, ...], ...]
    widths: tuple[int, ...]
    stored: int | None = None


@dataclass(frozen=True, slots=True)
class Join:
    """⋈: what matches in a REVERSE-JOIN, its `input`. `kind` and `residual` are those of `relations.Join`."""

    input: int
    kind: str
    residual: Expression | None
    stored: int | None = None

    @property
    def keeps_first(self) -> bool:
        """Whether it gives rows of the first side alone."""
        return self.kind in ("semi", "anti")


@dataclass(frozen=True, slots=True)
class Union:
    """∪ of bags: the rows of all inputs."""

    inputs: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Top:
    """Top-n: the first `limit` rows by `order`."""

    input: int
    order: tuple[Ordering, ...]
    limit: int
    stored: int | None = None


@dataclass(frozen=True, slots=True)
class Index:
    """Rows under (indexed columns, base key); positions are those of the base table."""

    input: int
    columns: tuple[int, ...]
    covered: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class View:
    """What its input says is stored as the table of the view, which further views may read."""

    input: int
    id: TableId
    name: str
    stored: int | None = None


LogicalNode = Base | Delta | Select | Fold | Project | ReverseJoin | Join | Union | Top | Index | View


@dataclass(frozen=True, slots=True)
class LogicalPlan:
    nodes: tuple[LogicalNode, ...]

    def inputs(self, place: int) -> tuple[int, ...]:
        """The inputs of a node, in order; the two sides of a self-join may be one input."""
        return inputs_of(self.nodes[place])

    def readers(self, place: int) -> tuple[int, ...]:
        return tuple(other for other in range(len(self.nodes)) if place in self.inputs(other))

    def bases_of(self, place: int) -> tuple[TableSchema, ...]:
        """The base tables below a node, each once, in the order in which they stand."""
        node = self.nodes[place]
        if isinstance(node, Base):
            return (node.table,)
        found = {table.id: table for source in self.inputs(place) for table in self.bases_of(source)}
        return tuple(found.values())

    def base_of(self, place: int) -> TableSchema:
        """The one base table below a node."""
        bases = self.bases_of(place)
        if len(bases) != 1:
            raise InvariantBroken(f"node r{place} has {len(bases)} base tables")
        return bases[0]

    def reverse_join(self, place: int) -> ReverseJoin:
        """The REVERSE-JOIN that the ⋈ at `place` reads."""
        table = self.nodes[self.inputs(place)[0]]
        if not isinstance(table, ReverseJoin):
            raise InvariantBroken(f"the join r{place} reads no REVERSE-JOIN")
        return table


def inputs_of(node: LogicalNode) -> tuple[int, ...]:
    match node:
        case Base():
            return ()
        case ReverseJoin(inputs=inputs) | Union(inputs=inputs):
            return inputs
    return (node.input,)


def with_inputs(node: LogicalNode, inputs: tuple[int, ...]) -> LogicalNode:
    """The same node over other inputs, as many as it has."""
    match node:
        case Base():
            return node
        case ReverseJoin() | Union():
            return replace(node, inputs=inputs)
    return replace(node, input=inputs[0])


def join_plans(plans: tuple[LogicalPlan, ...]) -> LogicalPlan:
    """Several plans side by side, nothing shared yet."""
    nodes: list[LogicalNode] = []
    for plan in plans:
        start = len(nodes)
        nodes += [with_inputs(node, tuple(source + start for source in inputs_of(node))) for node in plan.nodes]
    return LogicalPlan(tuple(nodes))


def columns_at(plan: LogicalPlan, place: int) -> tuple[Column, ...]:
    """The columns that the node at `place` gives; a REVERSE-JOIN gives those of all its sides."""
    match plan.nodes[place]:
        case Base(table=table):
            return table.columns
        case Fold(grouping=grouping):
            parts = (*grouping.groups, *grouping.aggregates)
            return tuple(Column(part.text, part.type, part.nullable or part.fallible) for part in parts)
        case Project(outputs=outputs):
            return tuple(output.column for output in outputs)
        case ReverseJoin(inputs=inputs, widths=widths):
            sides = zip(inputs, widths, strict=True)
            return tuple(column for source, width in sides for column in columns_at(plan, source)[:width])
        case Join(input=source, kind=kind) as join:
            width = plan.reverse_join(place).widths[0]
            return _matched(columns_at(plan, source), width, kind, keeps_first=join.keeps_first)
        case Union(inputs=inputs):
            together = zip(*(columns_at(plan, source) for source in inputs), strict=False)
            return tuple(Column(parts[0].name, parts[0].type, any(p.nullable for p in parts)) for parts in together)
        case Index(columns=columns, covered=covered):
            table = plan.base_of(place)
            key = tuple(table.position(name) for name in table.key)
            order = (*columns, *(position for position in key if position not in columns), *covered)
            return tuple(table.columns[position] for position in order)
        case node:
            return columns_at(plan, node.input)


def _matched(columns: tuple[Column, ...], width: int, kind: str, *, keeps_first: bool) -> tuple[Column, ...]:
    """What a join gives of the columns of all sides, the first of which has `width`."""
    first, others = columns[:width], columns[width:]
    if keeps_first:
        return first
    left = tuple(replace(column, nullable=True) for column in first) if kind == "full" else first
    return left + (others if kind == "inner" else tuple(replace(column, nullable=True) for column in others))


def fold_position(plan: LogicalPlan, source: int, part: FoldRef) -> int:
    """Which column of the γ at or below `source` a group or an aggregate is; between them no column moves."""
    node = plan.nodes[source]
    while isinstance(node, Select | Delta | Top):
        node = plan.nodes[node.input]
    if not isinstance(node, Fold):
        raise InvariantBroken(f"{part.text} speaks of groups, but r{source} is no γ")
    if part.source == "group":
        return part.position
    return len(node.grouping.groups) + node.grouping.aggregates.index(part.of)  # views order them differently
