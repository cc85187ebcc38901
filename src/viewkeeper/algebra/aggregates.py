"""Aggregate functions: one table with all that is known of each.

In: the name of a function. Out: its sqlglot nodes, its result type, when it fails, its value as DuckDB SQL over what is
kept of its arguments, and how Spark is asked for the same value. Always: a value is a function of the multiset of rows: it
comes from exact sums, counts and ends, and is rounded once. A new function is a row of this table.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from sqlglot import exp

from viewkeeper.algebra import decimals
from viewkeeper.algebra.type_rules import DIGITS_MAX, as_decimal, way_to_number
from viewkeeper.errors import TypeMismatch
from viewkeeper.model.types import BIGINT, DOUBLE, SqlType, decimal

# Functions of accumulators that SQL lacks, by the names under which whoever runs the SQL provides them.
ROUND_SUM = "round_sum"  # an exact sum of DOUBLEs to the nearest DOUBLE
VARIANCE = "exact_variance"  # of degrees of freedom, scale, count, two parts of Σx and five of Σx²
VARIANCE_OF_DOUBLES = "exact_variance_of_doubles"  # of degrees of freedom, count, Σx and Σx²
SQUARE_DIGITS = 13  # of a limb: a hundred billion products of two such limbs fit 128 bits
_UNIT = "2.220446049250313E-16D"  # 2^-52: a sum of n doubles in any order is within n · 2^-52 · Σ|x|


class Kept(Protocol):
    """What is kept of the arguments of one call, as SQL; a view keeps what it is asked for."""

    def count(self) -> str:
        """How many rows have a value."""

    def total(self, kind: str) -> list[str]:
        """The parts of the exact sum of that kind: integers of various types (`SUMS`, `_integers`), or of DOUBLE one BLOB."""

    def end(self, *, is_last: bool) -> str:
        """The first or last value, in the order of keys."""

    def computed(self, function: str, *args: str) -> str:
        """The value of a function that SQL lacks."""


Value = Callable[[Kept, SqlType, SqlType], str]


@dataclass(frozen=True, slots=True)
class Asked:
    """A call in a question to Spark. `wide`: integers are summed as DECIMAL, for Spark stops where a sum leaves 64 bits."""

    argument: str
    distinct: str  # "DISTINCT " or ""
    where: str  # " FILTER (WHERE …)" or ""
    wide: bool

    @property
    def count(self) -> str:
        return f"COUNT({self.distinct}{self.argument}){self.where}"

    @property
    def sum(self) -> str:
        summed = f"CAST({self.argument} AS DECIMAL(38, 0))" if self.wide else self.argument
        return f"SUM({self.distinct}{summed}){self.where}"

    def total(self, of: str) -> str:
        """The sum of `of`, a template over the argument as a DOUBLE, for all rows that count."""
        return f"COALESCE(SUM({of.format(f'CAST({self.argument} AS DOUBLE)')}){self.where}, 0D)"


@dataclass(frozen=True, slots=True)
class AggregateFunction:
    """One function; COUNT alone takes another number of arguments than one.

    `result_type` follows from the argument's type, which it may refuse; `can_fail`: whether a result may not fit.
    `is_end`: MIN and MAX, which DISTINCT does not change. `has_try`: Spark may stop on its way to the value, and has a form
    TRY_… that gives NULL instead. `is_rounded`: whether Spark adds doubles up for an argument of that type, and then `error`
    is how far it may be off. `asked` is how Spark computes it of integers without rounding; without `error` it is not read.
    """

    nodes: tuple[type[exp.Expression], ...]
    result_type: Callable[[SqlType], SqlType]
    value: Value
    nullable: bool = True
    is_end: bool = False
    can_fail: Callable[[SqlType, SqlType], bool] = lambda arg, result: False
    has_try: bool = False
    asked: Callable[[Asked], str] | None = None
    is_rounded: Callable[[SqlType], bool] = lambda arg: False
    error: Callable[[Asked], str] | None = None


def sum_parts(name: str, type_: SqlType) -> list[tuple[str, str]]:
    """The sum of a column as an unscaled integer, and what a row adds to it; of a wide DECIMAL its high and its low limb."""
    if type_.precision > decimals.NARROW_DIGITS_MAX:
        limbs, each = decimals.limbs(name, type_), decimals.limbs_of_one(name, type_)
        return list(zip(limbs, each, strict=True))
    if type_.kind != "DECIMAL":
        return [(f"sum({name})", name)]
    return [(decimals.unscaled(f"sum({name})", decimal(38, type_.scale)), decimals.unscaled(name, type_))]


def square_parts(name: str, type_: SqlType) -> list[tuple[str, str]]:
    """The sum of the squares of a column in base 10^13, highest place first: place k of (Σ aᵢ · 10^13ⁱ)² is Σ aᵢ · aₖ₋ᵢ."""
    whole = decimals.unscaled(name, type_) if type_.kind == "DECIMAL" else name
    base = decimals.power_of_ten(SQUARE_DIGITS) if type_.kind == "DECIMAL" else f"{10**SQUARE_DIGITS}"
    limbs = [f"CAST({whole} AS HUGEINT)"]
    while len(limbs) * SQUARE_DIGITS < as_decimal(type_).precision:
        limbs[-1:] = [f"CAST({whole} % {base} AS HUGEINT)", f"CAST({whole} // {base} AS HUGEINT)"]
        whole = f"({whole} // {base})"
    columns: list[list[str]] = [[] for _ in range(2 * len(limbs) - 1)]
    for i, left in enumerate(limbs):
        for j, right in enumerate(limbs):
            columns[i + j].append(f"{left} * {right}")
    each = [" + ".join(products) for products in reversed(columns)]
    return [(f"sum({sql})", sql) for sql in each]


# Of each kind of sum the parts: the SQL of a group, for a SELECT, and of one row, for a view, which applies the row's sign.
SUMS: dict[str, Callable[[str, SqlType], list[tuple[str, str]]]] = {"sum": sum_parts, "squares": square_parts}


def _number(function: str, arg: SqlType) -> None:
    if not arg.is_numeric:
        raise TypeMismatch(f"{function} needs a number, not {arg}", way_to_number(arg))


def _sum_type(arg: SqlType) -> SqlType:
    _number("SUM", arg)
    if arg.kind != "DECIMAL":
        return BIGINT if arg.is_integer else DOUBLE
    return decimal(min(DIGITS_MAX, arg.precision + 10), arg.scale)


def _average_type(arg: SqlType) -> SqlType:
    _number("AVG", arg)
    if arg.kind != "DECIMAL":
        return DOUBLE
    return decimal(min(DIGITS_MAX, arg.precision + 4), min(DIGITS_MAX, arg.scale + 4))


def _spread_type(function: str, arg: SqlType) -> SqlType:
    _number(function, arg)
    return DOUBLE


def _sum(kept: Kept, arg: SqlType, result: SqlType) -> str:
    count, sums = kept.count(), kept.total("sum")
    if arg.kind == "DOUBLE":
        return _of_some(count, kept.computed(ROUND_SUM, *sums))
    parts = _integers(sums)
    total = parts[0] if len(parts) == 1 else decimals.total(*parts)
    fitted = decimals.scaled(total, result) if result.kind == "DECIMAL" else f"CAST({total} AS {result.duckdb})"
    return _of_some(count, fitted)


def _average(kept: Kept, arg: SqlType, result: SqlType) -> str:
    """DECIMAL: exact, half up. Others: the double nearest to the exact sum, over the count, as Spark divides."""
    count, sums = kept.count(), kept.total("sum")
    if arg.kind == "DECIMAL":
        return _of_some(count, _decimal_average(_integers(sums), count, arg, result))
    # By way of text: DuckDB's HUGEINT to DOUBLE is now and then one unit off.
    is_double = arg.kind == "DOUBLE"
    total = kept.computed(ROUND_SUM, *sums) if is_double else f"CAST(CAST({_integers(sums)[0]} AS VARCHAR) AS DOUBLE)"
    return _of_some(count, f"{total} / CAST({count} AS DOUBLE)")


def _decimal_average(sums: Sequence[str], count: str, arg: SqlType, result: SqlType) -> str:
    # At count 0 the CASE around this is NULL already; NULLIF keeps an eager engine from dividing by it.
    divisor = f"CAST(nullif({count}, 0) AS HUGEINT)"
    shift = result.scale - arg.scale
    if len(sums) == 1:
        return decimals.scaled(decimals.quotient(sums[0], divisor, shift=shift, divisor_max=2**63), result)
    return decimals.scaled(decimals.average(sums[0], sums[1], divisor, shift=shift), result)


def _variance(freedom: int) -> Value:
    """(n·Σx² − (Σx)²) / (n·(n − freedom)), rounded once to a DOUBLE."""

    def value(kept: Kept, arg: SqlType, result: SqlType) -> str:
        count, sums, squares = kept.count(), kept.total("sum"), kept.total("squares")
        if arg.kind == "DOUBLE":
            exact = kept.computed(VARIANCE_OF_DOUBLES, str(freedom), count, *sums, *squares)
        else:
            parts = ["0"] * (2 - len(sums)) + sums + ["0"] * (5 - len(squares)) + squares
            exact = kept.computed(VARIANCE, str(freedom), str(arg.scale), count, *parts)
        return f"(CASE WHEN {count} <= {freedom} THEN NULL ELSE {exact} END)"

    return value


def _variance_error(call: Asked, freedom: int) -> str:
    """Spark keeps a mean and a sum of squares about it, in doubles; the latter is off by less than 4(n + 4) · 2^-52 · Σx²."""
    squares = f"4D * ({call.count} + 4) * {_UNIT} * {call.total('{0} * {0}')}"
    return f"(COALESCE({squares} / NULLIF({call.count} - {freedom}, 0), 0D) + 1E-300D)"


def _deviation_error(call: Asked, freedom: int) -> str:
    """|√a − √b| is at most √|a − b|, and at most |a − b| / √a."""
    error, name = _variance_error(call, freedom), "STDDEV_SAMP" if freedom else "STDDEV_POP"
    own = f"{name}({call.distinct}{call.argument}){call.where}"
    return f"LEAST(SQRT({error}), {error} / NULLIF({own}, 0D))"


def _spread(name: str, node: type[exp.Expression], *, freedom: int, is_root: bool) -> AggregateFunction:
    """A variance or its root; Spark computes both in doubles, whatever the argument's type."""
    error, variance = _deviation_error if is_root else _variance_error, _variance(freedom)
    return AggregateFunction(
        nodes=(node,),
        result_type=lambda arg: _spread_type(name, arg),
        value=(lambda kept, arg, result: f"sqrt({variance(kept, arg, result)})") if is_root else variance,
        is_rounded=lambda arg: True,
        error=lambda call: error(call, freedom),
    )


