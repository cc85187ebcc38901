"""DECIMAL in DuckDB: arithmetic and sums as Spark has them, exact on 128-bit integers where DuckDB would round.

In: SQL texts of DECIMAL values and their types. Out: SQL texts; of a sum of values of more than 28 digits two limbs of
128 bits, high · 10^19 + low in units of the last digit, where one could overflow. Always: no value passes through
DOUBLE, except where DOUBLE is the result, and then it is the nearest one. Sums are exact for any number of rows; a limb
is itself a sum, so limbs are added and subtracted one by one.
"""

from __future__ import annotations

from decimal import Decimal

from viewkeeper.model.types import SqlType, decimal

# Up to 15 digits an unscaled value and its power of ten are exact doubles, so their quotient is the nearest double.
_EXACT_DOUBLE_DIGITS = 15


def power_of_ten(exponent: int) -> str:
    return f"CAST('1{'0' * exponent}' AS HUGEINT)"


def unscaled(sql: str, type_: SqlType) -> str:
    """The HUGEINT whose value is `sql` times 10^scale."""
    if type_.scale == 0:
        return f"CAST({sql} AS HUGEINT)"
    if type_.precision + type_.scale <= 38:
        ten = f"CAST('1{'0' * type_.scale}' AS DECIMAL({type_.scale + 1},0))"
        return f"CAST(CAST({sql} AS DECIMAL(38,{type_.scale})) * {ten} AS HUGEINT)"
    return f"CAST(replace(CAST({sql} AS VARCHAR), '.', '') AS HUGEINT)"


def scaled(huge: str, type_: SqlType) -> str:
    """The DECIMAL whose unscaled value is the HUGEINT `huge`; fails when it does not fit."""
    whole = f"CAST({huge} AS DECIMAL(38,0))"
    if type_.scale:
        unit = f"0.{'0' * (type_.scale - 1)}1"
        whole = f"{whole} * CAST('{unit}' AS DECIMAL(38,{type_.scale}))"
    return f"CAST({whole} AS {type_.duckdb})"


def quotient(numerator: str, divisor: str, *, shift: int, divisor_max: int, cut_at: int = 0) -> str:
    """numerator · 10^shift / divisor over HUGEINTs, rounded half away from zero, by long division.

    `cut_at` > 0: rounded to that many more digits first, as in Spark. Lambdas name the operands, so that their texts
    appear once.
    """
    start = f"{{'n': {numerator}, 'd': {divisor}}}"
    fields = "'d': abs(x.d), 'up': (x.n < 0) = (x.d < 0)"
    state = let(start, f"{{'q': abs(x.n) // abs(x.d), 'r': abs(x.n) % abs(x.d), {fields}}}")
    if not cut_at:
        return rounded_quotient(state, shift=shift, divisor_max=divisor_max)
    state = _divide_on(state, shift, divisor_max)
    state = let(state, "{'whole': x.q, 'q': CAST(0 AS HUGEINT), 'r': x.r, 'd': x.d, 'up': x.up}")
    state = _divide_on(state, cut_at, divisor_max, kept="'whole': x.whole, ")
    half = f"x.q + {_rounded_up('x.r', 'x.d')} >= CAST('5{'0' * (cut_at - 1)}' AS HUGEINT)"
    return _signed(state, f"x.whole + CASE WHEN {half} THEN 1 ELSE 0 END")


def rounded_quotient(state: str, *, shift: int, divisor_max: int) -> str:
    """The end of a long division by `d` with quotient `q` and remainder `r` so far; `up`: whether it is above 0."""
    return _signed(_divide_on(state, shift, divisor_max), f"x.q + {_rounded_up('x.r', 'x.d')}")


def _signed(state: str, size: str) -> str:
    return let(state, f"CASE WHEN x.up THEN {size} ELSE -({size}) END")


def let(value: str, body: str) -> str:
    """`body` with `x` for the value."""
    return f"list_transform([{value}], lambda x: {body})[1]"


def _rounded_up(rest: str, divisor: str) -> str:
    return f"CASE WHEN {rest} >= {divisor} - {rest} THEN CAST(1 AS HUGEINT) ELSE CAST(0 AS HUGEINT) END"


def _divide_on(state: str, digits: int, divisor_max: int, kept: str = "") -> str:
    """`digits` more digits of the quotient, as many at once as a remainder below the divisor leaves free of 38."""
    while digits > 0:
        step = min(digits, 38 - len(str(divisor_max - 1)))
        ten = power_of_ten(step)
        rest = f"(x.r * {ten})"
        body = f"{{{kept}'q': x.q * {ten} + {rest} // x.d, 'r': {rest} % x.d, 'd': x.d, 'up': x.up}}"
        state = let(state, body)
        digits -= step
    return state


# Spark divides to 39 digits of scale, rounds there, and then rounds to the result's scale.
_SPARK_SCALE = 39


