"""Binding of functions over numbers, of bit operators, and of functions that choose among values.

In: bound arguments. Out: bound calls, or a plain CASE where that is enough. Always: what engines compute to different
bits (powers, logarithms, rounding of DOUBLE) has no rule here.
"""

from __future__ import annotations

from collections.abc import Sequence

from viewkeeper.errors import TypeMismatch, UnsupportedSql
from viewkeeper.model import types
from viewkeeper.model.types import SqlType, decimal
from viewkeeper.sql import construct
from viewkeeper.sql.expressions import Call, Expression, Literal
from viewkeeper.sql.literals import VOID
from viewkeeper.sql.operands import Function, Rule, check_count, double, number, strict

_DIGITS_MAX = 38
_SHIFT_MAX = 63


def _whole(name: str) -> Rule:
    """FLOOR and CEIL."""

    def bind(args: Sequence[Expression]) -> Expression:
        check_count(name, args, 1, 1)
        arg = construct.typed(args[0], name)
        if not arg.type.is_numeric:
            raise TypeMismatch(f"{name} needs a number, not {arg.type}")
        if arg.type.is_integer:
            arg = construct.coerce(arg, types.BIGINT)
        return strict(name, [arg], _whole_type(arg.type), raises=arg.type.kind == "DOUBLE")

    return bind


def _whole_type(type_: SqlType) -> SqlType:
    if type_.kind != "DECIMAL":
        return types.BIGINT
    return type_ if type_.scale == 0 else decimal(type_.precision - type_.scale + 1, 0)


def _round(args: Sequence[Expression]) -> Expression:
    check_count("round", args, 1, 2)
    arg = construct.typed(args[0], "round")
    if arg.type.kind == "DOUBLE":
        raise UnsupportedSql("round of DOUBLE is not supported", "store the values as DECIMAL(p,s)")
    if not arg.type.is_exact:
        raise TypeMismatch(f"round needs a number, not {arg.type}")
    digits = number(0, _DIGITS_MAX)(args[1], "round") if len(args) == 2 else Literal(0, types.INT)
    if arg.type.is_integer:
        return strict("round", [arg, digits], arg.type)
    scale = min(arg.type.scale, int(str(digits.value)))  # type: ignore[union-attr]
    precision = arg.type.precision - arg.type.scale + 1 + scale
    return strict("round", [arg, digits], decimal(min(precision, _DIGITS_MAX), scale))


def _pmod(args: Sequence[Expression]) -> Expression:
    check_count("pmod", args, 2, 2)
    type_ = _integers("pmod", args)
    sides = [construct.coerce(arg, type_) for arg in args]
    return strict("pmod", sides, type_, raises=not construct.is_nonzero(sides[1]))


def _integers(name: str, args: Sequence[Expression]) -> SqlType:
    """The wider of integer types."""
    for arg in args:
        if not arg.type.is_integer and arg.type != VOID:
            raise TypeMismatch(f"{name} needs INT or BIGINT, not {arg.type}")
    return types.BIGINT if any(arg.type == types.BIGINT for arg in args) else types.INT


def bits(operator: str, args: Sequence[Expression]) -> Expression:
    """& | ^ and ~."""
    type_ = _integers(operator, args)
    return strict(operator, [construct.coerce(arg, type_) for arg in args], type_)


def shift(name: str, args: Sequence[Expression]) -> Expression:
    check_count(name, args, 2, 2)
    type_ = _integers(name, args[:1])
    return strict(name, [construct.coerce(args[0], type_), number(0, _SHIFT_MAX)(args[1], name)], type_)


def _extreme(name: str) -> Rule:
    """GREATEST and LEAST: NULLs are skipped."""

    def bind(args: Sequence[Expression]) -> Expression:
        check_count(name, args, 2, None)
        type_ = construct.shared_type(args, name.upper())
        taken = tuple(construct.coerce(arg, type_) for arg in args)
        return Call(name, taken, type_, all(arg.nullable for arg in taken))

    return bind


def _nvl2(args: Sequence[Expression]) -> Expression:
    check_count("nvl2", args, 3, 3)
    return construct.case([(construct.negation(construct.is_null(args[0])), args[1])], args[2])


def _decode(args: Sequence[Expression]) -> Expression:
    """DECODE(x, a, value, b, value, …, other): NULL matches NULL.

    Without `other` Spark uses a NULL of type STRING, which changes the type of numbers.
    """
    check_count("decode", args, 3, None)
    if len(args) % 2:
        raise UnsupportedSql("decode needs its last argument, the value for all others", "write NULL there")
    pairs = zip(args[1::2], args[2::2], strict=False)
    branches = [(construct.compare("<=>", args[0], sought), value) for sought, value in pairs]
    return construct.case(branches, args[-1])


def _is_null(args: Sequence[Expression]) -> Expression:
    check_count("isnull", args, 1, 1)
    return construct.is_null(args[0])


def _is_not_null(args: Sequence[Expression]) -> Expression:
    check_count("isnotnull", args, 1, 1)
    return construct.negation(construct.is_null(args[0]))


def _is_nan(args: Sequence[Expression]) -> Expression:
    """FALSE for NULL."""
    check_count("isnan", args, 1, 1)
    return Call("isnan", (double(args[0], "isnan"),), types.BOOLEAN, nullable=False)


def _nanvl(args: Sequence[Expression]) -> Expression:
    check_count("nanvl", args, 2, 2)
    left, right = (double(arg, "nanvl") for arg in args)
    return construct.case([(_is_nan([left]), right)], left)


NAMED: dict[str, Rule] = {
    "sign": Function("sign", (double,), types.DOUBLE),
    "signum": Function("sign", (double,), types.DOUBLE),
    "sqrt": Function("sqrt", (double,), types.DOUBLE),
    "floor": _whole("floor"),
    "ceil": _whole("ceil"),
    "ceiling": _whole("ceil"),
    "round": _round,
    "pmod": _pmod,
    "shiftleft": lambda args: shift("shiftleft", args),
    "shiftright": lambda args: shift("shiftright", args),
    "greatest": _extreme("greatest"),
    "least": _extreme("least"),
    "nvl2": _nvl2,
    "decode": _decode,
    "isnull": _is_null,
    "isnotnull": _is_not_null,
    "isnan": _is_nan,
    "nanvl": _nanvl,
}
