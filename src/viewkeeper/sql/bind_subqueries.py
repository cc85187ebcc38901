"""Binding of subqueries in WHERE: IN and EXISTS become semi and anti joins.

In: the conditions of a WHERE, and the relation that they filter. Out: that relation, joined. Always: NOT IN follows SQL's
rules for NULL; a subquery anywhere else is refused.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from sqlglot import exp

from viewkeeper.algebra import construct
from viewkeeper.algebra.expressions import Call, ColumnRef, Expression, Literal, rewrite, walk
from viewkeeper.algebra.relations import Join, Output, Relation, Select
from viewkeeper.algebra.rewriting import column_refs, conjunction, keep_columns
from viewkeeper.errors import SqlError, UnsupportedSql
from viewkeeper.model import types
from viewkeeper.sql.alternatives import refuse_fallible
from viewkeeper.sql.bind_clauses import aggregation, read_limit, select_items
from viewkeeper.sql.bind_expression import bind_expression
from viewkeeper.sql.bind_from import bind_with
from viewkeeper.sql.query_parser import and_parts
from viewkeeper.sql.scope import Environment, OuterRef, Scope, without_parentheses

SUBQUERIES_MAX = 50


@dataclass(frozen=True, slots=True)
class Predicate:
    """`x IN (query)` or `EXISTS (query)`, perhaps under NOT."""

    node: exp.Expression
    negated: bool

    @property
    def text(self) -> str:
        return ("NOT " if self.negated else "") + self.node.key.upper()


@dataclass(frozen=True, slots=True)
class _Subquery:
    """The rows of a subquery, its columns over them, and the conditions that correlate it with the outer query."""

    relation: Relation
    outputs: tuple[Expression, ...]
    correlated: tuple[Expression, ...] = ()


@dataclass(frozen=True, slots=True)
class _Ties:
    """The keys of both sides, and the other conditions of a match."""

    left: list[Expression] = field(default_factory=list)
    right: list[Expression] = field(default_factory=list)
    residual: list[Expression] = field(default_factory=list)


def split_where(node: exp.Expression) -> tuple[list[exp.Expression], list[Predicate]]:
    """The conditions of a WHERE without subqueries, and its subquery predicates."""
    parts = and_parts(node)
    found = [_predicate(part) for part in parts]
    predicates = [one for one in found if one is not None]
    if not predicates:
        return [node], []
    if len(predicates) > SUBQUERIES_MAX:
        raise UnsupportedSql(f"WHERE has more than {SUBQUERIES_MAX} subqueries", "make views of some of them")
    return [part for part, one in zip(parts, found, strict=True) if one is None], predicates


def _predicate(node: exp.Expression) -> Predicate | None:
    negated = False
    while isinstance(node, exp.Not | exp.Paren):
        negated ^= isinstance(node, exp.Not)
        node = node.this
    if isinstance(node, exp.Exists) or (isinstance(node, exp.In) and node.args.get("query")):
        return Predicate(node, negated)
    return None


def apply_predicate(relation: Relation, predicate: Predicate, scope: Scope, env: Environment) -> Relation:
    """The rows of `relation` for which the predicate is true."""
    node = predicate.node
    query = node.this if isinstance(node, exp.Exists) else node.args["query"]
    inner = _open(query, env.within(scope), for_exists=isinstance(node, exp.Exists))
    ties = _tie(inner, predicate, len(relation.columns), once=env.once)
    pairs = [] if isinstance(node, exp.Exists) else _compared(node, inner, scope)
    if predicate.negated and any(side.nullable for pair in pairs for side in pair):
        return _not_in(relation, inner, ties, pairs)
    keys = (*ties.left, *(pair[0] for pair in pairs)), (*ties.right, *(pair[1] for pair in pairs))
    kind = "anti" if predicate.negated else "semi"
    return Join(kind, (relation, inner.relation), keys, conjunction(ties.residual))


def _open(node: exp.Expression, env: Environment, *, for_exists: bool) -> _Subquery:
    bare = without_parentheses(node)
    if isinstance(bare, exp.Select) and _is_plain(bare, for_exists=for_exists):
        env = bind_with(bare, env)
        block = env.open_block(bare, env)
        # DISTINCT changes nothing here: how often a row is in the subquery does not matter.
        outputs = tuple(item.expression for item in select_items(bare, block.scope))
        return _Subquery(block.relation, outputs, block.correlated)
    if isinstance(bare, exp.Select) and bare.args.get("order") and not bare.args.get("limit") and not env.once:
        raise UnsupportedSql("ORDER BY in a subquery says nothing without LIMIT", "leave it out")
    relation = env.bind_nested(node, replace(env, closed_by=_closing(bare)))
    return _Subquery(relation, column_refs(relation))


def _closing(tree: exp.Expression) -> str:
    """The clause because of which the subquery cannot be correlated."""
    if not isinstance(tree, exp.Select):
        return "a set operation"
    found = [name for name in ("group", "having", "offset", "limit") if tree.args.get(name)]
    return {"group": "GROUP BY"}.get(found[0], found[0].upper()) if found else "an aggregate"


def _is_plain(tree: exp.Select, *, for_exists: bool) -> bool:
    """Whether each row of FROM and WHERE is a row of the subquery; for EXISTS a LIMIT does not matter."""
    if any(tree.args.get(name) for name in ("group", "having", "offset")):
        return False
    limit = tree.args.get("limit")
    if limit is not None and for_exists:
        read_limit(limit)
    elif limit is not None or tree.args.get("order"):
        return False
    return not any(node.find(exp.AggFunc) for node in tree.expressions)


def _tie(inner: _Subquery, predicate: Predicate, width: int, *, once: bool) -> _Ties:
    """Correlated equalities become keys, other correlated conditions the residual."""
    ties = _Ties()
    for condition in inner.correlated:
        sides = _outer_and_inner(condition)
        if sides is None:
            ties.residual.append(rewrite(condition, lambda node: _side_by_side(node, width)))
        else:
            ties.left.append(rewrite(sides[0], lambda node: _side_by_side(node, 0)))
            ties.right.append(sides[1])
    residual = None if once else conjunction(ties.residual)
    if residual is not None and residual.fallible:
        raise refuse_fallible(f"the subquery of {predicate.text}", residual)
    if residual is not None and not ties.left and isinstance(predicate.node, exp.Exists):
        fact = f"the subquery of {predicate.text} is tied to the query around without an equality"
        raise UnsupportedSql(fact, "it needs a condition like b.y = a.x in its WHERE")
    return ties


def _outer_and_inner(condition: Expression) -> tuple[Expression, Expression] | None:
    if not (isinstance(condition, Call) and condition.name == "="):
        return None
    left, right = condition.args
    kinds = [{type(node) for node in walk(side) if isinstance(node, ColumnRef)} for side in (left, right)]
    if kinds == [{OuterRef}, {ColumnRef}]:
        return left, right
    return (right, left) if kinds == [{ColumnRef}, {OuterRef}] else None


def _side_by_side(node: Expression, width: int) -> Expression | None:
    """A column by its position where those of the outer query come first, then those of the subquery."""
    if isinstance(node, OuterRef):
        return ColumnRef(node.position, node.name, node.type, node.nullable)
    return replace(node, position=node.position + width) if isinstance(node, ColumnRef) else None


def _compared(node: exp.In, inner: _Subquery, scope: Scope) -> list[tuple[Expression, Expression]]:
    """The values before IN, each paired with the subquery's column, of equal types."""
    bare = node.this.unnest()
    nodes = bare.expressions if isinstance(bare, exp.Tuple) else [node.this]
    if len(nodes) != len(inner.outputs):
        hint = "write (a, b) IN (SELECT c, d …)"
        raise SqlError(f"IN compares {len(nodes)} values with {len(inner.outputs)} columns", hint)
    pairs = zip(nodes, inner.outputs, strict=True)
    calls = [construct.compare("=", bind_expression(part, scope), output) for part, output in pairs]
    return [(call.args[0], call.args[1]) for call in calls]  # type: ignore[union-attr]


