"""Constants that fail: refused when a view is defined.

In: a bound relation. Out: nothing, or a SqlError. Always: what remains can fail only on some rows. A constant that
fails does so on every row, and an engine that folds constants would stop the whole query instead of setting rows aside.
"""

from __future__ import annotations

from collections.abc import Iterator

from viewkeeper.codegen.expression_sql import emit
from viewkeeper.errors import SqlError
from viewkeeper.sql.expressions import Call, Cast, Expression, children, is_constant, walk
from viewkeeper.sql.relations import Relation, expressions_of, walk_relations


def refuse_failing_constants(relation: Relation) -> None:
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
