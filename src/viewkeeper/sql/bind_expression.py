"""Binding of expressions: from sqlglot's tree to ours.

In: a node and a `Scope`. Out: a bound `Expression`. Always: a node without a rule here is refused.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from sqlglot import exp

from viewkeeper.algebra import construct
from viewkeeper.algebra.aggregates import AGGREGATE_FUNCTIONS, NODES, OF_CONDITIONS
from viewkeeper.algebra.expressions import Aggregate, Expression, Literal, walk
from viewkeeper.algebra.literals import VOID, read_literal, target_type
from viewkeeper.errors import SqlError, UnsupportedSql
from viewkeeper.model import types
from viewkeeper.sql import bind_functions
from viewkeeper.sql.alternatives import name_of, refuse_expression, refuse_subquery
from viewkeeper.sql.scope import Scope

DEPTH_MAX = 100

_ARITHMETIC = {exp.Add: "+", exp.Sub: "-", exp.Mul: "*", exp.Div: "/", exp.Mod: "%", exp.IntDiv: "div"}
_COMPARED = {exp.EQ: "=", exp.NEQ: "<>", exp.LT: "<", exp.LTE: "<=", exp.GT: ">", exp.GTE: ">=", exp.NullSafeEQ: "<=>"}
_BELONGS = "aggregates belong in the select list or in HAVING"


def bind_expression(node: exp.Expression, scope: Scope) -> Expression:
    if scope.depth > DEPTH_MAX:
        raise UnsupportedSql(f"the expression is nested more than {DEPTH_MAX} deep", "split it over several views")
    scope = replace(scope, depth=scope.depth + 1)
    if (literal := read_literal(node)) is not None:
        return Literal(*literal)
    kind = type(node)
    # sqlglot keeps some of the meaning in flags (NOT LIKE is a Like with `negate`); an unknown flag is refused
    known = (_ARGUMENTS | bind_functions.ARGUMENTS).get(kind, ()) + ("this", "expression", "expressions")
    for name, value in node.args.items() if kind in _RULED else ():
        if value and name not in known:
            raise UnsupportedSql(f"{name} in {node.sql(dialect='spark')} is not supported")
    if kind in _ARITHMETIC:
        return _bind_arithmetic(node, scope)
    if kind in _COMPARED:
        return construct.compare(_COMPARED[kind], *_sides(node, scope))
    if kind in NODES:
        return _bind_aggregate(node, scope)
    if kind in _RULES:
        return _RULES[kind](node, scope)
    if kind in bind_functions.SYNTAX:
        return bind_functions.SYNTAX[kind](node, lambda part: bind_expression(part, scope))
    raise refuse_expression(node)


def _sides(node: exp.Expression, scope: Scope) -> tuple[Expression, Expression]:
    return bind_expression(node.this, scope), bind_expression(node.expression, scope)


def _bind_arithmetic(node: exp.Expression, scope: Scope) -> Expression:
    """Numbers; also DATE and TIMESTAMP, to which days and intervals are added."""
    operator = _ARITHMETIC[type(node)]
    if operator in ("+", "-") and isinstance(node.expression, exp.Interval):
        return bind_functions.shift_by_interval(operator, bind_expression(node.this, scope), node.expression)
    if operator == "+" and isinstance(node.this, exp.Interval):
        return bind_functions.shift_by_interval(operator, bind_expression(node.expression, scope), node.this)
    left, right = _sides(node, scope)
    return bind_functions.shift_by_days(operator, left, right) or construct.arithmetic(operator, left, right)


def _bind_column(node: exp.Column, scope: Scope) -> Expression:
    if isinstance(node.this, exp.Star):
        raise SqlError("* stands alone in a select list or in COUNT(*)")
    if not node.table and node.name.lower() in scope.aliases:
        meant = scope.aliases[node.name.lower()]
        if scope.barred is not None and any(isinstance(part, Aggregate) for part in walk(meant)):
            raise SqlError(f"{node.name} is an aggregate and cannot stand in {scope.barred}")
        return meant
    return scope.find(node).expression


def _bind_aggregate(node: exp.Expression, scope: Scope) -> Expression:
    shown = name_of(node).upper()
    name = shown.lower() if shown.lower() in AGGREGATE_FUNCTIONS else NODES[type(node)]
    if scope.barred is not None:
        raise SqlError(f"{shown}() cannot stand in {scope.barred}", _BELONGS)
    if node.expressions:
        hint = "write COUNT(*) FILTER (WHERE a IS NOT NULL AND b IS NOT NULL)" if name == "count" else "name one column"
        raise UnsupportedSql(f"{shown} of several arguments is not supported", hint)
    if isinstance(node.this, exp.Star):
        if name != "count":
            raise SqlError(f"{shown}(*) is not a function", "name the column")
        return construct.aggregate(name, ())
    distinct = isinstance(node.this, exp.Distinct)
    inner = replace(scope, barred="another aggregate")
    args = [bind_expression(arg, inner) for arg in (node.this.expressions if distinct else (node.this,))]
    if type(node) in OF_CONDITIONS:
        args = [construct.boolean(arg, shown) for arg in args]
    if distinct and len(args) > 1 and name != "count":
        raise UnsupportedSql(f"{shown}(DISTINCT …) of several columns is not supported", "name one column")
    return replace(construct.aggregate(name, args, distinct=distinct), shown=OF_CONDITIONS.get(type(node), ""))


def _bind_filter(node: exp.Filter, scope: Scope) -> Expression:
    """`aggregate FILTER (WHERE condition)`."""
    call = bind_expression(node.this, scope)
    if not isinstance(call, Aggregate) or isinstance(node.this, exp.Paren):
        raise SqlError("FILTER must follow an aggregate call", "write SUM(x) FILTER (WHERE condition)")
    condition = bind_expression(node.expression.this, replace(scope, barred="FILTER"))
    return construct.filtered(call, construct.boolean(condition, "FILTER"))


def _bind_count_if(node: exp.CountIf, scope: Scope) -> Expression:
    if scope.barred is not None:
        raise SqlError(f"COUNT_IF() cannot stand in {scope.barred}", _BELONGS)
    if isinstance(node.this, exp.Distinct):
        hint = "it is 0 or 1: COALESCE(CAST(BOOL_OR(condition) AS BIGINT), 0)"
        raise UnsupportedSql("COUNT_IF(DISTINCT …) is not supported", hint)
    condition = bind_expression(node.this, replace(scope, barred="another aggregate"))
    counted = replace(construct.aggregate("count", ()), shown=OF_CONDITIONS[exp.CountIf])
    return construct.filtered(counted, construct.boolean(condition, "COUNT_IF"))


def _bind_is(node: exp.Is, scope: Scope) -> Expression:
    arg = bind_expression(node.this, scope)
    if isinstance(node.expression, exp.Null):
        return construct.is_null(arg)
    if isinstance(node.expression, exp.Boolean):
        wanted = Literal(bool(node.expression.this), types.BOOLEAN)
        return construct.compare("<=>", construct.boolean(arg, "IS"), wanted)
    raise refuse_expression(node)


def _bind_in(node: exp.In, scope: Scope) -> Expression:
    if node.args.get("query"):
        raise refuse_subquery(node)
    if node.args.get("unnest") or node.args.get("field"):
        raise UnsupportedSql("IN takes a list of values or a subquery in parentheses")
    entries = [bind_expression(entry, scope) for entry in node.expressions]
    if not entries:
        raise SqlError("IN () lists nothing", "list at least one value")
    if not all(isinstance(entry, Literal) for entry in entries):
        raise UnsupportedSql("IN takes literals only", "write x = a OR x = b")
    return construct.is_in(bind_expression(node.this, scope), entries)


def _bind_between(node: exp.Between, scope: Scope) -> Expression:
    if node.args.get("symmetric"):
        raise UnsupportedSql("BETWEEN SYMMETRIC is not supported", "write x BETWEEN a AND b OR x BETWEEN b AND a")
    arg = bind_expression(node.this, scope)
    low = construct.compare(">=", arg, bind_expression(node.args["low"], scope))
    high = construct.compare("<=", arg, bind_expression(node.args["high"], scope))
    return construct.logical("and", low, high)


def _bind_case(node: exp.Case, scope: Scope) -> Expression:
    subject = bind_expression(node.this, scope) if node.this else None
    branches = []
    for branch in node.args["ifs"]:
        when = bind_expression(branch.this, scope)
        when = when if subject is None else construct.compare("=", subject, when)
        branches.append((when, bind_expression(branch.args["true"], scope)))
    default = node.args.get("default")
    return construct.case(branches, bind_expression(default, scope) if default else Literal(None, VOID))


def _bind_if(node: exp.If, scope: Scope) -> Expression:
    otherwise = node.args.get("false")
    if otherwise is None:
        raise SqlError("IF takes three arguments", "write IF(condition, value, other value), or CASE WHEN … THEN … END")
    branch = (bind_expression(node.this, scope), bind_expression(node.args["true"], scope))
    return construct.case([branch], bind_expression(otherwise, scope))


def _bind_cast(node: exp.Cast, scope: Scope) -> Expression:
    if node.args.get("format"):
        raise UnsupportedSql("CAST … FORMAT is not supported", "CAST without FORMAT reads and writes ISO 8601")
    if node.args.get("safe") or node.args.get("default"):
        raise refuse_expression(node)
    return construct.cast(bind_expression(node.this, scope), target_type(node))


_RULES: dict[type[exp.Expression], Callable[..., Expression]] = {
    exp.Paren: lambda node, scope: bind_expression(node.this, scope),
    exp.Column: _bind_column,
    exp.Neg: lambda node, scope: construct.negate(bind_expression(node.this, scope)),
    exp.Abs: lambda node, scope: construct.absolute(bind_expression(node.this, scope)),
    exp.And: lambda node, scope: construct.logical("and", *_sides(node, scope)),
    exp.Or: lambda node, scope: construct.logical("or", *_sides(node, scope)),
    exp.NullSafeNEQ: lambda node, scope: construct.negation(construct.compare("<=>", *_sides(node, scope))),
    exp.Not: lambda node, scope: construct.negation(bind_expression(node.this, scope)),
    exp.Is: _bind_is,
    exp.In: _bind_in,
    exp.Between: _bind_between,
    exp.Case: _bind_case,
    exp.If: _bind_if,
    exp.Coalesce: lambda node, scope: construct.coalesce(
        [bind_expression(arg, scope) for arg in (node.this, *node.expressions)]
    ),
    exp.Nullif: lambda node, scope: construct.null_if(*_sides(node, scope)),
    exp.Cast: _bind_cast,
    exp.TryCast: _bind_cast,
    exp.Filter: _bind_filter,
    exp.CountIf: _bind_count_if,
}
_RULED = frozenset({*_RULES, *bind_functions.SYNTAX, *_ARITHMETIC, *_COMPARED, *NODES})

# The flags and operands that the rules above read, or that have no meaning under Spark's ANSI rules.
_ARGUMENTS: dict[type[exp.Expression], tuple[str, ...]] = {
    exp.Column: ("table", "db", "catalog"),
    exp.Count: ("big_int",),
    exp.Div: ("typed", "safe"),
    exp.In: ("query", "unnest", "field"),
    exp.Between: ("low", "high", "symmetric"),
    exp.Case: ("ifs", "default"),
    exp.If: ("true", "false"),
    exp.Cast: ("to", "safe", "format", "default"),
    exp.TryCast: ("to", "safe", "format", "default"),
}
