"""Operands of functions: what an argument must be, and a table row for a function that is defined by its types alone.

In: bound arguments. Out: the arguments in the types that the function takes, and calls over them. Always: an argument
of another type is refused with the function's name; the only casts made here are Spark's implicit widenings.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from viewkeeper.errors import SqlError, TypeMismatch, UnsupportedSql
from viewkeeper.model import types
from viewkeeper.model.types import SqlType
from viewkeeper.sql.construct import coerce
from viewkeeper.sql.expressions import Call, Expression, Literal
from viewkeeper.sql.literals import VOID, text_as

Taker = Callable[[Expression, str], Expression]
Rule = Callable[[Sequence[Expression]], Expression]


def strict(name: str, args: Sequence[Expression], type_: SqlType, *, raises: bool = False) -> Call:
    """A function that is NULL when an argument is."""
    return Call(name, tuple(args), type_, any(arg.nullable for arg in args), raises)


def text(arg: Expression, name: str) -> Expression:
    return _of(arg, name, (types.STRING,), types.STRING, "CAST it to STRING")


def date(arg: Expression, name: str) -> Expression:
    return _of(_read(arg, types.DATE), name, (types.DATE, types.TIMESTAMP), types.DATE)


def moment(arg: Expression, name: str) -> Expression:
    return _of(_read(arg, types.TIMESTAMP), name, (types.TIMESTAMP, types.DATE), types.TIMESTAMP)


def instant(arg: Expression, name: str) -> Expression:
    return _of(_read(arg, types.TIMESTAMP), name, (types.TIMESTAMP,), types.TIMESTAMP)


def integer(arg: Expression, name: str) -> Expression:
    return _of(arg, name, (types.INT,), types.INT, "CAST it to INT")


def long(arg: Expression, name: str) -> Expression:
    return _of(arg, name, (types.INT, types.BIGINT), types.BIGINT, "CAST it to BIGINT")


def double(arg: Expression, name: str) -> Expression:
    if arg.type.is_exact:
        return coerce(arg, types.DOUBLE)
    return _of(arg, name, (types.DOUBLE,), types.DOUBLE)


def number(least: int, most: int) -> Taker:
    """An integer literal within bounds."""

    def take(arg: Expression, name: str) -> Expression:
        if isinstance(arg, Literal) and arg.type == types.INT and least <= int(str(arg.value)) <= most:
            return arg
        raise UnsupportedSql(f"{name} takes an integer literal from {least} to {most} here, not {arg.text}")

    return take


def fixed_text(arg: Expression, name: str) -> Expression:
    """A string literal."""
    if isinstance(arg, Literal) and isinstance(arg.value, str):
        return arg
    raise UnsupportedSql(f"{name} takes a string literal here, not {arg.text}")


def _read(arg: Expression, type_: SqlType) -> Expression:
    """A string literal where a DATE or TIMESTAMP is expected is read as one, as in Spark."""
    if isinstance(arg, Literal) and isinstance(arg.value, str):
        return Literal(*text_as(arg.value, type_))
    return arg


def _of(arg: Expression, name: str, taken: tuple[SqlType, ...], type_: SqlType, hint: str | None = None) -> Expression:
    if arg.type not in (*taken, VOID):
        raise TypeMismatch(f"{name} needs {' or '.join(map(str, taken))}, not {arg.type}", hint)
    return coerce(arg, type_)


@dataclass(frozen=True, slots=True)
class Function:
    """A function that is NULL if an argument is. `name` is canonical; arguments from `least` on are optional."""

    name: str
    takes: tuple[Taker, ...]
    gives: SqlType
    raises: bool = False
    least: int | None = None

    def __call__(self, args: Sequence[Expression]) -> Expression:
        check_count(self.name, args, len(self.takes) if self.least is None else self.least, len(self.takes))
        taken = [take(arg, self.name) for take, arg in zip(self.takes, args, strict=False)]
        return strict(self.name, taken, self.gives, raises=self.raises)


def check_count(name: str, args: Sequence[Expression], least: int, most: int | None) -> None:
    if len(args) < least or (most is not None and len(args) > most):
        wanted = f"{least}" if least == most else f"{least} to {most}" if most is not None else f"at least {least}"
        raise SqlError(f"{name} takes {wanted} argument{'' if wanted == '1' else 's'}, not {len(args)}")
