"""DECIMAL in DuckDB: exact arithmetic as Spark does it, on unscaled 128-bit integers where DuckDB itself would round.

In: SQL texts of DECIMAL values and their types. Out: SQL texts. Always: no value passes through DOUBLE, except where
DOUBLE is asked for, and then it is the nearest one.
"""

from __future__ import annotations

from viewkeeper.model.types import SqlType

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


def quotient(numerator: str, divisor: str, shift: int) -> str:
    """numerator · 10^shift / divisor over HUGEINTs, rounded half away from zero, by long division.

    The lambda gives the operands names, so that their texts stand here once.
    """
    ten = power_of_ten(shift)
    rest = f"((x.n % x.d) * {ten})"
    cut = f"(x.n // x.d) * {ten} + {rest} // x.d"
    away = f"CASE WHEN (x.n < 0) = (x.d < 0) THEN {power_of_ten(0)} ELSE -{power_of_ten(0)} END"
    half = f"abs({rest} % x.d) >= abs(x.d) - abs({rest} % x.d)"
    body = f"{cut} + CASE WHEN {half} THEN {away} ELSE CAST(0 AS HUGEINT) END"
    return f"list_transform([{{'n': {numerator}, 'd': {divisor}}}], lambda x: {body})[1]"


def divide(left: str, left_type: SqlType, right: str, right_type: SqlType, result: SqlType) -> str:
    shift = result.scale - left_type.scale + right_type.scale
    return scaled(quotient(unscaled(left, left_type), unscaled(right, right_type), shift), result)


def remainder(left: str, left_type: SqlType, right: str, right_type: SqlType, result: SqlType) -> str:
    """Sign of the dividend, as in Spark."""
    scale = max(left_type.scale, right_type.scale)
    sides = []
    for sql, type_ in ((left, left_type), (right, right_type)):
        sides.append(f"{unscaled(sql, type_)} * {power_of_ten(scale - type_.scale)}")
    return scaled(f"({sides[0]}) % ({sides[1]})", result)


def to_double(sql: str, type_: SqlType) -> str:
    if type_.precision <= _EXACT_DOUBLE_DIGITS:
        return f"CAST({sql} AS DOUBLE)"
    return f"CAST(CAST({sql} AS VARCHAR) AS DOUBLE)"


def to_string(sql: str, type_: SqlType) -> str:
    """One more digit of precision makes DuckDB write the 0 before the point."""
    if type_.precision == type_.scale:
        return f"CAST(CAST({sql} AS DECIMAL({type_.precision + 1},{type_.scale})) AS VARCHAR)"
    return f"CAST({sql} AS VARCHAR)"
