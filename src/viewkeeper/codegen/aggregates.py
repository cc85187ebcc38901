"""DuckDB SQL of aggregates: from the rows of a group, and from the sums and counts that a view keeps for it.

In: a bound aggregate, and the names of its arguments. Out: SQL. Always: both ways return the same value: sums and
averages are exact, then rounded once; a value that does not fit its type fails.
"""

from __future__ import annotations

from collections.abc import Sequence

from viewkeeper.codegen import decimals, wide_sums
from viewkeeper.codegen.expression_sql import group_key
from viewkeeper.errors import InvariantBroken
from viewkeeper.model.types import INT, SqlType, decimal
from viewkeeper.sql.expressions import Aggregate, Case, Expression, Literal

# Maps a list of DOUBLEs to the DOUBLE nearest to their exact sum: whatever runs the SQL provides this function.
EXACT_SUM = "exact_sum"


def arguments(call: Aggregate) -> tuple[Expression, ...]:
    """FILTER as CASE: a row that does not pass yields NULL, which aggregates skip; its argument is not evaluated."""
    condition = call.filter
    if condition is None:
        return call.args
    args = call.args or (Literal(1, INT),)
    return tuple(Case(((condition, arg),), Literal(None, arg.type), arg.type) for arg in args)


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
        case "avg" if type_.kind == "DOUBLE":
            return f"({_sum_of_doubles(name)} / CAST(count({name}) AS DOUBLE))"
        case "sum" | "avg":
            sums = [f"CAST(coalesce({part}, 0) AS HUGEINT)" for part in sum_parts(name, type_)]
            value = (sum_value if call.function == "sum" else average_value)(sums, f"count({name})", type_, call.type)
            return f"(CASE WHEN count({name}) = 0 THEN NULL ELSE {value} END)"
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


def sum_parts(name: str, type_: SqlType) -> list[str]:
    """The sum of a column as an unscaled integer; for a wide DECIMAL its high and its low limb."""
    if type_.precision > wide_sums.NARROW_DIGITS_MAX:
        return wide_sums.limbs(name, type_)
    total = f"sum({name})"
    return [decimals.unscaled(total, decimal(38, type_.scale)) if type_.kind == "DECIMAL" else total]


def sum_value(sums: Sequence[str], _count: str, _arg: SqlType, type_: SqlType) -> str:
    """The SUM that the parts represent."""
    total = sums[0] if len(sums) == 1 else wide_sums.total(*sums)
    return decimals.scaled(total, type_) if type_.kind == "DECIMAL" else f"CAST({total} AS {type_.duckdb})"


def average_value(sums: Sequence[str], count: str, arg: SqlType, type_: SqlType) -> str:
    """DECIMAL: exact, half up. Integers: the double nearest to the exact sum, over the count, as Spark divides."""
    if type_.kind != "DECIMAL":
        # Through text: DuckDB's cast of HUGEINT to DOUBLE is sometimes off by one unit.
        return f"CAST(CAST({sums[0]} AS VARCHAR) AS DOUBLE) / CAST({count} AS DOUBLE)"
    # At count 0 the CASE around this is already NULL; NULLIF keeps an eager engine from dividing by zero.
    divisor = f"CAST(nullif({count}, 0) AS HUGEINT)"
    shift = type_.scale - arg.scale
    if len(sums) == 1:
        return decimals.scaled(decimals.quotient(sums[0], divisor, shift=shift, divisor_max=2**63), type_)
    high, low = sums
    return decimals.scaled(wide_sums.average(high, low, divisor, shift=shift), type_)
