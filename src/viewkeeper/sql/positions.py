"""Positions: the columns of expressions moved, and the small relations that only move columns.

In: bound expressions and relations. Out: the same with other positions. Always: names, types and nullability are kept.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

from viewkeeper.errors import UnsupportedSql
from viewkeeper.model.identity import once_for_each
from viewkeeper.sql import construct
from viewkeeper.sql.expressions import AggregationRef, Cast, ColumnRef, Expression, Literal, conjuncts, rewrite
from viewkeeper.sql.relations import Aggregation, Join, Output, Project, Relation, Select, Union, inputs_of

CONDITIONS_MAX = 100  # as deep as one expression may be nested


def relocate(expression: Expression, place: Callable[[int], int]) -> Expression:
    """The expression with each column at `place(position)`."""

    def move(node: Expression) -> Expression | None:
        return replace(node, position=place(node.position)) if isinstance(node, ColumnRef) else None

    return rewrite(expression, move)


def aggregation_below(relation: Relation) -> Aggregation | None:
    """The γ to whose groups and aggregates the expressions over a relation refer: σ may be in between."""
    while isinstance(relation, Select):
        relation = relation.input
    return relation if isinstance(relation, Aggregation) else None


def over_columns(expression: Expression, below: Relation, values: Sequence[Expression] = ()) -> Expression:
    """The expression over the columns of what is below, where it refers to groups and aggregates.

    One of `values` is a column after those of γ.
    """
    if (aggregation := aggregation_below(below)) is None:
        return expression
    columns, groups = column_refs(aggregation), len(aggregation.grouping.groups)

    def change(part: Expression) -> Expression | None:
        if part in values:
            return ColumnRef(len(columns) + values.index(part), part.text, part.type, nullable=True)
        if not isinstance(part, AggregationRef):
            return None
        return columns[part.position + (groups if part.source == "aggregate" else 0)]

    return rewrite(expression, change)


def shift(expression: Expression, by: int) -> Expression:
    return relocate(expression, lambda position: position + by) if by else expression


def conjunction(parts: Sequence[Expression]) -> Expression | None:
    """All of `parts`, in their order; None for none."""
    if len(parts) > CONDITIONS_MAX:
        raise UnsupportedSql(
            f"more than {CONDITIONS_MAX} conditions are joined by AND", "split them over several views"
        )
    whole: Expression | None = None
    for part in parts:
        whole = part if whole is None else construct.logical("and", whole, part)
    return whole


def is_true(expression: Expression) -> bool:
    return isinstance(expression, Literal) and expression.value is True


def select(relation: Relation, conditions: Sequence[Expression]) -> Relation:
    """The rows for which all conditions are true."""
    predicate = conjunction([part for part in conditions if not is_true(part)])
    return relation if predicate is None else Select(relation, predicate)


def conditions_over(relation: Relation) -> tuple[Relation, list[Expression]]:
    """What is below the σ on top of a relation, and all their conditions, the lowest first."""
    found: list[tuple[Expression, ...]] = []
    while isinstance(relation, Select):
        found.append(conjuncts(relation.predicate))
        relation = relation.input
    return relation, [condition for parts in reversed(found) for condition in parts]


@once_for_each(kept_max=64)
def column_refs(relation: Relation) -> tuple[ColumnRef, ...]:
    columns = relation.columns
    return tuple(ColumnRef(place, one.name, one.type, one.nullable) for place, one in enumerate(columns))


def project(relation: Relation, outputs: Sequence[Output]) -> Relation:
    """π; one that only moves columns is merged with the π below it."""
    if isinstance(relation, Project) and (_only_moves(relation.outputs) or _keeps_all(relation, outputs)):
        below = [output.expression for output in relation.outputs]

        def refer(node: Expression) -> Expression | None:
            found = below[node.position] if isinstance(node, ColumnRef) else None
            # a column that is never NULL any more, since a rule required its side, stays as it was declared
            return replace(found, nullable=True) if isinstance(found, ColumnRef) and node.nullable else found

        outputs = [Output(output.name, rewrite(output.expression, refer)) for output in outputs]
        return Project(relation.input, tuple(outputs))
    return Project(relation, tuple(outputs))


def _only_moves(outputs: Sequence[Output]) -> bool:
    return all(isinstance(output.expression, ColumnRef) for output in outputs)


def _keeps_all(relation: Project, outputs: Sequence[Output]) -> bool:
    """Whether the outputs are all columns of `relation`, perhaps widened, and constants.

    Nothing else may be merged into a π above γ: there a value that fails reads as NULL, here its row is set aside.
    """
    bare = [_without_widening(output.expression) for output in outputs]
    used = {one.position for one in bare if isinstance(one, ColumnRef)}
    return len(used) == len(relation.outputs) and all(isinstance(one, ColumnRef | Literal) for one in bare)


def _without_widening(expression: Expression) -> Expression:
    return expression.arg if isinstance(expression, Cast) and expression.implicit else expression


def keep_columns(relation: Relation, positions: Iterable[int]) -> Relation:
    """The columns at `positions`, in that order."""
    refs, wanted = column_refs(relation), list(positions)
    if wanted == list(range(len(refs))):
        return relation
    return project(relation, [Output(refs[place].name, refs[place]) for place in wanted])


def with_inputs(relation: Relation, inputs: tuple[Relation, ...]) -> Relation:
    """The same over other inputs, as many as it has and of the same columns."""
    if all(new is old for new, old in zip(inputs, inputs_of(relation), strict=True)):
        return relation
    match relation:
        case Join():
            return replace(relation, sides=inputs)
        case Union():
            return Union(inputs)
        case Project(outputs=outputs):
            return project(inputs[0], outputs)
    return replace(relation, input=inputs[0])  # type: ignore[arg-type]
