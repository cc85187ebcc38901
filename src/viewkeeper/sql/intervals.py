"""Intervals: days and INTERVAL literals that are added to DATE and TIMESTAMP.

In: bound operands, and an interval literal of sqlglot's tree. Out: bound calls. Always: a result outside the years 1
to 9999 is a failure: Spark computes with such dates, but neither its documentation nor Python has them.
"""

from __future__ import annotations

import re

from sqlglot import exp

from viewkeeper.errors import TypeMismatch, UnsupportedSql
from viewkeeper.model import types
from viewkeeper.sql.expressions import Expression, Literal
from viewkeeper.sql.function_table import FUNCTIONS

_SECOND = 1_000_000  # in microseconds
_MONTHS = {"year": 12, "month": 1}
_MICROS = {
    "week": 7 * 86_400 * _SECOND,
    "day": 86_400 * _SECOND,
    "hour": 3600 * _SECOND,
    "minute": 60 * _SECOND,
    "second": _SECOND,
}
_INTERVAL_MAX = 10_000 * 366  # days; more than there are between the first and the last date


def shift_by_days(operator: str, left: Expression, right: Expression) -> Expression | None:
    """DATE + n, n + DATE and DATE - n; None when neither side is a DATE."""
    if operator == "+" and right.type == types.DATE:
        left, right = right, left
    if left.type != types.DATE or operator not in ("+", "-"):
        return None
    if right.type in (types.DATE, types.TIMESTAMP):
        raise UnsupportedSql(f"{left.type} {operator} {right.type} is not supported", "DATEDIFF(a, b) gives days")
    if right.type != types.INT:
        raise TypeMismatch(f"DATE {operator} {right.type} is not defined", "add an INT, or an INTERVAL literal")
    return FUNCTIONS["date_add" if operator == "+" else "date_sub"].bind([left, right])


def shift_by_interval(operator: str, arg: Expression, interval: exp.Interval) -> Expression:
    """arg + INTERVAL n unit, or arg - …, with Spark's type."""
    if arg.type not in (types.DATE, types.TIMESTAMP):
        raise TypeMismatch(f"an INTERVAL is added to DATE or TIMESTAMP, not to {arg.type}")
    count, unit = _read_interval(interval)
    count = -count if operator == "-" else count
    if unit in _MONTHS:
        months = Literal(count * _MONTHS[unit], types.INT)
        return FUNCTIONS["add_months" if arg.type == types.DATE else "timestamp_add_months"].bind([arg, months])
    if arg.type == types.DATE and unit in ("week", "day"):
        return FUNCTIONS["date_add"].bind([arg, Literal(count * (7 if unit == "week" else 1), types.INT)])
    return FUNCTIONS["timestamp_add_micros"].bind([arg, Literal(count * _MICROS[unit], types.BIGINT)])


def _read_interval(node: exp.Interval) -> tuple[int, str]:
    unit = node.args["unit"].name.lower().removesuffix("s") if isinstance(node.args.get("unit"), exp.Var) else ""
    value = node.this.name if isinstance(node.this, exp.Literal) else ""
    if (unit not in _MONTHS and unit not in _MICROS) or not re.fullmatch(r"-?\d{1,18}", value):
        shown = node.sql(dialect="spark")
        raise UnsupportedSql(f"{shown} is not supported", "write one whole number and one unit: INTERVAL 3 DAY")
    days = abs(int(value)) * (_MONTHS[unit] * 31 if unit in _MONTHS else _MICROS[unit] / _MICROS["day"])
    if days > _INTERVAL_MAX:
        raise UnsupportedSql(f"{node.sql(dialect='spark')} is longer than all years of a calendar")
    return int(value), unit
