"""Binding of a query: that of a view, or a SELECT that runs once; one block, or UNION, INTERSECT and EXCEPT of several.

In: the text of a query, and what a name of FROM means. Out: a tree of relations. Always: each column of the query has a
type, and in a view a distinct name; all branches of a set operation have the same number of columns, cast to common
types, under the first branch's names, and rows are the same if all columns are equal, NULL to NULL; a clause without a
rule is refused; WHERE keeps its conditions in written order; the tree does not depend on the spelling of the text; a
text that is valid as both a view and a SELECT means the same in both.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import islice

from sqlglot import exp

from viewkeeper.algebra import construct
from viewkeeper.algebra.expressions import ColumnRef, Expression, Literal, conjuncts, walk
from viewkeeper.algebra.relations import Output, Relation, Union, walk_relations
from viewkeeper.algebra.rewriting import column_refs, project, select
from viewkeeper.algebra.type_rules import common_type
from viewkeeper.errors import DuplicateName, SqlError, UnsupportedSql
from viewkeeper.model import types
from viewkeeper.model.types import SqlType
from viewkeeper.sql.alternatives import allow_clauses, refuse_clause
from viewkeeper.sql.bind_clauses import (
    aggregate_distinct,
    aggregates_in,
    aggregation,
    bind_groups,
    bind_having,
    bind_order,
    distinct_rows,
    order_over,
    order_relation,
    refuse_aggregates,
    select_items,
    speak_of_outputs,
    top,
    with_hidden,
)
from viewkeeper.sql.bind_expression import bind_expression
from viewkeeper.sql.bind_from import bind_from, bind_with
from viewkeeper.sql.bind_subqueries import apply_predicate, split_where
from viewkeeper.sql.query_parser import parse_query
from viewkeeper.sql.scope import Block, Environment, OuterRef, Scope, without_parentheses

_MODIFIERS = ("order", "limit", "offset", "with_")


def bind_set(node: exp.SetOperation, env: Environment) -> Relation:
    _refuse_clauses_of_set(node)
    if isinstance(node, exp.Union):
        branches = _same_types([env.bind_nested(branch, env) for branch in _branches(node)], "UNION")
        return distinct_rows(Union(branches)) if node.args.get("distinct") else Union(branches)
    name = node.key.upper()
    if not node.args.get("distinct"):
        raise UnsupportedSql(f"{name} ALL is not supported", f"use {name}, or join counts of equal rows")
    sides = _same_types([env.bind_nested(side, env) for side in (node.this, node.expression)], name)
    return _compare_sides(sides, keep_common=isinstance(node, exp.Intersect))


def _refuse_clauses_of_set(node: exp.SetOperation) -> None:
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
            _refuse_clauses_of_set(bare)
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


_CLAUSES = "expressions from_ joins where group having distinct order limit offset with_".split()


def open_block(tree: exp.Select, env: Environment) -> Block:
    """FROM and WHERE: joins, conditions, and the subqueries among the conditions."""
    _refuse_clauses(tree)
    source = bind_from(tree, env)
    scope = Scope(source.names, source.sources, outer=env.outer, closed_by=env.closed_by)
    where = tree.args.get("where")
    if where is None:
        return Block(source.relation, scope)
    plain, predicates = split_where(where.this)
    reach = replace(scope, barred="WHERE", reaches_out=env.reaches_out)
    conditions = [construct.boolean(bind_expression(node, reach), "WHERE") for node in plain]
    parts = [part for condition in conditions for part in conjuncts(condition)]
    correlated = tuple(part for part in parts if any(isinstance(node, OuterRef) for node in walk(part)))
    kept = [part for part in parts if part not in correlated] if correlated else conditions
    relation = select(source.relation, kept)
    for predicate in predicates:
        relation = apply_predicate(relation, predicate, replace(scope, barred="WHERE"), env)
    return Block(relation, scope, correlated)


def bind_block(tree: exp.Select, env: Environment) -> Relation:
    block = open_block(tree, env)
    scope = block.scope
    items = select_items(tree, scope)
    group, having = tree.args.get("group"), tree.args.get("having")
    condition = bind_having(having.this, items, scope) if having is not None else None
    groups = bind_groups(group, items, replace(scope, barred="GROUP BY")) if group is not None else ()
    order = bind_order(tree, items, scope, once=env.once)
    is_plain = group is None and condition is None and not any(aggregates_in(item.expression) for item in items)
    if is_plain:
        refuse_aggregates(order)
    if tree.args.get("distinct"):
        relation = block.relation
        if is_plain:
            relation = aggregate_distinct(relation, items)
        else:
            relation = distinct_rows(aggregation(relation, groups, items, condition, scope.called))
        return order_over(relation, None if order is None else speak_of_outputs(order, items, relation))
    outputs, order = with_hidden(items, order)
    if is_plain:
        return top(project(block.relation, outputs), order, len(items))
    return top(aggregation(block.relation, groups, outputs, condition, scope.called), order, len(items))


def _refuse_clauses(tree: exp.Select) -> None:
    allow_clauses(tree, *_CLAUSES)
    if tree.args.get("distinct") and tree.args["distinct"].args.get("on"):
        raise refuse_clause("distinct on")


RELATIONS_MAX = 2_000


def bind_select(text: str, relation_named: Callable[[str], Relation]) -> Relation:
    """Bind a SELECT that runs once; see `bind_query`."""
    return _bind_nested(parse_query(text), Environment(relation_named, _bind_nested, open_block, once=True))


def bind_query(text: str, relation_named: Callable[[str], Relation]) -> Relation:
    """Bind a view's query; `relation_named` returns a table or view, and raises UnknownName if there is none."""
    relation = _bind_nested(parse_query(text), Environment(relation_named, _bind_nested, open_block))
    seen: set[str] = set()
    for column in relation.columns:
        if column.name.lower() in seen:
            raise DuplicateName(f"two columns of the view are called {column.name}", "give one another name with AS")
        seen.add(column.name.lower())
    return relation


def _bind_nested(node: exp.Expression, env: Environment) -> Relation:
    relation = _bind_any(node, bind_with(node, env.deeper()))
    if next(islice(walk_relations(relation), RELATIONS_MAX, None), None) is not None:
        raise UnsupportedSql(
            f"the query is more than {RELATIONS_MAX:,} steps long",
            "what stands in it twice counts twice, also through WITH and views: read each part fewer times",
        )
    return relation


def _bind_any(node: exp.Expression, env: Environment) -> Relation:
    match node:
        case exp.Select():
            return bind_block(node, env)
        case exp.SetOperation():
            return order_relation(node, bind_set(node, env), once=env.once)
        case exp.Subquery() if not node.args.get("alias"):
            allow_clauses(node, "this", "order", "limit", "offset", "with_")
            return order_relation(node, _bind_nested(node.this, env), once=env.once)
    raise SqlError("a view is defined by a SELECT")
