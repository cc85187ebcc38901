"""Binding of functions, and of days and INTERVAL literals that are added to DATE and TIMESTAMP.

In: a node of sqlglot's tree (parsed by `ViewSpark`) and a way to bind its parts; or bound operands and an interval. Out: a
bound expression. Always: a function is found by Spark's own name for it, and refused without a row in `function_table`. A
date outside the years 1 to 9999 is a failure: Spark computes with such dates, but does not document them.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from sqlglot import exp

from viewkeeper.algebra.construct import negation
from viewkeeper.algebra.expressions import Expression, Literal
from viewkeeper.errors import TypeMismatch, UnsupportedSql
from viewkeeper.model import types
from viewkeeper.model.types import STRING
from viewkeeper.sql import alternatives
from viewkeeper.sql.alternatives import refuse_expression
from viewkeeper.sql.function_rows import read_text
from viewkeeper.sql.function_table import NAMED, SCALARS, extract

_MONTHS = {"year": 12, "month": 1}
_SECONDS = {"week": 7 * 86_400, "day": 86_400, "hour": 3600, "minute": 60, "second": 1}
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
    return SCALARS["date_add" if operator == "+" else "date_sub"].bind([left, right])


def shift_by_interval(operator: str, arg: Expression, interval: exp.Interval) -> Expression:
    """arg + INTERVAL n unit, or arg - …, with Spark's type."""
    if arg.type not in (types.DATE, types.TIMESTAMP):
        raise TypeMismatch(f"an INTERVAL is added to DATE or TIMESTAMP, not to {arg.type}")
    count, unit = _read_interval(interval)
    count = -count if operator == "-" else count
    if unit in _MONTHS:
        months = Literal(count * _MONTHS[unit], types.INT)
        return SCALARS["add_months" if arg.type == types.DATE else "timestamp_add_months"].bind([arg, months])
    if arg.type == types.DATE and unit in ("week", "day"):
        return SCALARS["date_add"].bind([arg, Literal(count * (7 if unit == "week" else 1), types.INT)])
    return SCALARS["timestamp_add_micros"].bind([arg, Literal(count * _SECONDS[unit] * 1_000_000, types.BIGINT)])


def _read_interval(node: exp.Interval) -> tuple[int, str]:
    unit = node.args["unit"].name.lower().removesuffix("s") if isinstance(node.args.get("unit"), exp.Var) else ""
    value = node.this.name if isinstance(node.this, exp.Literal) else ""
    if unit not in _MONTHS | _SECONDS or not re.fullmatch(r"-?\d{1,18}", value):
        shown = node.sql(dialect="spark")
        raise UnsupportedSql(f"{shown} is not supported", "write one whole number and one unit: INTERVAL 3 DAY")
    days = abs(int(value)) * (_MONTHS[unit] * 31 if unit in _MONTHS else _SECONDS[unit] / 86_400)
    if days > _INTERVAL_MAX:
        raise UnsupportedSql(f"{node.sql(dialect='spark')} is longer than all years of a calendar")
    return int(value), unit


Bind = Callable[[exp.Expression], Expression]

# What one argument too many would be, and the number of arguments with it.
_REFUSED = {
    **dict.fromkeys(("datediff", "date_diff", "date_add", "dateadd"), (3, "a unit")),
    "to_date": (2, "a pattern"),
}
_BITS: dict[type[exp.Expression], str] = {
    exp.BitwiseAnd: "&",
    exp.BitwiseOr: "|",
    exp.BitwiseXor: "^",
    exp.BitwiseLeftShift: "shiftleft",
    exp.BitwiseRightShift: "shiftright",
}
_TRIMS = {"": "trim", "BOTH": "trim", "LEADING": "ltrim", "TRAILING": "rtrim"}