def _integers(parts: Sequence[str]) -> list[str]:
    """The parts for arithmetic: in a view they are DECIMAL(38,0), in a SELECT HUGEINT or as DuckDB adds them up."""
    return [f"CAST({part} AS HUGEINT)" for part in parts]


def _of_some(count: str, value: str) -> str:
    return f"(CASE WHEN {count} = 0 THEN NULL ELSE {value} END)"


AGGREGATE_FUNCTIONS: dict[str, AggregateFunction] = {
    "count": AggregateFunction(
        nodes=(exp.Count,), result_type=lambda arg: BIGINT, value=lambda kept, arg, result: kept.count(), nullable=False
    ),
    "sum": AggregateFunction(
        nodes=(exp.Sum,),
        result_type=_sum_type,
        value=_sum,
        can_fail=lambda arg, result: result.is_exact,
        has_try=True,
        asked=lambda call: f"CAST({call.sum} AS BIGINT)" if call.wide else call.sum,
        is_rounded=lambda arg: arg.kind == "DOUBLE",
        error=lambda call: f"{_UNIT} * {call.total('ABS({})')} * {call.count}",
    ),
    "avg": AggregateFunction(
        nodes=(exp.Avg,),
        result_type=_average_type,
        value=_average,
        can_fail=lambda arg, result: result.whole_digits < arg.whole_digits,
        has_try=True,
        # Spark's own AVG of integers adds up doubles, which beyond 2^53 lose digits
        asked=lambda call: f"(CAST({call.sum} AS DOUBLE) / NULLIF({call.count}, 0))",
        is_rounded=lambda arg: arg.kind == "DOUBLE",
        error=lambda call: f"{_UNIT} * {call.total('ABS({})')}",
    ),
    "min": AggregateFunction(
        nodes=(exp.Min, exp.LogicalAnd),
        result_type=lambda arg: arg,
        value=lambda kept, arg, result: kept.end(is_last=False),
        is_end=True,
    ),
    "max": AggregateFunction(
        nodes=(exp.Max, exp.LogicalOr),
        result_type=lambda arg: arg,
        value=lambda kept, arg, result: kept.end(is_last=True),
        is_end=True,
    ),
    "stddev": _spread("STDDEV", exp.Stddev, freedom=1, is_root=True),
    "stddev_samp": _spread("STDDEV_SAMP", exp.StddevSamp, freedom=1, is_root=True),
    "stddev_pop": _spread("STDDEV_POP", exp.StddevPop, freedom=0, is_root=True),
    "variance": _spread("VARIANCE", exp.Variance, freedom=1, is_root=False),
    "var_samp": _spread("VAR_SAMP", exp.Variance, freedom=1, is_root=False),
    "var_pop": _spread("VAR_POP", exp.VariancePop, freedom=0, is_root=False),
}
# What sqlglot makes of a call → the function's name; and the aggregates of conditions, for which others are computed.
NODES = {node: name for name, known in AGGREGATE_FUNCTIONS.items() for node in known.nodes}
OF_CONDITIONS = {exp.LogicalAnd: "bool_and", exp.LogicalOr: "bool_or", exp.CountIf: "count_if"}
AGGREGATE_NAMES = (*AGGREGATE_FUNCTIONS, *OF_CONDITIONS.values())
# Other names that sqlglot takes for the same, and Spark does not have → ours.
_ALIASES = ((other.lower(), name) for node, name in (NODES | OF_CONDITIONS).items() for other in node.sql_names())
FOREIGN_NAMES = {other: name for other, name in _ALIASES if other not in AGGREGATE_NAMES}
