"""Growth: a text that a query would make of too many copies of others is refused.

In: a bound relation. Out: nothing, or UnsupportedSql. Always: concatenation and repetition make a text of at most
`WIDTH_MAX` others, however queries are nested: `x || x` in thirty of them would make a billion copies of x, and an engine
holds a value in one piece, beside its limit of memory. What `replace` makes of a text is not counted.
"""

from __future__ import annotations

from collections.abc import Sequence

from viewkeeper.errors import UnsupportedSql
from viewkeeper.sql.expressions import AggregationRef, Call, ColumnRef, Expression, children
from viewkeeper.sql.function_rules import WIDTH_MAX
from viewkeeper.sql.relations import Aggregation, Join, Project, Relation, Union, ViewRows, expressions_of, inputs_of

Copies = tuple[int, ...]  # for each column of a relation


def refuse_growing_texts(relation: Relation) -> None:
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
        _look_at_join(relation, inputs, given)
    else:
        own = tuple(_copies(expression, given) for expression in expressions_of(relation))
    match relation:
        case Project() | Aggregation():
            return own
        case Union():
            return tuple(map(max, zip(*inputs, strict=True)))
        case Join(keeps_first=True):
            return inputs[0]
    return given if len(given) == len(relation.columns) else (max(given, default=1),) * len(relation.columns)


def _look_at_join(join: Join, inputs: Sequence[Copies], given: Copies) -> None:
    for side, keys in zip(inputs, join.keys, strict=True):
        for key in keys:
            _copies(key, side)
    if join.residual is not None:
        _copies(join.residual, given)


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