def bind_named(node: exp.Anonymous, bind: Bind) -> Expression:
    name = str(node.this).lower()
    if name not in NAMED:
        raise refuse_expression(node)
    count, extra = _REFUSED.get(name, (None, ""))
    if len(node.expressions) == count:
        raise UnsupportedSql(f"{node.this} with {extra} is not supported", alternatives.of_function(name))
    return NAMED[name].bind([bind(arg) for arg in node.expressions])


def _bind_bits(node: exp.Expression, bind: Bind) -> Expression:
    """sqlglot gives & | ^ << >> one precedence, Spark gives each its own."""
    sides = (node.this, node.expression)
    if any(type(side) in _BITS and type(side) is not type(node) for side in sides):
        raise UnsupportedSql(f"{node.sql(dialect='spark')} mixes bit operators", "write parentheses")
    return SCALARS[_BITS[type(node)]].bind([bind(side) for side in sides])


def _bind_like(node: exp.Expression, bind: Bind) -> Expression:
    """The pattern is kept with the backslash as its escape, whichever the user chose."""
    mark = read_text(bind(node.expression), "like") if isinstance(node, exp.Escape) else "\\"
    inner = node.this if isinstance(node, exp.Escape) else node
    if not isinstance(inner, exp.Like):
        raise refuse_expression(inner)
    pattern = read_text(bind(inner.expression), "like")
    if len(mark) != 1 or mark in "%_":
        raise UnsupportedSql(f"{mark!r} cannot be the ESCAPE of LIKE", "choose one character, but not % or _")
    like = SCALARS["like"].bind([bind(inner.this), Literal(_with_backslashes(pattern, mark), STRING)])
    return negation(like) if inner.args.get("negate") else like


def _with_backslashes(pattern: str, mark: str) -> str:
    escaped = re.escape(mark)
    if not re.fullmatch(f"(?:[^{escaped}]|{escaped}[%_{escaped}])*", pattern, flags=re.DOTALL):
        raise UnsupportedSql(f"in the pattern {pattern!r} {mark} stands before something else than %, _ or itself")

    def change(found: re.Match[str]) -> str:
        plain = found[0][-1]
        return "\\" + plain if (len(found[0]) == 2 and plain in "%_") or plain == "\\" else plain

    return re.sub(f"{escaped}.|.", change, pattern, flags=re.DOTALL)


def _bind_in_order(function: str, *names: str) -> Callable[[exp.Expression, Bind], Expression]:
    """A node whose operands have these names; what is not there was left out."""
    return lambda node, bind: SCALARS[function].bind([bind(node.args[name]) for name in names if node.args.get(name)])


def _bind_trim(node: exp.Expression, bind: Bind) -> Expression:
    function = _TRIMS[str(node.args.get("position") or "").upper()]
    return _bind_in_order(function, "this", "expression")(node, bind)


SYNTAX: dict[type[exp.Expression], Callable[..., Expression]] = {
    exp.Anonymous: bind_named,
    exp.Extract: lambda node, bind: extract(node.name, bind(node.expression)),
    exp.Like: _bind_like,
    exp.Escape: _bind_like,
    exp.Trim: _bind_trim,
    exp.Substring: _bind_in_order("substring", "this", "start", "length"),
    exp.StrPosition: _bind_in_order("locate", "substr", "this", "position"),
    exp.Concat: lambda node, bind: SCALARS["concat"].bind([bind(part) for part in node.expressions]),
    exp.DPipe: _bind_in_order("concat", "this", "expression"),
    exp.BitwiseNot: _bind_in_order("~", "this"),
    **dict.fromkeys(_BITS, _bind_bits),
}
# The flags and operands, besides `this` and `expression`, that the rules above read, or that mean nothing in Spark.
ARGUMENTS: dict[type[exp.Expression], tuple[str, ...]] = {
    exp.Concat: ("safe", "coalesce"),
    exp.DPipe: ("safe",),
    exp.Substring: ("start", "length"),
    exp.Trim: ("position",),
    exp.Like: ("negate",),
    exp.StrPosition: ("substr", "position"),
}
