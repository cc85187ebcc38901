"""Functions of view SQL: which operator or special syntax is which function of the table.

In: a node of sqlglot's tree (parsed by `ViewSpark`) and a way to bind its parts. Out: a bound expression. Always: a
function is found by Spark's own name for it; what has no row in `function_table` is refused.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from sqlglot import exp

from viewkeeper.errors import UnsupportedSql
from viewkeeper.model.types import STRING
from viewkeeper.sql import ways_round
from viewkeeper.sql.construct import negation
from viewkeeper.sql.expressions import Expression, Literal
from viewkeeper.sql.function_table import FUNCTIONS, NAMED, extract
from viewkeeper.sql.operands import read_text
from viewkeeper.sql.refusals import refuse_expression

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
        raise UnsupportedSql(f"{node.this} with {extra} is not supported", ways_round.of_function(name))
    return NAMED[name].bind([bind(arg) for arg in node.expressions])


def _bind_bits(node: exp.Expression, bind: Bind) -> Expression:
    """sqlglot gives & | ^ << >> one precedence, Spark gives each its own."""
    sides = (node.this, node.expression)
    if any(type(side) in _BITS and type(side) is not type(node) for side in sides):
        raise UnsupportedSql(f"{node.sql(dialect='spark')} mixes bit operators", "write parentheses")
    return FUNCTIONS[_BITS[type(node)]].bind([bind(side) for side in sides])


def _bind_like(node: exp.Expression, bind: Bind) -> Expression:
    """The pattern is kept with the backslash as its escape, whichever the user chose."""
    mark = read_text(bind(node.expression), "like") if isinstance(node, exp.Escape) else "\\"
    inner = node.this if isinstance(node, exp.Escape) else node
    if not isinstance(inner, exp.Like):
        raise refuse_expression(inner)
    pattern = read_text(bind(inner.expression), "like")
    if len(mark) != 1 or mark in "%_":
        raise UnsupportedSql(f"{mark!r} cannot be the ESCAPE of LIKE", "choose one character, but not % or _")
    like = FUNCTIONS["like"].bind([bind(inner.this), Literal(_with_backslashes(pattern, mark), STRING)])
    return negation(like) if inner.args.get("negate") else like


def _with_backslashes(pattern: str, mark: str) -> str:
    escaped = re.escape(mark)
    if not re.fullmatch(f"(?:[^{escaped}]|{escaped}[%_{escaped}])*", pattern, flags=re.DOTALL):
        raise UnsupportedSql(f"in the pattern {pattern!r} {mark} stands before something else than %, _ or itself")

    def change(found: re.Match[str]) -> str:
        token = found[0]
        plain = token[1] if len(token) == 2 else token
        return "\\" + plain if (len(token) == 2 and plain in "%_") or plain == "\\" else plain

    return re.sub(f"{escaped}.|.", change, pattern, flags=re.DOTALL)


def _bind_in_order(function: str, *names: str) -> Callable[[exp.Expression, Bind], Expression]:
    """A node whose operands have these names; what is not there was left out."""
    return lambda node, bind: FUNCTIONS[function].bind([bind(node.args[name]) for name in names if node.args.get(name)])


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
    exp.Concat: lambda node, bind: FUNCTIONS["concat"].bind([bind(part) for part in node.expressions]),
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