def divide(left: str, left_type: SqlType, right: str, right_type: SqlType, result: SqlType, *, divisor_max: int) -> str:
    """A quotient that is not a half is at least 1/(2·divisor) of the last digit away from one: below 10^39 in all,
    Spark's first rounding cannot bridge that, and is omitted."""
    shift = result.scale - left_type.scale + right_type.scale
    cut_at = _SPARK_SCALE - result.scale if divisor_max * 10**result.scale > 10**_SPARK_SCALE else 0
    sides = unscaled(left, left_type), unscaled(right, right_type)
    return scaled(quotient(*sides, shift=shift, divisor_max=divisor_max, cut_at=cut_at), result)


def remainder(left: str, left_type: SqlType, right: str, right_type: SqlType, result: SqlType) -> str:
    """Sign of the dividend, as in Spark."""
    scale, sides = max(left_type.scale, right_type.scale), ((left, left_type), (right, right_type))
    whole = (f"({unscaled(sql, type_)} * {power_of_ten(scale - type_.scale)})" for sql, type_ in sides)
    return scaled(" % ".join(whole), result)


def to_double(sql: str, type_: SqlType) -> str:
    if type_.precision <= _EXACT_DOUBLE_DIGITS:
        return f"CAST({sql} AS DOUBLE)"
    return f"CAST(CAST({sql} AS VARCHAR) AS DOUBLE)"


def to_string(sql: str, type_: SqlType) -> str:
    """One more digit of precision makes DuckDB write the 0 before the point."""
    if type_.precision == type_.scale:
        return f"CAST(CAST({sql} AS DECIMAL({type_.precision + 1},{type_.scale})) AS VARCHAR)"
    return f"CAST({sql} AS VARCHAR)"


NARROW_DIGITS_MAX = 28  # ten billion values of so many digits add up to 38
BASE_DIGITS = 19
_BASE = power_of_ten(BASE_DIGITS)


def limbs(value: str, type_: SqlType) -> list[str]:
    """The high and the low limb of the sum of `value`, NULL or 0 for no rows; up to 28 digits are added as they are, fast."""
    small = _is_small(value, type_)
    high, low = (f"sum(CASE WHEN NOT ({small}) THEN {limb} END)" for limb in _split(value, type_))
    plain = unscaled(f"sum(CASE WHEN {small} THEN {value} END)", decimal(38, type_.scale))
    return [high, f"coalesce({plain}, 0) + coalesce({low}, 0)"]


def limbs_of_one(value: str, type_: SqlType) -> list[str]:
    """The same for a single value."""
    small, (high, low) = _is_small(value, type_), _split(value, type_)
    return [
        f"CASE WHEN NOT ({small}) THEN {high} END",
        f"CASE WHEN {small} THEN {unscaled(value, type_)} ELSE {low} END",
    ]


def _is_small(value: str, type_: SqlType) -> str:
    bound = f"{Decimal(1).scaleb(NARROW_DIGITS_MAX - type_.scale):f}"
    return f"{value} BETWEEN CAST('-{bound}' AS {type_.duckdb}) AND CAST('{bound}' AS {type_.duckdb})"


def _split(value: str, type_: SqlType) -> tuple[str, str]:
    whole = unscaled(value, type_)
    return f"{whole} // {_BASE}", f"{whole} % {_BASE}"


def total(high: str, low: str) -> str:
    """The sum as a HUGEINT; fails where 128 bits do not hold it."""
    return f"(({high} + {low} // {_BASE}) * {_BASE} + {low} % {_BASE})"


def average(high: str, low: str, count: str, *, shift: int) -> str:
    """The sum · 10^shift / `count` (from 1 to 2^63), rounded half away from zero, as a HUGEINT; fails as `total` does."""
    carried = let(
        f"{{'h': {high} + {low} // {_BASE}, 'l': {low} % {_BASE}, 'd': {count}}}",
        "{'h': x.h, 'l': x.l, 'd': x.d, 'up': x.h > 0 OR (x.h = 0 AND x.l >= 0)}",
    )
    size = let(carried, "{'h': abs(x.h), 'l': CASE WHEN x.up THEN x.l ELSE -x.l END, 'd': x.d, 'up': x.up}")
    # the low limb may have the opposite sign of the whole
    lent = f"CASE WHEN x.l < 0 THEN {_BASE} ELSE CAST(0 AS HUGEINT) END"
    digits = let(size, f"{{'h': x.h - CASE WHEN x.l < 0 THEN 1 ELSE 0 END, 'l': x.l + {lent}, 'd': x.d, 'up': x.up}}")
    rest = f"(x.h % x.d * {_BASE} + x.l)"
    state = let(digits, f"{{'q': x.h // x.d * {_BASE} + {rest} // x.d, 'r': {rest} % x.d, 'd': x.d, 'up': x.up}}")
    return rounded_quotient(state, shift=shift, divisor_max=2**63)
