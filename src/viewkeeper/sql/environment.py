"""Environment: what surrounds a query.

In: nothing; each query passes it to the queries inside. Out: relations by name, the way to bind a nested query, and the
outer scope. Always: a name of WITH hides a table or view of the same name, and an outer WITH.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

from sqlglot import exp

from viewkeeper.errors import UnsupportedSql
from viewkeeper.sql.expressions import Expression
from viewkeeper.sql.relations import Relation, Scan
from viewkeeper.sql.scope import Scope

QUERY_DEPTH_MAX = 30


@dataclass(frozen=True, slots=True)
class Named:
    """A relation as FROM finds it: its name in messages, and the names of its columns."""

    relation: Relation
    label: str
    columns: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Block:
    """FROM and WHERE of one SELECT; `correlated` are the conditions of WHERE that refer to the outer query."""

    relation: Relation
    scope: Scope
    correlated: tuple[Expression, ...] = ()


def without_parentheses(node: exp.Expression) -> exp.Expression:
    """The query inside parentheses that have no clause of their own, such as ORDER BY."""
    while isinstance(node, exp.Subquery) and not any(value for name, value in node.args.items() if name != "this"):
        node = node.this
    return node


@dataclass(frozen=True, slots=True)
class Environment:
    """`bind_nested` binds a whole query, `open_block` FROM and WHERE of one SELECT.

    `outer` is the scope around a subquery; its WHERE may refer to it where `reaches_out`. `once`: the query runs once
    and is not maintained as a view, so it may have any order and pair every row with every row. `closed_by` names the
    clause that keeps a subquery from referring to the outer query.
    """

    relation_named: Callable[[str], Relation]
    bind_nested: Callable[[exp.Expression, Environment], Relation]
    open_block: Callable[[exp.Select, Environment], Block]
    queries: Mapping[str, Named] = field(default_factory=dict)
    outer: Scope | None = None
    reaches_out: bool = False
    depth: int = 0
    once: bool = False
    closed_by: str | None = None

    def named(self, name: str) -> Named:
        """What FROM `name` reads; UnknownName if nothing has this name."""
        found = self.queries.get(name.lower())
        if found is not None:
            return found
        relation = self.relation_named(name)
        label = f"view {name}"
        if isinstance(relation, Scan):
            label = f"{'view' if relation.is_view else 'table'} {relation.table.name}"
        return Named(relation, label, tuple(column.name for column in relation.columns))

    def deeper(self) -> Environment:
        """For a query inside: it does not see the columns of this one."""
        if self.depth >= QUERY_DEPTH_MAX:
            raise UnsupportedSql(f"queries are nested more than {QUERY_DEPTH_MAX} deep", "make views of the inner ones")
        return replace(self, depth=self.depth + 1, reaches_out=False)

    def within(self, scope: Scope) -> Environment:
        """For a subquery of WHERE: its own WHERE may refer to the columns of `scope`."""
        return replace(self.deeper(), outer=scope, reaches_out=True)

    def with_query(self, name: str, query: Named) -> Environment:
        return replace(self, queries={**self.queries, name.lower(): query})