def _not_in(
    relation: Relation, inner: _Subquery, ties: _Ties, pairs: Sequence[tuple[Expression, Expression]]
) -> Relation:
    """NOT IN where a side may be NULL: x is dropped if it is found, or if a NULL might equal it.

    Besides the anti join, one row for each correlated group (or for all) states whether the subquery has rows, and NULLs.
    """
    if len(pairs) > 1 or ties.residual:
        what = "of several columns that may be NULL" if len(pairs) > 1 else "tied by more than equalities"
        raise UnsupportedSql(f"NOT IN {what} is not supported", "use NOT EXISTS")
    ((value, listed),) = pairs
    width, keys = len(relation.columns), len(ties.right)
    found = Join("anti", (relation, inner.relation), ((*ties.left, value), (*ties.right, listed)))
    nulls = _count_nulls(inner.relation, ties.right, listed)
    together = Join("left", (found, nulls), (tuple(ties.left), column_refs(nulls)[:keys]))
    *empty, has_null = column_refs(together)[width + keys :]
    decided = construct.negation(has_null)
    if value.nullable:
        decided = construct.logical("and", construct.negation(construct.is_null(value)), decided)
    # A correlated group without rows does not exist, so the left join gives NULL for it.
    absent = construct.is_null(has_null) if keys else empty[0]
    return keep_columns(Select(together, construct.logical("or", absent, decided)), range(width))


def _count_nulls(relation: Relation, keys: Sequence[Expression], listed: Expression) -> Relation:
    """For each key, or once for all: whether a value is NULL, and, if once for all, whether there are no rows."""
    rows, values = construct.aggregate("count", ()), construct.aggregate("count", (listed,))
    is_empty = construct.compare("=", rows, Literal(0, types.BIGINT))
    items = [Output(key.text, key) for key in keys] or [Output("is_empty", is_empty)]
    items.append(Output("has_null", construct.compare(">", rows, values)))
    return aggregation(relation, tuple(dict.fromkeys(keys)), items)
