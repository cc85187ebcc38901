"""Rows of the table of functions: all that is known of one function.

In: bound arguments. Out: a bound call, or the expression that a function is short for. Always: a call has as many
arguments as its row lists, and those in brackets may be left out.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import KW_ONLY, dataclass
from functools import cache
from typing import NamedTuple

from viewkeeper.errors import SqlError
from viewkeeper.model.types import SqlType
from viewkeeper.sql.construct import coerce
from viewkeeper.sql.expressions import Call, Expression, Literal
from viewkeeper.sql.operands import Kind, Together


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
