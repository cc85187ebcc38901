"""Functions of view SQL: which name, operator or special syntax has which rule.

In: a node of sqlglot's tree (parsed by `ViewSpark`) and a way to bind its parts. Out: a bound expression. Always: a
function is found by Spark's own name for it; what has no row here is refused.
"""

from __future__ import annotations

from collections.abc import Callable

from sqlglot import exp

from viewkeeper.errors import UnsupportedSql
from viewkeeper.sql import date_functions, number_functions, string_functions, ways_round
from viewkeeper.sql.construct import negation
from viewkeeper.sql.expressions import Expression
from viewkeeper.sql.operands import Rule
from viewkeeper.sql.refusals import refuse_expression

Bind = Callable[[exp.Expression], Expression]

NAMED: dict[str, Rule] = {**date_functions.NAMED, **string_functions.NAMED, **number_functions.NAMED}
_BITS = {exp.BitwiseAnd: "&", exp.BitwiseOr: "|", exp.BitwiseXor: "^"}
_WITH_UNIT = frozenset(("datediff", "date_diff", "date_add", "dateadd"))
_SHIFTS = {exp.BitwiseLeftShift: "shiftleft", exp.BitwiseRightShift: "shiftright"}


def bind_named(node: exp.Anonymous, bind: Bind) -> Expression:
    name = str(node.this).lower()
    rule = NAMED.get(name)
    if rule is None:
        raise refuse_expression(node)
    if name in _WITH_UNIT and len(node.expressions) == 3:
        raise UnsupportedSql(f"{node.this} with a unit is not supported", ways_round.of_function(name))
    return rule([bind(arg) for arg in node.expressions])


def _bind_bits(node: exp.Expression, bind: Bind) -> Expression:
    """sqlglot gives & | ^ << >> one precedence, Spark gives each its own."""
    sides = (node.this, node.expression)
    if any(isinstance(side, (*_BITS, *_SHIFTS)) and type(side) is not type(node) for side in sides):
        raise UnsupportedSql(f"{node.sql(dialect='spark')} mixes bit operators", "write parentheses")
    args = [bind(side) for side in sides]
    if type(node) in _BITS:
        return number_functions.bits(_BITS[type(node)], args)
    return number_functions.shift(_SHIFTS[type(node)], args)


def _bind_like(node: exp.Expression, bind: Bind) -> Expression:
    escape = bind(node.expression) if isinstance(node, exp.Escape) else None
    inner = node.this if isinstance(node, exp.Escape) else node
    if not isinstance(inner, exp.Like):
        raise refuse_expression(inner)
    like = string_functions.like(bind(inner.this), bind(inner.expression), escape)
    return negation(like) if inner.args.get("negate") else like


def _bind_trim(node: exp.Expression, bind: Bind) -> Expression:
    characters = node.args.get("expression")
    return string_functions.trim(
        str(node.args.get("position") or ""), bind(node.this), bind(characters) if characters else None
    )


def _bind_substring(node: exp.Expression, bind: Bind) -> Expression:
    numbers = [node.args[name] for name in ("start", "length") if node.args.get(name)]
    return string_functions.substring([bind(part) for part in (node.this, *numbers)])


def _bind_position(node: exp.Expression, bind: Bind) -> Expression:
    parts = [node.args["substr"], node.this, *([node.args["position"]] if node.args.get("position") else [])]
    return string_functions.locate([bind(part) for part in parts])


SYNTAX: dict[type[exp.Expression], Callable[..., Expression]] = {
    exp.Anonymous: bind_named,
    exp.Extract: lambda node, bind: date_functions.bind_extract(node.name, bind(node.expression)),
    exp.Like: _bind_like,
    exp.Escape: _bind_like,
    exp.Trim: _bind_trim,
    exp.Substring: _bind_substring,
    exp.StrPosition: _bind_position,
    exp.BitwiseNot: lambda node, bind: number_functions.bits("~", [bind(node.this)]),
    **dict.fromkeys((*_BITS, *_SHIFTS), _bind_bits),
}
# The operands, besides `this` and `expression`, that the rules above read.
ARGUMENTS: dict[type[exp.Expression], tuple[str, ...]] = {
    exp.Substring: ("start", "length"),
    exp.Trim: ("position",),
    exp.Like: ("negate",),
    exp.StrPosition: ("substr", "position"),
}
