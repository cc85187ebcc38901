"""Rewriting: columns of expressions moved to other positions, and columns and conditions moved down to the tables.

In: bound expressions and relations. Out: the same with other positions; or, for each `Scan` in the order of the walk,
the columns that anything refers to and the conditions that a row must meet to count. Always: names, types and
nullability are kept; skipping other columns, and rows that fail a condition, changes no result.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial, reduce

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
    Ranked,
    Relation,
    Scan,
    Select,
    Union,
    expressions_of,
    inputs_of,
    starts_of,
)
from viewkeeper.errors import UnsupportedSql
from viewkeeper.model.memo import once_for_each

CONDITIONS_MAX = 100  # as deep as one expression may be nested


def relocate(expression: Expression, index: Callable[[int], int]) -> Expression:
    """The expression with each column at `place(position)`."""

    def move(node: Expression) -> Expression | None:
        return replace(node, position=index(node.position)) if isinstance(node, ColumnRef) else None

    return rewrite(expression, move)


def aggregation_below(relation: Relation) -> Aggregation | None:
    """The γ to whose groups and aggregates the expressions over a relation refer: σ may be in between."""
    while isinstance(relation, Select):
        relation = relation.input
    return relation if isinstance(relation, Aggregation) else None


def over_columns(expression: Expression, below: Relation, values: Sequence[Expression] = ()) -> Expression:
    """The expression with columns of `below` in place of groups and aggregates; `values` are columns after those of γ."""
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
    return reduce(partial(construct.logical, "and"), parts) if parts else None


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
    return tuple(ColumnRef(index, one.name, one.type, one.nullable) for index, one in enumerate(columns))


def project(relation: Relation, outputs: Sequence[Output]) -> Relation:
    """π; one that only moves columns is merged with the π below it."""
    below = [output.expression for output in relation.outputs] if isinstance(relation, Project) else []
    moves_only = all(isinstance(one, ColumnRef) for one in below)
    if isinstance(relation, Project) and (moves_only or _keeps_all(relation, outputs)):

        def refer(node: Expression) -> Expression | None:
            found = below[node.position] if isinstance(node, ColumnRef) else None
            # a column that is never NULL any more, since a rule required its side, stays as it was declared
            return replace(found, nullable=True) if isinstance(found, ColumnRef) and node.nullable else found

        outputs = [Output(output.name, rewrite(output.expression, refer)) for output in outputs]
        return Project(relation.input, tuple(outputs))
    return Project(relation, tuple(outputs))


def _keeps_all(relation: Project, outputs: Sequence[Output]) -> bool:
    """Whether the outputs are all columns of `relation`, perhaps widened, and constants.

    Nothing else may be merged into a π above γ: there a value that fails reads as NULL, here its row is set aside.
    """
    parts = [output.expression for output in outputs]
    bare = [part.arg if isinstance(part, Cast) and part.implicit else part for part in parts]
    used = {one.position for one in bare if isinstance(one, ColumnRef)}
    return len(used) == len(relation.outputs) and all(isinstance(one, ColumnRef | Literal) for one in bare)


def keep_columns(relation: Relation, positions: Iterable[int]) -> Relation:
    """The columns at `positions`, in that order."""
    refs, wanted = column_refs(relation), list(positions)
    if wanted == list(range(len(refs))):
        return relation
    return project(relation, [Output(refs[index].name, refs[index]) for index in wanted])


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
            shown = columns_of(*(outputs[index].expression for index in needed))
            parts = [output.expression for output in outputs]
            moved = {index: one.position for index, one in enumerate(parts) if isinstance(one, ColumnRef)}
            passed = [one for one in conditions if moved.keys() >= set(columns_of(one))]
            yield from _reads(source, frozenset(shown), [relocate(one, moved.__getitem__) for one in passed])
        case Aggregation(input=source):
            yield from _reads(source, own, ())
        case Join(sides=sides, keys=keys, residual=residual):
            needed |= frozenset(() if residual is None else columns_of(residual))
            for side, key, start in zip(sides, keys, starts_of(sides), strict=True):
                shown_of_side = {index for index in range(len(side.columns)) if index + start in needed}
                yield from _reads(side, frozenset(shown_of_side.union(columns_of(*key))), ())
        case Union(inputs=inputs):
            for one in inputs:
                yield from _reads(one, needed, conditions)
        case Ranked(input=source):
            yield from _reads(source, needed - {len(source.columns)}, ())
        case _:
            # the first rows are the first of all rows: a condition above cannot be applied before
            yield from _reads(relation.input, needed | own, ())
