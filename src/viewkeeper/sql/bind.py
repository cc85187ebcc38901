"""Binding of a query: that of a view, or a SELECT that runs once.

In: the text of a query, and what a name of FROM means. Out: a tree of relations. Always: each column of the query has a
type, and in a view a distinct name; the tree does not depend on the spelling of the text; a text that is valid as both
a view and a SELECT means the same in both.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import islice

from sqlglot import exp

from viewkeeper.errors import DuplicateName, SqlError, UnsupportedSql
from viewkeeper.sql.bind_block import bind_block, open_block
from viewkeeper.sql.bind_order import order_relation
from viewkeeper.sql.bind_sets import bind_set
from viewkeeper.sql.bind_with import bind_with
from viewkeeper.sql.environment import Environment
from viewkeeper.sql.queries import parse_query
from viewkeeper.sql.refusals import allow_clauses
from viewkeeper.sql.relations import Relation, walk_relations

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
