"""Typed construction: an operator over bound operands becomes a bound expression.

In: bound operands. Out: a bound expression with type, nullability and `raises`. Always: operands have been cast to the
types the operator works on, so that an engine has nothing left to decide.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import reduce

from viewkeeper.algebra.aggregates import AGGREGATE_FUNCTIONS
from viewkeeper.algebra.expressions import Aggregate, Call, Case, Cast, Expression, Literal
from viewkeeper.algebra.literals import VOID, text_as
from viewkeeper.algebra.type_rules import (
    as_decimal,
    cast_allowed,
    cast_may_fail,
    common_type,
    decimal_result,
    operand_type,
)
from viewkeeper.errors import InvariantBroken, SqlError, TypeMismatch, UnsupportedSql
from viewkeeper.model import types
from viewkeeper.model.types import SqlType, decimal

_SIGN_DIGITS_MAX = 34  # beyond that Spark rounds: it computes - and abs in a 34-digit context
_INTEGER_MAX = {"INT": 2**31, "BIGINT": 2**63}


def coerce(expression: Expression, type_: SqlType) -> Expression:
    """The widening that Spark inserts implicitly; it never fails."""
    if expression.type == type_:
        return expression
    if expression.type == VOID:
        return Literal(None, type_)
    return Cast(expression, type_, implicit=True, raises=False)


def cast(expression: Expression, type_: SqlType) -> Expression:
    """CAST as the user wrote it."""
    source = expression.type
    if not cast_allowed(source, type_):
        raise UnsupportedSql(
            f"CAST of {source} to {type_} is not supported",
            "Spark and DuckDB differ there; store it in a column of that type",
        )
    if source == VOID:
        return Literal(None, type_)
    return Cast(expression, type_, implicit=False, raises=cast_may_fail(source, type_))


def boolean(expression: Expression, where: str) -> Expression:
    if expression.type not in (types.BOOLEAN, VOID):
        raise TypeMismatch(f"{where} needs a BOOLEAN, not {expression.type}", "write a condition such as x > 0")
    return coerce(expression, types.BOOLEAN)


def typed(expression: Expression, where: str) -> Expression:
    if expression.type == VOID:
        raise SqlError(f"NULL has no type in {where}", "write CAST(NULL AS type)")
    return expression


def _integer(literal: Literal) -> int:
    if not isinstance(literal.value, int):
        raise InvariantBroken(f"{literal.text} is no integer")
    return literal.value


def _narrow(expression: Expression, other: Expression) -> SqlType:
    """Next to a DECIMAL, Spark gives an integer literal only the digits it has; other integers all of their type's."""
    if expression.type.is_integer and isinstance(expression, Literal) and other.type.kind == "DECIMAL":
        return decimal(len(str(abs(_integer(expression)))), 0)
    return as_decimal(expression.type)


def magnitude_max(expression: Expression) -> int:
    """A bound on the unscaled value."""
    if isinstance(expression, Cast) and expression.implicit and expression.arg.type.is_integer:
        expression = expression.arg
    if expression.type.is_integer:
        return abs(_integer(expression)) if isinstance(expression, Literal) else _INTEGER_MAX[expression.type.kind]
    return 10**expression.type.precision


def arithmetic(operator: str, left: Expression, right: Expression) -> Expression:
    """+ - * / % div, with Spark's result types."""
    type_ = operand_type(operator, left.type, right.type)
    nullable = left.nullable or right.nullable
    if type_ is not None:
        args = (coerce(left, type_), coerce(right, type_))
        raises = type_.is_integer
        if operator in ("/", "%", "div"):
            raises = not is_nonzero(right) or (operator == "div" and right.value == -1)  # type: ignore[union-attr]
        return Call(operator, args, type_, nullable, raises)
    known = next(side.type for side in (left, right) if side.type.kind == "DECIMAL")
    left, right = (coerce(side, known) if side.type == VOID else side for side in (left, right))
    args = (coerce(left, _narrow(left, right)), coerce(right, _narrow(right, left)))
    result = decimal_result(operator, args[0].type, args[1].type, divisor_max=magnitude_max(right))
    raises = operator in ("/", "%") or result.precision == 38
    return Call(operator, args, result, nullable, raises)


def is_nonzero(expression: Expression) -> bool:
    """A divisor that is certainly not 0."""
    while isinstance(expression, Cast) and expression.implicit:
        expression = expression.arg
    return isinstance(expression, Literal) and bool(expression.value)


def negate(arg: Expression) -> Expression:
    return _unary_number("neg", "-", arg)


