"""DuckDB SQL of functions.

In: a bound call, and the SQL of its arguments. Out: SQL of the same value. Always: NULL arguments yield NULL without a
failure, in Spark's order of evaluation; an argument that is long or may fail is written once, under a name.
"""

from __future__ import annotations

from collections.abc import Sequence

from viewkeeper.errors import InvariantBroken
from viewkeeper.sql.expressions import Call, Expression
from viewkeeper.sql.function_rows import STRICT, Function
from viewkeeper.sql.function_table import FUNCTIONS

_SHORT = 60  # characters of SQL that may be written several times


def emit_function(call: Call, sqls: Sequence[str]) -> str:
    function = FUNCTIONS.get(call.name)
    if function is None:
        raise InvariantBroken(f"no DuckDB SQL for {call.name}")
    if function.nulls is not STRICT:  # its text handles NULL
        return _text(function, call, sqls)
    order = (1, 0) if function.divides else range(len(sqls))
    # A constant that fails must not be in a WHEN, where DuckDB evaluates it before any row; a name is not a constant.
    short = not function.divides and all(
        len(sql) <= _SHORT and not arg.fallible for sql, arg in zip(sqls, call.args, strict=True)
    )
    names = list(sqls) if short else [f"x.a{place}" for place in range(len(sqls))]
    body = _text(function, call, names)
    if len(sqls) > 1:
        body = _null_of(body, [names[place] for place in order if call.args[place].nullable])
    if short:
        return body
    fields = ", ".join(f"'a{place}': {sql}" for place, sql in enumerate(sqls))
    whole = f"list_transform([{{{fields}}}], lambda x: {body})[1]"
    return _null_of(whole, _stops(call.args, sqls, order))


def _text(function: Function, call: Call, sqls: Sequence[str]) -> str:
    if isinstance(function.duckdb, str):
        return function.duckdb.format(*sqls, all=", ".join(sqls), name=call.name, type=call.type.duckdb)
    return function.duckdb(call, *sqls)


def _stops(args: Sequence[Expression], sqls: Sequence[str], order: Sequence[int]) -> list[str]:
    """The arguments that keep later ones from failing if they are NULL."""
    later = [any(args[place].fallible for place in order[rank + 1 :]) for rank in range(len(order))]
    return [sqls[place] for place, failing in zip(order, later, strict=True) if args[place].nullable and failing]


def _null_of(body: str, sqls: Sequence[str]) -> str:
    if not sqls:
        return body
    return f"(CASE {' '.join(f'WHEN {sql} IS NULL THEN NULL' for sql in sqls)} ELSE {body} END)"
