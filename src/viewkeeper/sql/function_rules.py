"""Rules that rows of the table of functions refer to: types that follow from the arguments, and rewritings.

In: bound arguments. Out: a type, or a bound expression. Always: Spark's types and Spark's order of evaluation.
"""

from __future__ import annotations

from collections.abc import Sequence

from viewkeeper.errors import UnsupportedSql
from viewkeeper.model import types
from viewkeeper.model.types import SqlType, decimal
from viewkeeper.sql import construct
from viewkeeper.sql.expressions import Call, Expression, children
from viewkeeper.sql.function_rows import Gives
from viewkeeper.sql.operands import double
from viewkeeper.sql.type_rules import DIGITS_MAX

WIDTH_MAX = 10_000  # of padding and repetition: a row must not grow to gigabytes


def _whole_type(args: Sequence[Expression]) -> SqlType:
    type_ = args[0].type
    if type_.kind != "DECIMAL":
        return types.BIGINT
    return type_ if type_.scale == 0 else decimal(type_.whole_digits + 1, 0)


def _rounded_type(args: Sequence[Expression]) -> SqlType:
    type_, digits = args[0].type, int(str(args[1].value))  # type: ignore[union-attr]
    if type_.is_integer:
        return type_
    scale = min(type_.scale, digits)
    return decimal(min(type_.whole_digits + 1 + scale, DIGITS_MAX), scale)


def _repeated_type(args: Sequence[Expression]) -> SqlType:
    times = _repetitions(Call("repeat", tuple(args), types.STRING, nullable=True))
    if times > WIDTH_MAX:
        raise UnsupportedSql(f"repeat within repeat makes {times:,} copies", f"{WIDTH_MAX:,} are the most")
    return types.STRING


def _repetitions(expression: Expression) -> int:
    """How many copies of a text calls of `repeat` within one another make."""
    inner = max(map(_repetitions, children(expression)), default=1)
    is_repeat = isinstance(expression, Call) and expression.name == "repeat"
    return inner * max(1, int(str(expression.args[1].value))) if is_repeat else inner  # type: ignore[union-attr]


REPEATED = Gives("STRING", _repeated_type)
FIRST = Gives("that of x", lambda args: args[0].type)
WIDER = Gives("the wider", lambda args: args[0].type)
COMMON = Gives("that type", lambda args: args[0].type)
WHOLE = Gives("BIGINT; DECIMAL(p−s+1,0) of DECIMAL(p,s)", _whole_type)
ROUNDED = Gives("that of x; DECIMAL(p−s+1+n,n) of DECIMAL(p,s)", _rounded_type)


def is_double(args: Sequence[Expression]) -> bool:
    return args[0].type.kind == "DOUBLE"


def may_be_zero(args: Sequence[Expression]) -> bool:
    return not construct.is_nonzero(args[1])


def is_not_null(arg: Expression) -> Expression:
    return construct.negation(construct.is_null(arg))


def decode(args: Sequence[Expression]) -> Expression:
    """Without the last argument Spark uses a NULL of type STRING, which changes the type of numbers."""
    if len(args) % 2:
        raise UnsupportedSql("decode needs its last argument, the value for all others", "write NULL there")
    pairs = zip(args[1::2], args[2::2], strict=False)
    branches = [(construct.compare("<=>", args[0], sought), value) for sought, value in pairs]
    return construct.case(branches, args[-1])


def nanvl(args: Sequence[Expression]) -> Expression:
    left, right = (double.take(arg, "nanvl") for arg in args)
    return construct.case([(Call("isnan", (left,), types.BOOLEAN, nullable=False), right)], left)
