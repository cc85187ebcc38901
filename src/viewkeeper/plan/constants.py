"""Constants that fail: refused when a view is defined.

In: a bound query. Out: nothing, or a SqlError. Always: what remains can fail only on some rows. A constant that fails fails
on every row, and an engine that folds constants would stop the whole query for it instead of setting rows aside.
"""

from __future__ import annotations

from collections.abc import Iterator

from viewkeeper.errors import SqlError
from viewkeeper.sql.bind import BoundQuery
from viewkeeper.sql.duckdb_sql import emit
from viewkeeper.sql.expressions import Aggregate, ColumnRef, Expression, FoldRef, children, walk


def refuse_failing_constants(query: BoundQuery) -> None:
    """Raise where a part of the query that speaks of no column fails."""
    parts = [part for expression in _expressions(query) for part in _constants(expression)]
    if not parts:
        return
    import duckdb

    with duckdb.connect() as connection:
        for part in parts:
            try:
                connection.execute(f"SELECT {emit(part)}").fetchall()
            except duckdb.Error as error:
                raise SqlError(f"{part.text} fails whatever the row holds", "leave it out, or correct it") from error


def _expressions(query: BoundQuery) -> list[Expression]:
    found = [output.expression for output in query.outputs]
    found += [condition for condition in (query.where, query.having) if condition is not None]
    if query.grouping is not None:
        found += [*query.grouping.groups, *query.grouping.aggregates]
    return found


def _constants(expression: Expression) -> Iterator[Expression]:
    """The largest parts that can fail and speak of no column, group or aggregate."""
    if not any(isinstance(part, (ColumnRef, FoldRef, Aggregate)) for part in walk(expression)):
        if expression.fallible:
            yield expression
        return
    for child in children(expression):
        yield from _constants(child)
