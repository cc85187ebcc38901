"""Rows of the table of functions: all that is known of one function, and what its arguments may be.

In: bound arguments. Out: a bound call, or the expression that a function is short for. Always: a call has the arguments
that its row lists, of which those in brackets are optional; an argument of another type is refused with the function's
name; the only casts made here are Spark's implicit widenings.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import KW_ONLY, dataclass
from functools import cache
from typing import NamedTuple

from viewkeeper.algebra import construct
from viewkeeper.algebra.construct import coerce
from viewkeeper.algebra.expressions import Call, Expression, Literal
from viewkeeper.algebra.literals import VOID, text_as
from viewkeeper.algebra.type_rules import way_to, way_to_number
from viewkeeper.errors import SqlError, TypeMismatch, UnsupportedSql
from viewkeeper.model import types
from viewkeeper.model.types import SqlType

INT_MAX = 2**31 - 1
DATE_UNITS = {"year": "year yyyy yy", "quarter": "quarter", "month": "month mm mon", "week": "week"}
TIME_UNITS = DATE_UNITS | {"day": "day dd", "hour": "hour", "minute": "minute", "second": "second"}


class Kind(NamedTuple):
    """What one argument must be, in words and as a rule: the argument in the type that the function takes."""

    shown: str
    take: Callable[[Expression, str], Expression]


class Together(NamedTuple):
    """What all arguments must be: the rule finds the type that they are widened to."""

    shown: str
    type_of: Callable[[Sequence[Expression], str], SqlType]


def _typed(*taken: SqlType, to: SqlType) -> Kind:
    """A string literal where a DATE or TIMESTAMP is expected is read as one, as in Spark."""
    shown = " or ".join(map(str, taken))

    def take(arg: Expression, name: str) -> Expression:
        if to in (types.DATE, types.TIMESTAMP) and isinstance(arg, Literal) and isinstance(arg.value, str):
            arg = Literal(*text_as(arg.value, to))
        if arg.type not in (*taken, VOID):
            raise TypeMismatch(f"{name} needs {shown}, not {arg.type}", way_to(to, arg.type))
        return coerce(arg, to)

    return Kind(shown, take)


text = _typed(types.STRING, to=types.STRING)
date = _typed(types.DATE, types.TIMESTAMP, to=types.DATE)
moment = _typed(types.TIMESTAMP, types.DATE, to=types.TIMESTAMP)
instant = _typed(types.TIMESTAMP, to=types.TIMESTAMP)
integer = _typed(types.INT, to=types.INT)
long = _typed(types.INT, types.BIGINT, to=types.BIGINT)
_double = _typed(types.DOUBLE, to=types.DOUBLE)
double = Kind("a number", lambda arg, name: coerce(arg, types.DOUBLE) if arg.type.is_exact else _double.take(arg, name))
text_or_bytes = Kind("STRING or BINARY", lambda arg, name: arg if arg.type == types.BINARY else text.take(arg, name))


def _wider(args: Sequence[Expression], name: str) -> SqlType:
    for arg in args:
        if not arg.type.is_integer and arg.type != VOID:
            raise TypeMismatch(f"{name} needs INT or BIGINT, not {arg.type}", way_to(types.BIGINT, arg.type))
    return types.BIGINT if any(arg.type == types.BIGINT for arg in args) else types.INT


integers = Together("INT or BIGINT", _wider)
bits = Kind("INT or BIGINT", lambda arg, name: coerce(arg, _wider([arg], name)))
alike = Together("values of one type", lambda args, name: construct.shared_type(args, name.upper()))


def _number(arg: Expression, name: str) -> Expression:
    arg = construct.typed(arg, name)
    if not arg.type.is_numeric:
        raise TypeMismatch(f"{name} needs a number, not {arg.type}", way_to_number(arg.type))
    return arg


def _whole(arg: Expression, name: str) -> Expression:
    arg = _number(arg, name)
    return coerce(arg, types.BIGINT) if arg.type.is_integer else arg


def _exact(arg: Expression, name: str) -> Expression:
    arg = _number(arg, name)
    if arg.type.kind == "DOUBLE":
        hint = "engines differ there; store the values as DECIMAL(p,s)"
        raise UnsupportedSql(f"{name} of DOUBLE is not supported", hint)
    return arg


whole = Kind("a number", _whole)
exact = Kind("INT, BIGINT or DECIMAL", _exact)


def number(least: int, most: int, *, but: int | None = None, hint: str = "") -> Kind:
    """An integer literal within bounds, and not `but`."""

    def take(arg: Expression, name: str) -> Expression:
        if isinstance(arg, Literal) and arg.type == types.INT and least <= int(str(arg.value)) <= most:
            if arg.value == but:
                raise UnsupportedSql(f"{name} {hint}")
            return arg
        raise UnsupportedSql(f"{name} takes an integer literal from {least} to {most} here, not {arg.text}")

    bounds = (f" from {least}" if least >= 0 else "", f" up to {most}" if most < INT_MAX else "")
    return Kind("a literal" + "".join(bounds), take)


def read_text(arg: Expression, name: str) -> str:
    if isinstance(arg, Literal) and isinstance(arg.value, str):
        return arg.value
    raise UnsupportedSql(f"{name} takes a string literal here, not {arg.text}")


def _literal(read: Callable[[str, str], str]) -> Kind:
    """A string literal, and how it is read."""
    return Kind("a literal", lambda arg, name: Literal(read(read_text(arg, name), name), types.STRING))


def unit(units: dict[str, str]) -> Kind:
    """Spark returns NULL for an unknown unit; here it is refused."""
    spelled = {spelling: name for name, spellings in units.items() for spelling in spellings.split()}

    def read(written: str, name: str) -> str:
        if written.lower() not in spelled:
            raise UnsupportedSql(f"{name} by {written!r} is not supported", f"the units are {', '.join(units)}")
        return spelled[written.lower()]

    return Kind(f"a unit ({', '.join(units)})", _literal(read).take)


def _delimiter(written: str, name: str) -> str:
    """Spark finds delimiters that overlap; one that cannot overlap with itself is simpler."""
    if any(written[:size] == written[-size:] for size in range(1, len(written))):
        raise UnsupportedSql(f"{name} by {written!r} is not supported: it overlaps with itself")
    return written


def _characters(written: str, name: str) -> str:
    if "\0" in written:
        raise UnsupportedSql(f"{name} to the character 0 is not supported", "leave it out to remove a character")
    return written


fixed_text = _literal(lambda written, name: written)
delimiter = _literal(_delimiter)
characters = _literal(_characters)


class Gives(NamedTuple):
    """A type that follows from the arguments, in words and as a rule."""

    shown: str
    of: Callable[[Sequence[Expression]], SqlType]


class Nulls(NamedTuple):
    """When the result may be NULL, from whether each argument may be; `shown` is empty for the usual rule."""

    shown: str
    of: Callable[[Iterable[bool]], bool]


STRICT = Nulls("", any)
PROPAGATED = Nulls("NULL if a part is", any)  # by DuckDB itself, after all parts were evaluated, as in Spark
SKIPPED = Nulls("NULLs are skipped", all)
SEPARATED = Nulls("NULL if the separator is; other NULLs are skipped", lambda nullable: next(iter(nullable)))
NEVER = Nulls("FALSE of NULL", lambda nullable: False)


@dataclass(frozen=True, slots=True)
class Row:
    """What is documented of a function. `syntax` is how it is written if not as a call of its name; `fails` is when."""

    name: str
    arguments: str
    _: KW_ONLY
    also: str = ""  # further names
    syntax: str = ""
    fails: str = ""
    notes: str = ""

    @property
    def names(self) -> tuple[str, ...]:
        return () if self.syntax else (self.name, *self.also.split())

    def check_count(self, args: Sequence[Expression]) -> None:
        least, most = _counts(self.arguments)
        if len(args) < least or (most is not None and len(args) > most):
            wanted = f"{least}" if least == most else f"{least} to {most}" if most is not None else f"at least {least}"
            raise SqlError(f"{self.name} takes {wanted} argument{'' if wanted == '1' else 's'}, not {len(args)}")


@cache
def _counts(arguments: str) -> tuple[int, int | None]:
    """The least and the greatest number of arguments; after … there may be any number."""
    listed, more, _ = arguments.partition("…")
    least, most = (len(re.findall(r"\w+", part)) for part in (re.sub(r"\[.*\]", "", listed), listed))
    return least, None if more else most


@dataclass(frozen=True, slots=True)
class Function(Row):
    """A function that is a call, in DuckDB `duckdb`.

    The last of `takes` holds for all further arguments. `duckdb` is a template over the arguments {0}, {1}, … or {all}, the
    function's {name} and the result's {type}; or it makes the text from the call and the arguments' texts. `default` is the
    last argument if it is left out; `can_fail`: whether these arguments can make it fail, if it `fails` at all; `parts`: its
    names in EXTRACT; `divides`: Spark evaluates the second argument first.
    """

    takes: tuple[Kind, ...] | Together
    gives: SqlType | Gives
    duckdb: str | Callable[..., str]
    _: KW_ONLY
    nulls: Nulls = STRICT
    default: Literal | None = None
    can_fail: Callable[[Sequence[Expression]], bool] = lambda args: True
    parts: str = ""
    divides: bool = False

    def bind(self, args: Sequence[Expression]) -> Expression:
        self.check_count(args)
        taken = self._take(args)
        if self.default is not None and len(args) < len(self.takes):
            taken.append(self.default)
        type_ = self.gives.of(taken) if isinstance(self.gives, Gives) else self.gives
        nullable = self.nulls.of(arg.nullable for arg in taken)
        return Call(self.name, tuple(taken), type_, nullable, bool(self.fails) and self.can_fail(taken))

    def _take(self, args: Sequence[Expression]) -> list[Expression]:
        if isinstance(self.takes, Together):
            type_ = self.takes.type_of(args, self.name)
            return [coerce(arg, type_) for arg in args]
        kinds = (*self.takes, *self.takes[-1:] * len(args))
        return [kind.take(arg, self.name) for kind, arg in zip(kinds, args, strict=False)]


@dataclass(frozen=True, slots=True)
class Rewrite(Row):
    """A function that is short for another expression."""

    rule: Callable[[Sequence[Expression]], Expression]
    takes: str  # in words, and so is the type
    gives: str

    def bind(self, args: Sequence[Expression]) -> Expression:
        self.check_count(args)
        return self.rule(args)
