"""Bound expressions: every name is a position, every node has a type.

In: nothing; the binder makes them. Out: frozen trees. Always: equal expressions are equal values, `text` is the one
canonical spelling, and a node whose `fallible` is False cannot raise under Spark's ANSI rules. A constant is not
fallible: one that fails does so for every row, and is refused when the view is defined.
"""

from __future__ import annotations

import datetime
import decimal
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import ClassVar

from viewkeeper.algebra.aggregates import AGGREGATE_FUNCTIONS
from viewkeeper.model.syntax import Value
from viewkeeper.model.types import SqlType

_INFIX = frozenset("+ - * / % div = <> < <= > >= <=> and or like || & | ^".split())
_OPERATORS = _INFIX | {"not", "neg", "is null", "in"}


@dataclass(frozen=True, slots=True)
class ColumnRef:
    """A column of the base table, by position; `name` is only for messages."""

    position: int
    name: str
    type: SqlType
    nullable: bool
    fallible: ClassVar[bool] = False

    @property
    def text(self) -> str:
        return self.name.lower()


@dataclass(frozen=True, slots=True)
class Literal:
    value: Value
    type: SqlType
    fallible: ClassVar[bool] = False

    @property
    def nullable(self) -> bool:
        return self.value is None

    @property
    def text(self) -> str:
        match self.value:
            case None:
                return "null"
            case bool(value):
                return "true" if value else "false"
            case str(value):
                escaped = value.replace("\\", "\\\\").replace("'", "\\'").replace("\n", "\\n").replace("\r", "\\r")
                return f"'{escaped}'"
            case bytes(value):
                return f"x'{value.hex()}'"
            case datetime.datetime() as value:
                return f"timestamp '{value.astimezone(datetime.UTC).replace(tzinfo=None).isoformat(' ')}'"
            case datetime.date() as value:
                return f"date '{value.isoformat()}'"
            case float(value):
                return f"{value!r}d"
            case decimal.Decimal() as value:
                return f"{value:f}" if self.type.scale else f"{value:f}bd"
        return f"{self.value}l" if self.type.kind == "BIGINT" else str(self.value)


@dataclass(frozen=True, slots=True)
class Call:
    """An operator or function; `raises` states whether it can fail by itself, apart from its arguments."""

    name: str
    args: tuple[Expression, ...]
    type: SqlType
    nullable: bool
    raises: bool = False

    @property
    def fallible(self) -> bool:
        return (self.raises or any(arg.fallible for arg in self.args)) and not is_constant(self)

    @property
    def text(self) -> str:
        match self.name:
            case name if name in _INFIX and len(self.args) == 2:
                return f"{_operand(self.args[0])} {name} {_operand(self.args[1])}"
            case "not":
                return f"not {_operand(self.args[0])}"
            case "neg":
                return f"-{_operand(self.args[0])}"
            case "is null":
                return f"{_operand(self.args[0])} is null"
            case "in":
                return f"{_operand(self.args[0])} in ({', '.join(arg.text for arg in self.args[1:])})"
        return f"{self.name}({', '.join(arg.text for arg in self.args)})"


@dataclass(frozen=True, slots=True)
class Cast:
    """A change of type; an implicit one is not part of the text, because the user did not write it."""

    arg: Expression
    type: SqlType
    implicit: bool
    raises: bool

    @property
    def nullable(self) -> bool:
        return self.arg.nullable

    @property
    def fallible(self) -> bool:
        return (self.raises or self.arg.fallible) and not is_constant(self)

    @property
    def text(self) -> str:
        return self.arg.text if self.implicit else f"cast({self.arg.text} as {str(self.type).lower()})"


@dataclass(frozen=True, slots=True)
class Case:
    """CASE WHEN: branches are tried in order, and only the taken one is evaluated."""

    branches: tuple[tuple[Expression, Expression], ...]
    default: Expression
    type: SqlType

    @property
    def nullable(self) -> bool:
        return self.default.nullable or any(value.nullable for _, value in self.branches)

    @property
    def fallible(self) -> bool:
        return self.default.fallible or any(when.fallible or value.fallible for when, value in self.branches)

    @property
    def text(self) -> str:
        whens = " ".join(f"when {when.text} then {value.text}" for when, value in self.branches)
        return f"case {whens} else {self.default.text} end"


