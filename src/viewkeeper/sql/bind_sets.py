"""Binding of UNION, INTERSECT and EXCEPT.

In: a set operation and its environment. Out: a relation. Always: all branches have the same number of columns, cast
to common types; names are the first branch's; rows are the same if all columns are equal, NULL to NULL.
"""

from __future__ import annotations

from collections.abc import Sequence

from sqlglot import exp

from viewkeeper.errors import SqlError, UnsupportedSql
from viewkeeper.model import types
from viewkeeper.model.types import SqlType
from viewkeeper.sql import construct
from viewkeeper.sql.bind_grouping import aggregation, distinct_rows
from viewkeeper.sql.environment import Environment, without_parentheses
from viewkeeper.sql.expressions import ColumnRef, Expression, Literal
from viewkeeper.sql.positions import column_refs, project
from viewkeeper.sql.refusals import allow_clauses
from viewkeeper.sql.relations import Output, Relation, Union
from viewkeeper.sql.type_rules import common_type

_MODIFIERS = ("order", "limit", "offset", "with_")


def bind_set(node: exp.SetOperation, env: Environment) -> Relation:
    _refuse_clauses(node)
    if isinstance(node, exp.Union):
        branches = _same_types([env.bind_nested(branch, env) for branch in _branches(node)], "UNION")
        return distinct_rows(Union(branches)) if node.args.get("distinct") else Union(branches)
    name = node.key.upper()
    if not node.args.get("distinct"):
        raise UnsupportedSql(f"{name} ALL is not supported", f"use {name}, or join counts of equal rows")
    sides = _same_types([env.bind_nested(side, env) for side in (node.this, node.expression)], name)
    return _compare_sides(sides, keep_common=isinstance(node, exp.Intersect))


def _refuse_clauses(node: exp.SetOperation) -> None:
    if node.args.get("by_name"):
        raise UnsupportedSql("UNION BY NAME is not supported", "list the columns of each branch in one order")
    allow_clauses(node, "this", "expression", "distinct", *_MODIFIERS)
    for side in (node.this, node.expression):
        if isinstance(side, exp.Select) and any(side.args.get(name) for name in ("order", "limit", "offset")):
            name = node.key.upper()
            raise SqlError(f"a branch of {name} has an ORDER BY or LIMIT of its own", "put the branch into parentheses")


def _branches(node: exp.Union) -> list[exp.Expression]:
    """The branches of nested UNIONs, flattened; under UNION DISTINCT it is irrelevant whether a branch is distinct."""
    distinct = bool(node.args.get("distinct"))
    found: list[exp.Expression] = []
    waiting: list[exp.Expression] = [node]
    while waiting:
        branch = waiting.pop()
        bare = without_parentheses(branch)
        if isinstance(bare, exp.Union) and (bare is node or _can_be_flat(bare, distinct=distinct)):
            _refuse_clauses(bare)
            waiting += [bare.expression, bare.this]
        else:
            found.append(branch)
    return found


def _can_be_flat(node: exp.Union, *, distinct: bool) -> bool:
    return not any(node.args.get(name) for name in _MODIFIERS) and (distinct or not node.args.get("distinct"))


def _same_types(branches: Sequence[Relation], where: str) -> tuple[Relation, ...]:
    first, *others = columns = [branch.columns for branch in branches]
    for other in others:
        if len(other) != len(first):
            raise SqlError(f"{where} of {len(first)} and {len(other)} columns", "each branch needs the same columns")
    wanted = [_common([column.type for column in alike], where) for alike in zip(*columns, strict=True)]
    return tuple(_coerced(branch, wanted) for branch in branches)


def _common(given: Sequence[SqlType], where: str) -> SqlType:
    type_ = given[0]
    for other in given[1:]:
        type_ = common_type(type_, other, where)
    return type_


def _coerced(relation: Relation, wanted: Sequence[SqlType]) -> Relation:
    refs = column_refs(relation)
    if [ref.type for ref in refs] == list(wanted):
        return relation
    outputs = (Output(ref.name, construct.coerce(ref, type_)) for ref, type_ in zip(refs, wanted, strict=True))
    return project(relation, tuple(outputs))


def _compare_sides(sides: Sequence[Relation], *, keep_common: bool) -> Relation:
    """Rows of both sides, each counted by side: INTERSECT keeps those of both, EXCEPT those of the first only."""
    tagged = tuple(_tagged(side, place) for place, side in enumerate(sides))
    rows = Union(tagged)
    *refs, tag = column_refs(rows)
    first, second = (_count(tag, place) for place in (0, 1))
    none = Literal(0, types.BIGINT)
    found = construct.compare(">", second, none) if keep_common else construct.compare("=", second, none)
    condition = construct.logical("and", construct.compare(">", first, none), found)
    return aggregation(rows, tuple(refs), [Output(ref.name, ref) for ref in refs], condition)


def _tagged(side: Relation, place: int) -> Relation:
    outputs = [Output(ref.name, ref) for ref in column_refs(side)]
    return project(side, (*outputs, Output("side", Literal(place, types.INT))))


def _count(tag: ColumnRef, place: int) -> Expression:
    condition = construct.compare("=", tag, Literal(place, types.INT))
    return construct.filtered(construct.aggregate("count", ()), condition)