def absolute(arg: Expression) -> Expression:
    return _unary_number("abs", "abs", arg)


def _unary_number(name: str, shown: str, arg: Expression) -> Expression:
    if not arg.type.is_numeric:
        raise TypeMismatch(f"{shown} needs a number, not {arg.type}")
    if arg.type.precision > _SIGN_DIGITS_MAX:
        hint = f"CAST it to DECIMAL({_SIGN_DIGITS_MAX},s) or smaller"
        raise UnsupportedSql(f"{shown} of {arg.type} is not supported", hint)
    return Call(name, (arg,), arg.type, arg.nullable, raises=arg.type.is_integer)


def _read_moment(expression: Expression, other: Expression) -> Expression:
    """A string literal next to a DATE or TIMESTAMP is read as one, as in Spark."""
    if isinstance(expression, Literal) and expression.type == types.STRING and other.type.kind in ("DATE", "TIMESTAMP"):
        return Literal(*text_as(str(expression.value), other.type))
    return expression


def compare(operator: str, left: Expression, right: Expression) -> Expression:
    left, right = _read_moment(left, right), _read_moment(right, left)
    mixed = "DECIMAL" in (left.type.kind, right.type.kind) and left.type.is_exact and right.type.is_exact
    if mixed and left.type != right.type:
        left, right = coerce(left, _narrow(left, right)), coerce(right, _narrow(right, left))
    type_ = common_type(left.type, right.type, f"the comparison {operator}")
    type_ = types.BOOLEAN if type_ == VOID else type_
    args = (coerce(left, type_), coerce(right, type_))
    nullable = operator != "<=>" and (left.nullable or right.nullable)
    return Call(operator, args, types.BOOLEAN, nullable)


def logical(operator: str, left: Expression, right: Expression) -> Expression:
    args = (boolean(left, operator.upper()), boolean(right, operator.upper()))
    return Call(operator, args, types.BOOLEAN, left.nullable or right.nullable)


def negation(arg: Expression) -> Expression:
    return Call("not", (boolean(arg, "NOT"),), types.BOOLEAN, arg.nullable)


def is_null(arg: Expression) -> Expression:
    return Call("is null", (coerce(arg, types.INT) if arg.type == VOID else arg,), types.BOOLEAN, nullable=False)


def is_in(arg: Expression, entries: Sequence[Expression]) -> Expression:
    entries = [_read_moment(entry, arg) for entry in entries]
    type_ = shared_type([arg, *entries], "IN")
    args = (coerce(arg, type_), *(coerce(entry, type_) for entry in entries))
    return Call("in", args, types.BOOLEAN, any(part.nullable for part in args))


def shared_type(expressions: Sequence[Expression], where: str) -> SqlType:
    """The type that all are cast to."""
    type_ = reduce(lambda type_, one: common_type(type_, one.type, where), expressions, VOID)
    if type_ == VOID:
        raise SqlError(f"NULL has no type in {where}", "write CAST(NULL AS type)")
    return type_


def case(branches: Sequence[tuple[Expression, Expression]], default: Expression) -> Expression:
    type_ = shared_type([*(value for _, value in branches), default], "CASE")
    pairs = tuple((boolean(when, "WHEN"), coerce(value, type_)) for when, value in branches)
    return Case(pairs, coerce(default, type_), type_)


def coalesce(args: Sequence[Expression]) -> Expression:
    type_ = shared_type(args, "COALESCE")
    return Call("coalesce", tuple(coerce(arg, type_) for arg in args), type_, all(arg.nullable for arg in args))


def null_if(left: Expression, right: Expression) -> Expression:
    typed(left, "NULLIF")
    return case([(compare("=", left, right), Literal(None, left.type))], left)


def aggregate(name: str, args: Sequence[Expression], *, distinct: bool = False) -> Aggregate:
    """A call of a function of `aggregates`; the smallest of distinct values is the smallest of all."""
    function, shown = AGGREGATE_FUNCTIONS[name], name.upper()
    if name == "count":
        counted = tuple(coerce(arg, types.INT) if arg.type == VOID else arg for arg in args)
        return Aggregate("count", counted, types.BIGINT, distinct=distinct)
    arg = typed(args[0], shown)
    return Aggregate(name, (arg,), function.result_type(arg.type), distinct=distinct and not function.is_end)


def filtered(call: Aggregate, condition: Expression) -> Aggregate:
    """An aggregate over the rows for which `condition` is true, and its own filter, if it has one (COUNT_IF has)."""
    return replace(call, filter=condition if call.filter is None else logical("and", condition, call.filter))
