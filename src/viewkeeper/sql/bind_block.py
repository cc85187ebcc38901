"""Binding of one SELECT: FROM, WHERE, GROUP BY, HAVING, the select list, DISTINCT, ORDER BY and LIMIT.

In: a SELECT and its environment. Out: a relation. Always: a clause without a rule is refused; WHERE keeps its
conditions in written order.
"""

from __future__ import annotations

from dataclasses import replace

from sqlglot import exp

from viewkeeper.sql import construct
from viewkeeper.sql.bind_expression import bind_expression
from viewkeeper.sql.bind_from import bind_from
from viewkeeper.sql.bind_grouping import (
    aggregate_distinct,
    aggregates_in,
    aggregation,
    bind_groups,
    bind_having,
    distinct_rows,
)
from viewkeeper.sql.bind_order import bind_order, order_over, refuse_aggregates, speak_of_outputs, top, with_hidden
from viewkeeper.sql.bind_subqueries import apply_predicate, split_where
from viewkeeper.sql.environment import Block, Environment
from viewkeeper.sql.expressions import conjuncts, walk
from viewkeeper.sql.positions import project, select
from viewkeeper.sql.refusals import allow_clauses, refuse_clause
from viewkeeper.sql.relations import Relation
from viewkeeper.sql.scope import OuterRef, Scope
from viewkeeper.sql.select_list import select_items

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
