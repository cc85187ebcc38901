"""Rewriting: columns of expressions moved to other positions, and columns and conditions moved down to the tables.

In: bound expressions and relations. Out: the same with other positions; or, for each `Scan` in the order of the walk,
the columns that anything refers to and the conditions that a row must meet to count. Always: names, types and
nullability are kept; skipping other columns, and rows that fail a condition, changes no result.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from viewkeeper.algebra import construct
from viewkeeper.algebra.expressions import (
    AggregationRef,
    Cast,
    ColumnRef,
    Expression,
    Literal,
    columns_of,
    conjuncts,
    rewrite,
)
from viewkeeper.algebra.relations import (
    Aggregation,
    Join,
    Output,
    Project,
    Relation,
    Scan,
    Select,
    Union,
    expressions_of,
    inputs_of,
)
from viewkeeper.errors import UnsupportedSql
from viewkeeper.model.memo import once_for_each

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
