"""Canonical text: what a part of a plan means, whatever the names, aliases, and order of conditions and CREATEs.

In: bound expressions, and the texts of a node's inputs. Out: text. Always: equal parts of two views have equal texts,
in every process and release; a column is its position, a base table its id, another node the digest of its own text.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence

from viewkeeper.algebra.expressions import (
    Aggregate,
    AggregationRef,
    Call,
    Case,
    Cast,
    ColumnRef,
    Expression,
    Literal,
    operands,
)
from viewkeeper.model.schema import Column


def spell(expression: Expression) -> str:
    """An expression in prefix form, with the types that its text as written leaves out."""
    match expression:
        case ColumnRef(position=position):
            return f"c{position}"
        case AggregationRef(source=source, position=position):
            return f"{source[0]}{position}"
        case Literal(type=type_, text=text):
            return f"{text}:{type_}"
        # what can fail keeps its order, which decides on which rows it does
        case Call(name="and" | "or" as name) if not expression.fallible:
            return f"{name}({', '.join(sorted({spell(part) for part in operands(expression, name)}))})"
        case Call(name="=" | "<>" | "<=>" as name, args=args) if not expression.fallible:
            return f"{name}({', '.join(sorted(map(spell, args)))})"
        case Call(name=name, args=args):
            return f"{name}({spell_all(args)})"
        case Cast(arg=arg, type=type_):
            return f"cast({spell(arg)}:{type_})"
        case Case(branches=branches, default=default):
            whens = "; ".join(f"{spell(when)}: {spell(value)}" for when, value in branches)
            return f"case({whens}; {spell(default)})"
        case Aggregate(function=function, args=args, distinct=distinct, filter=condition):
            where = "" if condition is None else f" where {spell(condition)}"
            return f"{function}({'distinct ' if distinct else ''}{spell_all(args)}{where})"


def spell_all(expressions: Iterable[Expression]) -> str:
    return ", ".join(map(spell, expressions))


def spell_record(key: Sequence[Column], row: Sequence[Column]) -> str:
    """The layout of records: what is stored in one layout cannot be read in another."""
    return " → ".join(" ".join(f"{c.type}{'?' if c.nullable else ''}" for c in part) for part in (key, row))


def digest(text: str) -> str:
    """How a node's readers refer to it."""
    return "@" + hashlib.blake2b(text.encode(), digest_size=10).hexdigest()
