"""Binding of WITH: queries that are given a name.

In: a query and its environment. Out: the environment that also resolves the names of WITH. Always: a query of
WITH sees those before it, and never itself.
"""

from __future__ import annotations

from sqlglot import exp

from viewkeeper.errors import DuplicateName, UnsupportedSql
from viewkeeper.sql.bind_from import column_aliases
from viewkeeper.sql.environment import Environment, Named
from viewkeeper.sql.refusals import allow_clauses


def bind_with(node: exp.Expression, env: Environment) -> Environment:
    clause = node.args.get("with_")
    if clause is None:
        return env
    if clause.args.get("recursive"):
        raise UnsupportedSql("WITH RECURSIVE is not supported", "a query of WITH may name those before it")
    names: set[str] = set()
    for entry in clause.expressions:
        if entry.alias.lower() in names:
            raise DuplicateName(f"WITH names {entry.alias} twice", "give one another name")
        names.add(entry.alias.lower())
        env = env.with_query(entry.alias, _bind_entry(entry, env))
    return env


def _bind_entry(entry: exp.CTE, env: Environment) -> Named:
    allow_clauses(entry, "this", "alias")
    relation = env.bind_nested(entry.this, env)
    columns = [column.name for column in relation.columns]
    return Named(relation, f"query {entry.alias}", column_aliases(entry.args["alias"], columns, entry.alias))
