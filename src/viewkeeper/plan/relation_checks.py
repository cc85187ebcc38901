"""Checks of a relation: it is consistent, no constant in it fails, and no text in it grows without bound.

In: a bound relation. Out: nothing, or an error: InvariantBroken where an expression does not fit its input, SqlError where
a constant fails, UnsupportedSql where a text would be made of more than `WIDTH_MAX` others. Always: the optimizer
validates its input and its output, so that a rule that breaks a plan is found before the plan is used. An engine that
folds constants would stop the whole query at one that fails. Concatenation and repetition count over all nested queries
(`x || x` in thirty of them would make a billion copies of x); `replace` does not.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from viewkeeper.algebra.expressions import (
    AggregationRef,
    Call,
    Cast,
    ColumnRef,
    Expression,
    children,
    is_constant,
    walk,
)
from viewkeeper.algebra.relations import (
    Aggregation,
    Join,
    Project,
    Relation,
    Select,
    Top,
    Union,
    ViewRows,
    expressions_of,
    inputs_of,
    walk_relations,
)
from viewkeeper.algebra.rewriting import aggregation_below
from viewkeeper.codegen.expression_sql import emit
from viewkeeper.errors import InvariantBroken, SqlError, UnsupportedSql
from viewkeeper.model import types
from viewkeeper.model.schema import Column
from viewkeeper.sql.function_table import WIDTH_MAX


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
            known = grouping and (grouping.groups if part.source == "group" else grouping.aggregates)
            if not known or part.of not in known[part.position : part.position + 1]:
                raise InvariantBroken(f"{part.text} is no group or aggregate of what it speaks of")


def _check_columns(expression: Expression, given: Sequence[Column]) -> None:
    for part in walk(expression):
        if isinstance(part, ColumnRef) and (part.position >= len(given) or given[part.position].type != part.type):
            raise InvariantBroken(f"{part.text} is not a column of its input")


def check_constants(relation: Relation) -> None:
    """Raise where a part of the relation that refers to no column fails."""
    expressions = (expression for node in walk_relations(relation) for expression in expressions_of(node))
    parts = [part for expression in expressions for part in _constants(expression)]
    if not parts:
        return
    import duckdb

    from viewkeeper.codegen.confined import connect_confined  # with DuckDB, which most views need not wait for here

    with connect_confined() as connection:
        for part in parts:
            try:
                connection.execute(f"SELECT {emit(part)}").fetchall()
            except duckdb.Error as error:
                raise SqlError(f"{part.text} fails whatever the row holds", "leave it out, or correct it") from error


def _constants(expression: Expression) -> Iterator[Expression]:
    """The largest parts that can fail and refer to no column, group or aggregate."""
    if is_constant(expression):
        if any(isinstance(part, (Call, Cast)) and part.raises for part in walk(expression)):
            yield expression
        return
    for child in children(expression):
        yield from _constants(child)


Copies = tuple[int, ...]  # for each column of a relation


def check_text_growth(relation: Relation) -> None:
    """Raise where a text would be made of more copies than WIDTH_MAX."""
    _columns(relation, {})


def _columns(relation: Relation, known: dict[int, Copies]) -> Copies:
    """How many copies of stored texts each column may be made of; a relation that is used twice is looked at once."""
    if id(relation) not in known:
        known[id(relation)] = _of_relation(relation, known)
    return known[id(relation)]


def _of_relation(relation: Relation, known: dict[int, Copies]) -> Copies:
    if isinstance(relation, ViewRows):  # they are stored
        return (1,) * len(relation.columns)
    inputs = [_columns(one, known) for one in inputs_of(relation)]
    given = tuple(copies for one in inputs for copies in one)
    if isinstance(relation, Join):
        for side, keys in zip(inputs, relation.keys, strict=True):
            for key in keys:
                _copies(key, side)
        if relation.residual is not None:
            _copies(relation.residual, given)
        return inputs[0] if relation.keeps_first else given
    own = tuple(_copies(expression, given) for expression in expressions_of(relation))
    match relation:
        case Project() | Aggregation():
            return own
        case Union():
            return tuple(map(max, zip(*inputs, strict=True)))
    return given if len(given) == len(relation.columns) else (max(given, default=1),) * len(relation.columns)


def _copies(expression: Expression, given: Copies) -> int:
    """Of how many stored or written texts the value is made, if it is a text."""
    if isinstance(expression, ColumnRef):
        return given[expression.position]
    if isinstance(expression, AggregationRef):  # a π over γ: the γ's columns are its groups, then its aggregates
        return max(given, default=1)
    parts = [_copies(child, given) for child in children(expression)]
    if expression.type.kind != "STRING":
        return 1
    copies = _of_call(expression, parts) if isinstance(expression, Call) else max(parts, default=1)
    if copies > WIDTH_MAX:
        raise UnsupportedSql(
            f"{expression.text[:60]} makes a text of {copies:,} others",
            f"{WIDTH_MAX:,} are the most, over all nested queries",
        )
    return copies


def _of_call(call: Call, parts: list[int]) -> int:
    match call.name:
        case "concat":
            return sum(parts)
        case "concat_ws":
            return sum(parts[1:]) + parts[0] * max(0, len(parts) - 2)
        case "repeat":
            return parts[0] * max(1, int(str(call.args[1].value)))  # type: ignore[union-attr]
    return max(parts, default=1)