@dataclass(frozen=True, slots=True)
class Aggregate:
    """A function over the rows of a group for which `filter` is true. COUNT has any number of arguments, all others one."""

    function: str
    args: tuple[Expression, ...]
    type: SqlType
    distinct: bool = False
    filter: Expression | None = None
    shown: str = field(default="", compare=False, repr=False)  # BOOL_AND is computed as MIN, and so names its column

    @property
    def nullable(self) -> bool:
        return AGGREGATE_FUNCTIONS[self.function].nullable

    @property
    def fallible(self) -> bool:
        """Whether its value may not fit; what happens to single rows is the arguments' own matter."""
        return AGGREGATE_FUNCTIONS[self.function].can_fail(self.arg_type, self.type)

    @property
    def arg_type(self) -> SqlType:
        """The type of the first argument; that of COUNT(*) is of no account."""
        return self.args[0].type if self.args else self.type

    @property
    def needs_entries(self) -> bool:
        """Whether it is kept by distinct values: a PRE-AGGREGATION."""
        return self.distinct or AGGREGATE_FUNCTIONS[self.function].is_end

    @property
    def text(self) -> str:
        inner = ", ".join(arg.text for arg in self.args) or "*"
        call = f"{self.function}({'distinct ' if self.distinct else ''}{inner})"
        return call if self.filter is None else f"{call} filter (where {self.filter.text})"


@dataclass(frozen=True, slots=True)
class AggregationRef:
    """After γ: the group expression or aggregate at `position` of "group" or "aggregate"."""

    source: str
    position: int
    of: Expression

    @property
    def type(self) -> SqlType:
        return self.of.type

    @property
    def nullable(self) -> bool:
        return self.of.nullable

    @property
    def fallible(self) -> bool:
        # The group's value is in the key: it was computed, row by row, before γ.
        return self.source == "aggregate" and self.of.fallible

    @property
    def text(self) -> str:
        return self.of.text


Expression = ColumnRef | Literal | Call | Cast | Case | Aggregate | AggregationRef


def children(expression: Expression) -> tuple[Expression, ...]:
    match expression:
        case Call(args=args):
            return args
        case Cast(arg=arg):
            return (arg,)
        case Case(branches=branches, default=default):
            return (*(part for branch in branches for part in branch), default)
        case Aggregate(args=args, filter=condition):
            return args if condition is None else (*args, condition)
    return ()


def walk(expression: Expression) -> Iterator[Expression]:
    """The expression and everything in it, from the top down, left to right."""
    yield expression
    for child in children(expression):
        yield from walk(child)


def is_constant(expression: Expression) -> bool:
    """Whether it refers to no column, group or aggregate."""
    return not any(isinstance(part, (ColumnRef, AggregationRef, Aggregate)) for part in walk(expression))


def rewrite(expression: Expression, change: Callable[[Expression], Expression | None]) -> Expression:
    """The tree in which each topmost node for which `change` returns a value is replaced by it."""
    changed = change(expression)
    if changed is not None:
        return changed
    match expression:
        case Call(args=args):
            return replace(expression, args=tuple(rewrite(arg, change) for arg in args))
        case Cast(arg=arg):
            return replace(expression, arg=rewrite(arg, change))
        case Case(branches=branches, default=default):
            pairs = tuple((rewrite(when, change), rewrite(value, change)) for when, value in branches)
            return replace(expression, branches=pairs, default=rewrite(default, change))
    return expression


def columns_of(*expressions: Expression) -> tuple[int, ...]:
    """Positions of the base columns that are read, in order."""
    nodes = (node for expression in expressions for node in walk(expression))
    return tuple(sorted({node.position for node in nodes if isinstance(node, ColumnRef)}))


def operands(expression: Expression, name: str) -> tuple[Expression, ...]:
    """The parts of nested calls of `and` or `or`, in written order; another expression is its only part."""
    if isinstance(expression, Call) and expression.name == name:
        return tuple(part for arg in expression.args for part in operands(arg, name))
    return (expression,)


def conjuncts(predicate: Expression) -> tuple[Expression, ...]:
    return operands(predicate, "and")


def implied(predicate: Expression) -> tuple[Expression, ...]:
    """What is true whenever a disjunction is: the conditions that all of its branches have."""
    first, *others = operands(predicate, "or")
    if not others:
        return ()
    return tuple(part for part in conjuncts(first) if all(part in conjuncts(other) for other in others))


def _operand(expression: Expression) -> str:
    """The text as an operand: in brackets where it is an operator's."""
    while isinstance(expression, Cast) and expression.implicit:
        expression = expression.arg
    is_operator = isinstance(expression, Call) and expression.name in _OPERATORS
    return f"({expression.text})" if is_operator else expression.text
