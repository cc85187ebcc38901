"""Binding of a query: that of a view, or a SELECT that runs once; one block, or UNION, INTERSECT and EXCEPT of several.

In: the text of a query, and what a name of FROM means. Out: a tree of relations. Always: each column of the query has a
type, and in a view a distinct name; the branches of a set operation get common types and the first branch's names, and NULL
equals NULL there; a clause without a rule is refused; WHERE keeps its conditions in written order; a text that is valid as
both a view and a SELECT means the same in both.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import reduce
from itertools import islice

from sqlglot import exp

from viewkeeper.algebra import construct
from viewkeeper.algebra.expressions import Literal, conjuncts, walk
from viewkeeper.algebra.relations import Output, Relation, Union, walk_relations
from viewkeeper.algebra.rewriting import column_refs, project, select
from viewkeeper.algebra.type_rules import common_type
from viewkeeper.errors import DuplicateName, SqlError, UnsupportedSql
from viewkeeper.model import types
from viewkeeper.model.types import SqlType
from viewkeeper.sql import bind_clauses as clauses
from viewkeeper.sql.alternatives import allow_clauses, refuse_clause
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
        return clauses.distinct_rows(Union(branches)) if node.args.get("distinct") else Union(branches)
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
    # a UNION with one of these is a branch
    kept = _MODIFIERS if node.args.get("distinct") else (*_MODIFIERS, "distinct")
    found: list[exp.Expression] = []
    waiting: list[exp.Expression] = [node]
    while waiting:
        branch = waiting.pop()
        bare = without_parentheses(branch)
        if isinstance(bare, exp.Union) and (bare is node or not any(bare.args.get(name) for name in kept)):
            _refuse_clauses_of_set(bare)
            waiting += [bare.expression, bare.this]
        else:
            found.append(branch)
    return found


def _same_types(branches: Sequence[Relation], where: str) -> tuple[Relation, ...]:
    first, *others = columns = [branch.columns for branch in branches]
    for other in others:
        if len(other) != len(first):
            raise SqlError(f"{where} of {len(first)} and {len(other)} columns", "each branch needs the same columns")
    alike = ([column.type for column in some] for some in zip(*columns, strict=True))
    wanted = [reduce(lambda left, right: common_type(left, right, where), given) for given in alike]
    return tuple(_coerced(branch, wanted) for branch in branches)


def _coerced(relation: Relation, wanted: Sequence[SqlType]) -> Relation:
    refs = column_refs(relation)
    if [ref.type for ref in refs] == list(wanted):
        return relation
    outputs = (Output(ref.name, construct.coerce(ref, type_)) for ref, type_ in zip(refs, wanted, strict=True))
    return project(relation, tuple(outputs))


def _compare_sides(sides: Sequence[Relation], *, keep_common: bool) -> Relation:
    """Rows of both sides, each counted by side: INTERSECT keeps those of both, EXCEPT those of the first only."""
    marks = [Literal(number, types.INT) for number in (0, 1)]
    tagged = []
    for side, mark in zip(sides, marks, strict=True):
        outputs = [Output(ref.name, ref) for ref in column_refs(side)]
        tagged.append(project(side, (*outputs, Output("side", mark))))
    rows, none, count = Union(tuple(tagged)), Literal(0, types.BIGINT), construct.aggregate("count", ())
    *refs, tag = column_refs(rows)
    first, second = (construct.filtered(count, construct.compare("=", tag, mark)) for mark in marks)
    found = construct.compare(">" if keep_common else "=", second, none)
    condition = construct.logical("and", construct.compare(">", first, none), found)
    return clauses.aggregation(rows, tuple(refs), [Output(ref.name, ref) for ref in refs], condition)


_CLAUSES = "expressions from_ joins where group having distinct order limit offset with_".split()


def open_block(tree: exp.Select, env: Environment) -> Block:
    """FROM and WHERE: joins, conditions, and the subqueries among the conditions."""
    allow_clauses(tree, *_CLAUSES)
    if tree.args.get("distinct") and tree.args["distinct"].args.get("on"):
        raise refuse_clause("distinct on")
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
    base, scope = block.relation, block.scope
    items = clauses.select_items(tree, scope)
    group, having = tree.args.get("group"), tree.args.get("having")
    condition = clauses.bind_having(having.this, items, scope) if having is not None else None
    groups = clauses.bind_groups(group, items, replace(scope, barred="GROUP BY")) if group is not None else ()
    order = clauses.bind_order(tree, items, scope, once=env.once)
    has_aggregates = any(clauses.aggregates_in(item.expression) for item in items)
    is_plain = group is None and condition is None and not has_aggregates

    def aggregated(outputs: Sequence[Output]) -> Relation:
        return clauses.aggregation(base, groups, outputs, condition, scope.called)

    if is_plain:
        clauses.refuse_aggregates(order)
    if tree.args.get("distinct"):
        relation = clauses.aggregate_distinct(base, items) if is_plain else clauses.distinct_rows(aggregated(items))
        return clauses.order_over(relation, order and clauses.speak_of_outputs(order, items, relation))
    outputs, order = clauses.with_hidden(items, order)
    return clauses.top(project(base, outputs) if is_plain else aggregated(outputs), order, len(items))


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
        hint = "what stands in it twice counts twice, also through WITH and views: read each part fewer times"
        raise UnsupportedSql(f"the query is more than {RELATIONS_MAX:,} steps long", hint)
    return relation


def _bind_any(node: exp.Expression, env: Environment) -> Relation:
    match node:
        case exp.Select():
            return bind_block(node, env)
        case exp.SetOperation():
            return clauses.order_relation(node, bind_set(node, env), once=env.once)
        case exp.Subquery() if not node.args.get("alias"):
            allow_clauses(node, "this", "order", "limit", "offset", "with_")
            return clauses.order_relation(node, _bind_nested(node.this, env), once=env.once)
    raise SqlError("a view is defined by a SELECT")
