"""Binding of functions over DATE and TIMESTAMP.

In: bound arguments, or an interval literal of sqlglot's tree. Out: bound calls. Always: a result outside the years 1
to 9999 is a failure: Spark computes with such dates, but neither its documentation nor Python has them.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from sqlglot import exp

from viewkeeper.errors import TypeMismatch, UnsupportedSql
from viewkeeper.model import types
from viewkeeper.sql import construct
from viewkeeper.sql.expressions import Expression, Literal
from viewkeeper.sql.operands import (
    Function,
    Rule,
    check_count,
    date,
    fixed_text,
    instant,
    integer,
    long,
    moment,
    strict,
)

_SECOND = 1_000_000  # in microseconds
_PARTS = {
    "year": "year years y yr yrs",
    "quarter": "quarter qtr",
    "month": "month mon mons months",
    "weekofyear": "week w weeks",
    "day": "day d days",
    "dayofweek": "dayofweek dow",
    "dayofweek_iso": "dayofweek_iso dow_iso",
    "dayofyear": "doy",
    "yearofweek": "yearofweek",
    "hour": "hour h hours hr hrs",
    "minute": "minute m min mins minutes",
    "extract_second": "second s sec seconds secs",
}
_PART_NAMED = {word: part for part, words in _PARTS.items() for word in words.split()}
_OF_CLOCK = ("hour", "minute", "second", "extract_second")
_DATE_UNITS = {
    "year": "year yyyy yy",
    "quarter": "quarter",
    "month": "month mm mon",
    "week": "week",
}
_TIME_UNITS = _DATE_UNITS | {"day": "day dd", "hour": "hour", "minute": "minute", "second": "second"}
_MONTHS = {"year": 12, "month": 1}
_MICROS = {
    "week": 7 * 86_400 * _SECOND,
    "day": 86_400 * _SECOND,
    "hour": 3600 * _SECOND,
    "minute": 60 * _SECOND,
    "second": _SECOND,
}
_INTERVAL_MAX = 10_000 * 366  # days; more than there are between the first and the last date


def part(name: str, arg: Expression) -> Expression:
    """A field of a date, or of the time of day."""
    taken = (moment if name in _OF_CLOCK else date)(arg, name)
    return strict(name, [taken], types.decimal(8, 6) if name == "extract_second" else types.INT)


def bind_extract(field: str, arg: Expression) -> Expression:
    """EXTRACT(field FROM arg); the seconds have a fraction, unlike SECOND(arg)."""
    name = _PART_NAMED.get(field.lower())
    if name is None:
        raise UnsupportedSql(f"EXTRACT({field} FROM …) is not supported", "write YEAR, MONTH, DAY, HOUR, …")
    return part(name, arg)


def _date_part(args: Sequence[Expression]) -> Expression:
    check_count("date_part", args, 2, 2)
    return bind_extract(str(fixed_text(args[0], "date_part").value), args[1])  # type: ignore[union-attr]


def _named_part(name: str) -> Rule:
    def bind(args: Sequence[Expression]) -> Expression:
        check_count(name, args, 1, 1)
        return part(name, args[0])

    return bind


def _unit(arg: Expression, name: str, units: dict[str, str]) -> Literal:
    """Spark returns NULL for an unknown unit; here it is refused."""
    written = fixed_text(arg, name)
    for unit, spellings in units.items():
        if str(written.value).lower() in spellings.split():  # type: ignore[union-attr]
            return Literal(unit, types.STRING)
    raise UnsupportedSql(f"{name} by {arg.text} is not supported", f"the units are {', '.join(units)}")


def _date_trunc(args: Sequence[Expression]) -> Expression:
    check_count("date_trunc", args, 2, 2)
    unit = _unit(args[0], "date_trunc", _TIME_UNITS)
    return strict("date_trunc", [unit, moment(args[1], "date_trunc")], types.TIMESTAMP)


def _trunc(args: Sequence[Expression]) -> Expression:
    check_count("trunc", args, 2, 2)
    return strict("trunc", [date(args[0], "trunc"), _unit(args[1], "trunc", _DATE_UNITS)], types.DATE)


def _to_date(args: Sequence[Expression]) -> Expression:
    if len(args) == 2:
        raise UnsupportedSql("to_date with a pattern is not supported", "store the value as a DATE")
    check_count("to_date", args, 1, 1)
    return construct.cast(args[0], types.DATE)


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
    return NAMED["date_add" if operator == "+" else "date_sub"]([left, right])


def shift_by_interval(operator: str, arg: Expression, interval: exp.Interval) -> Expression:
    """arg + INTERVAL n unit, or arg - …, with Spark's type."""
    if arg.type not in (types.DATE, types.TIMESTAMP):
        raise TypeMismatch(f"an INTERVAL is added to DATE or TIMESTAMP, not to {arg.type}")
    count, unit = _read_interval(interval)
    count = -count if operator == "-" else count
    if unit in _MONTHS:
        months = Literal(count * _MONTHS[unit], types.INT)
        if arg.type == types.DATE:
            return strict("add_months", [arg, months], types.DATE, raises=True)
        return strict("timestamp_add_months", [arg, months], types.TIMESTAMP, raises=True)
    if arg.type == types.DATE and unit in ("week", "day"):
        days = Literal(count * (7 if unit == "week" else 1), types.INT)
        return strict("date_add", [arg, days], types.DATE, raises=True)
    micros = Literal(count * _MICROS[unit], types.BIGINT)
    return strict("timestamp_add_micros", [moment(arg, "+"), micros], types.TIMESTAMP, raises=True)


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


_FIELDS = "year quarter month weekofyear day dayofweek weekday dayofyear hour minute second"

NAMED: dict[str, Rule] = {
    **{name: _named_part(name) for name in _FIELDS.split()},
    "dayofmonth": _named_part("day"),
    "date_part": _date_part,
    "datepart": _date_part,
    "date_trunc": _date_trunc,
    "trunc": _trunc,
    "to_date": _to_date,
    "date_add": Function("date_add", (date, integer), types.DATE, raises=True),
    "dateadd": Function("date_add", (date, integer), types.DATE, raises=True),
    "date_sub": Function("date_sub", (date, integer), types.DATE, raises=True),
    "datediff": Function("datediff", (date, date), types.INT),
    "date_diff": Function("datediff", (date, date), types.INT),
    "add_months": Function("add_months", (date, integer), types.DATE, raises=True),
    "last_day": Function("last_day", (date,), types.DATE),
    "unix_seconds": Function("unix_seconds", (instant,), types.BIGINT),
    "unix_millis": Function("unix_millis", (instant,), types.BIGINT),
    "unix_micros": Function("unix_micros", (instant,), types.BIGINT),
    "unix_date": Function("unix_date", (date,), types.INT),
    "date_from_unix_date": Function("date_from_unix_date", (integer,), types.DATE, raises=True),
    "timestamp_seconds": Function("timestamp_seconds", (long,), types.TIMESTAMP, raises=True),
    "timestamp_millis": Function("timestamp_millis", (long,), types.TIMESTAMP, raises=True),
    "timestamp_micros": Function("timestamp_micros", (long,), types.TIMESTAMP, raises=True),
    "make_date": Function("make_date", (integer, integer, integer), types.DATE, raises=True),
}
