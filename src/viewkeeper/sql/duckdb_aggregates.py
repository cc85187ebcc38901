"""DuckDB SQL of aggregates, from the rows of a group.

In: a bound aggregate, and what its arguments are called. Out: SQL beside a GROUP BY. Always: the value is the one that a view
keeps: sums and averages are exact, then rounded once; a value that does not fit its type stops the query.
"""

from __future__ import annotations

from collections.abc import Sequence

from viewkeeper.errors import InvariantBroken
from viewkeeper.model.types import INT, SqlType, decimal
from viewkeeper.sql import duckdb_decimal
from viewkeeper.sql.duckdb_sql import group_key
from viewkeeper.sql.expressions import Aggregate, Case, Expression, Literal

# A list of DOUBLEs to the DOUBLE nearest to their exact sum: a function that who runs the SQL provides.
EXACT_SUM = "exact_sum"


def argument(call: Aggregate) -> tuple[Expression, ...]:
    """FILTER as CASE: a row that does not pass gives NULL, which every aggregate skips, and its argument is not evaluated."""
    if call.filter is None:
        return call.args
    first = call.args[0] if call.args else Literal(1, INT)
    return (Case(((call.filter, first),), Literal(None, first.type), first.type), *call.args[1:])


def aggregate_sql(call: Aggregate, names: Sequence[str]) -> str:
    """The value of `call` over the rows of a group; `names` are the columns of its arguments."""
    types = [arg.type for arg in call.args]
    if call.function == "count":
        return _count(call, names, types)
    name, type_ = names[0], types[0]
    match call.function:
        case "min" | "max":
            return f"{call.function}({group_key(name, type_)})"
        case "sum" if type_.kind == "DOUBLE":
            return _sum_of_doubles(name)
        case "sum":
            return f"CAST(sum({name}) AS {call.type.duckdb})"
        case "avg":
            return _average(name, type_, call.type)
    raise InvariantBroken(f"the aggregate {call.function} has no SQL")


def _count(call: Aggregate, names: Sequence[str], types: Sequence[SqlType]) -> str:
    if not call.distinct:
        return f"count({names[0] if names else '*'})"
    keys = [group_key(name, type_) for name, type_ in zip(names, types, strict=True)]
    if len(keys) == 1:
        return f"count(DISTINCT {keys[0]})"
    whole = ", ".join(f"'v{place}': {key}" for place, key in enumerate(keys))
    known = " AND ".join(f"{name} IS NOT NULL" for name in names)
    return f"count(DISTINCT CASE WHEN {known} THEN {{{whole}}} END)"


def _sum_of_doubles(name: str) -> str:
    return f"{EXACT_SUM}(list({name}) FILTER (WHERE {name} IS NOT NULL))"


def _average(name: str, arg: SqlType, type_: SqlType) -> str:
    count = f"CAST(count({name}) AS DOUBLE)"
    if arg.kind == "DOUBLE":
        return f"({_sum_of_doubles(name)} / {count})"
    if type_.kind != "DECIMAL":
        # By way of text: DuckDB's HUGEINT to DOUBLE is now and then one unit off.
        return f"(CAST(CAST(sum({name}) AS VARCHAR) AS DOUBLE) / nullif({count}, 0))"
    total = duckdb_decimal.unscaled(f"sum({name})", decimal(38, arg.scale))
    divisor = f"CAST(nullif(count({name}), 0) AS HUGEINT)"
    quotient = duckdb_decimal.quotient(total, divisor, shift=type_.scale - arg.scale, divisor_max=2**63)
    return duckdb_decimal.scaled(quotient, type_)
