"""Bound relations: the meaning of a query, as a tree of σ, π, γ, ⋈ and ∪ over tables.

In: nothing; the binder makes them. Out: frozen trees. Always: an expression refers to its input's columns by position
(`ColumnRef`), and directly above γ to its groups and aggregates (`AggregationRef`); equal trees are equal values.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import accumulate

from viewkeeper.algebra.expressions import Aggregate, AggregationRef, Call, Expression, columns_of, walk
from viewkeeper.model.schema import Column, TableId, TableSchema
from viewkeeper.model.types import INT


@dataclass(frozen=True, slots=True)
class Output:
    name: str
    expression: Expression

    @property
    def column(self) -> Column:
        # A value of a group that fails reads as NULL; a row whose value fails is absent.
        fails = self.expression.fallible and any(isinstance(part, AggregationRef) for part in walk(self.expression))
        return Column(self.name, self.expression.type, self.expression.nullable or fails)


@dataclass(frozen=True, slots=True)
class Grouping:
    """γ: group expressions in GROUP BY order (none: exactly one group), and the distinct aggregates."""

    groups: tuple[Expression, ...]
    aggregates: tuple[Aggregate, ...]


@dataclass(frozen=True, slots=True)
class Scan:
    """The rows of a base table; of a view's records, where a SELECT reads them (`is_view`).

    `is_lookup`: whether a join may look it up by its key: not the records of ⋈, ∪ or top.
    """

    table: TableSchema
    is_view: bool = False
    is_lookup: bool = True

    @property
    def columns(self) -> tuple[Column, ...]:
        return self.table.columns


@dataclass(frozen=True, slots=True)
class Select:
    """σ: the rows for which the predicate is true; above γ it is HAVING."""

    input: Relation
    predicate: Expression

    @property
    def columns(self) -> tuple[Column, ...]:
        return self.input.columns


@dataclass(frozen=True, slots=True)
class Aggregation:
    """γ: one row for each group; columns are the groups, then the aggregates. DISTINCT is a γ without aggregates."""

    input: Relation
    grouping: Grouping

    @property
    def columns(self) -> tuple[Column, ...]:
        parts = (*self.grouping.groups, *self.grouping.aggregates)
        return tuple(Column(part.text, part.type, part.nullable or part.fallible) for part in parts)


@dataclass(frozen=True, slots=True)
class Project:
    """π: the output columns."""

    input: Relation
    outputs: tuple[Output, ...]

    @property
    def columns(self) -> tuple[Column, ...]:
        return tuple(output.column for output in self.outputs)


# The sides into which a condition of ON may go, and those into which a condition above the join may go.
ON_SIDES: dict[str, tuple[int, ...]] = {"left": (1,), "right": (0,), "full": (), "semi": (0, 1), "anti": (1,)}
WHERE_SIDES: dict[str, tuple[int, ...]] = {"left": (0,), "right": (1,), "full": (), "semi": (0,), "anti": (0,)}


@dataclass(frozen=True, slots=True)
class Join:
    """⋈ on equal keys: `keys[i]` are expressions over the columns of `sides[i]`, of equal types side by side.

    `inner` may have more than two sides, all on the same key, and has no `residual`: further conditions are a σ above it;
    without a key it is a product. `semi` returns the rows of the first side that have a match, `anti` those that have
    none, with only the first side's columns. `residual`: a further condition for a match, over the columns of both sides.
    A NULL in a key matches nothing. `labels` name the sides of a product in messages.
    """

    kind: str
    sides: tuple[Relation, ...]
    keys: tuple[tuple[Expression, ...], ...]
    residual: Expression | None = None
    labels: tuple[str, ...] = field(default=(), compare=False)

    @property
    def keeps_first(self) -> bool:
        """Whether it returns rows of the first side only."""
        return self.kind in ("semi", "anti")

    @property
    def shown_sides(self) -> tuple[Relation, ...]:
        """The sides whose columns it returns."""
        return self.sides[:1] if self.keeps_first else self.sides

    @property
    def columns(self) -> tuple[Column, ...]:
        first, *others = self.sides
        if self.keeps_first:
            return first.columns
        right = [column for side in others for column in side.columns]
        return (
            *(map(_as_nullable, first.columns) if self.kind in ("right", "full") else first.columns),
            *(map(_as_nullable, right) if self.kind in ("left", "full") else right),
        )


@dataclass(frozen=True, slots=True)
class Union:
    """∪ of bags (UNION ALL): all inputs have equally many columns of the same types; names are the first one's."""

    inputs: tuple[Relation, ...]

    @property
    def columns(self) -> tuple[Column, ...]:
        together = zip(*(one.columns for one in self.inputs), strict=True)
        return tuple(Column(parts[0].name, parts[0].type, any(p.nullable for p in parts)) for parts in together)


@dataclass(frozen=True, slots=True)
class Ordering:
    expression: Expression
    descending: bool
    nulls_first: bool


@dataclass(frozen=True, slots=True)
class Top:
    """ORDER BY … LIMIT: the first `limit` rows; ties are ordered by key."""

    input: Relation
    order: tuple[Ordering, ...]
    limit: int

    @property
    def columns(self) -> tuple[Column, ...]:
        return self.input.columns


