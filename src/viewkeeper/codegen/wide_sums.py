"""Sums of wide DECIMALs in DuckDB: two limbs of 128 bits, where one could overflow.

In: SQL texts of DECIMAL values of more than 28 digits. Out: SQL of the limbs of their sum, which is high · 10^19 + low
in units of the last digit, and of the sum and the average that limbs represent. Always: exact, for any number of rows;
a limb is itself a sum, so limbs are added and subtracted one by one.
"""

from __future__ import annotations

from decimal import Decimal

from viewkeeper.codegen.decimals import let, power_of_ten, rounded_quotient, unscaled
from viewkeeper.model.types import SqlType, decimal

NARROW_DIGITS_MAX = 28  # ten billion values of so many digits add up to 38
BASE_DIGITS = 19
_BASE = power_of_ten(BASE_DIGITS)


def limbs(value: str, type_: SqlType) -> list[str]:
    """The high and the low limb of the sum of `value`; NULL or 0 if there is nothing to add.

    A value of up to 28 digits, as nearly all are, is added as it is: DuckDB does that fast.
    """
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