@dataclass(frozen=True, slots=True)
class Index:
    """INDEX: the rows of a table under the columns at `indexed`, with those at `covered`."""

    input: Scan
    indexed: tuple[int, ...]
    covered: tuple[int, ...]

    @property
    def key(self) -> tuple[int, ...]:
        """The positions of its row key: the indexed columns, then the rest of the table's key."""
        table = self.input.table
        base = (table.position(name) for name in table.key)
        return (*self.indexed, *(position for position in base if position not in self.indexed))

    @property
    def columns(self) -> tuple[Column, ...]:
        return tuple(self.input.columns[position] for position in (*self.key, *self.covered))


@dataclass(frozen=True, slots=True)
class ViewRows:
    """The rows of the view `view`, whose text means `input`: its records are read, not computed again."""

    view: TableId
    input: Relation

    @property
    def columns(self) -> tuple[Column, ...]:
        return self.input.columns


@dataclass(frozen=True, slots=True)
class RowsOfGroups:
    """The rows that a γ groups, read from its records by a γ of fewer groups. `input` is the first γ, or a π over it."""

    input: Aggregation | Project

    @property
    def rows(self) -> Relation:
        found = self.input.input
        return found.input if isinstance(found, Aggregation) else found

    @property
    def columns(self) -> tuple[Column, ...]:
        return self.rows.columns


@dataclass(frozen=True, slots=True)
class Sorted:
    """ORDER BY, LIMIT and OFFSET of a SELECT that runs once, each of which may be absent; a view has `Top`."""

    input: Relation
    order: tuple[Ordering, ...]
    limit: int | None
    offset: int

    @property
    def columns(self) -> tuple[Column, ...]:
        return self.input.columns


@dataclass(frozen=True, slots=True)
class Ranked:
    """The first rows of an order, and their ranks from 1 as the last column: where a SELECT needs the key of a top-n."""

    input: Top

    @property
    def columns(self) -> tuple[Column, ...]:
        return (*self.input.columns, Column("rank", INT, nullable=False))


Relation = (
    Scan | Select | Aggregation | Project | Join | Union | Top | Index | ViewRows | RowsOfGroups | Sorted | Ranked
)


def inputs_of(relation: Relation) -> tuple[Relation, ...]:
    match relation:
        case Scan():
            return ()
        case Join(sides=sides):
            return sides
        case Union(inputs=inputs):
            return inputs
    return (relation.input,)


def walk_relations(relation: Relation) -> Iterator[Relation]:
    """The relation and everything below it, from the top down, left to right."""
    yield relation
    for part in inputs_of(relation):
        yield from walk_relations(part)


def expressions_of(relation: Relation) -> tuple[Expression, ...]:
    """The expressions of a relation itself, without those of its inputs."""
    match relation:
        case Select(predicate=predicate):
            return (predicate,)
        case Aggregation(grouping=grouping):
            return (*grouping.groups, *grouping.aggregates)
        case Project(outputs=outputs):
            return tuple(output.expression for output in outputs)
        case Join(keys=keys, residual=residual):
            return (*(part for side in keys for part in side), *(() if residual is None else (residual,)))
        case Top(order=order) | Sorted(order=order):
            return tuple(part.expression for part in order)
    return ()


def is_product(join: Join) -> bool:
    return join.kind == "inner" and not any(join.keys)


def starts_of(sides: Sequence[Relation]) -> list[int]:
    """For each side the position of its first column among the columns of all sides."""
    return list(accumulate((len(side.columns) for side in sides[:-1]), initial=0))


def sides_of(expression: Expression, sides: Sequence[Relation]) -> frozenset[int]:
    """The sides that an expression over their columns, side by side, refers to."""
    starts = starts_of(sides)
    return frozenset(sum(start <= position for start in starts) - 1 for position in columns_of(expression))


@dataclass(frozen=True, slots=True)
class Equality:
    """`left = right`, where each refers to sides of its own."""

    condition: Expression
    left: Expression
    right: Expression
    left_sides: frozenset[int]
    right_sides: frozenset[int]

    def by_side(self) -> dict[int, Expression]:
        """For an equality between two sides: the expression of each."""
        return {min(self.left_sides): self.left, min(self.right_sides): self.right}


def equality_of(condition: Expression, sides: Sequence[Relation]) -> Equality | None:
    """The condition as an equality that can be a key, if it is one."""
    if not (isinstance(condition, Call) and condition.name == "="):
        return None
    left, right = condition.args
    spoken = sides_of(left, sides), sides_of(right, sides)
    if not spoken[0] or not spoken[1] or spoken[0] & spoken[1]:
        return None
    return Equality(condition, left, right, *spoken)


def tables_of(relation: Relation) -> tuple[TableSchema, ...]:
    """The base tables that are read, each once, in the order of the tree."""
    found = {part.table.id: part.table for part in walk_relations(relation) if isinstance(part, Scan)}
    return tuple(found.values())


def _as_nullable(column: Column) -> Column:
    return Column(column.name, column.type, nullable=True)
