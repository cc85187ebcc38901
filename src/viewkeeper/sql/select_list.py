"""The select list: stars, columns and expressions with their names.

In: a SELECT and the scope of its FROM. Out: one `Output` for each column. Always: a column keeps its declared spelling,
any other expression without AS is named by its text.
"""

from __future__ import annotations

from sqlglot import exp

from viewkeeper.errors import UnsupportedSql
from viewkeeper.sql import construct
from viewkeeper.sql.bind_expression import bind_expression
from viewkeeper.sql.relations import Output
from viewkeeper.sql.scope import Scope
from viewkeeper.sql.tokens import check_name


def select_items(tree: exp.Select, scope: Scope) -> list[Output]:
    items: list[Output] = []
    for node in tree.expressions:
        if _is_star(node):
            items += _starred(node, scope)
            continue
        if isinstance(node, exp.Aliases):
            raise UnsupportedSql("an alias of several names is not supported")
        inner = node.this if isinstance(node, exp.Alias) else node
        bound = construct.typed(bind_expression(inner, scope), "the select list")
        if isinstance(node, exp.Alias):
            check_name(node.alias, "column")
            name = node.alias
        else:
            name = scope.find(inner).name if isinstance(inner, exp.Column) else bound.text
        items.append(Output(name, bound))
    return items


def _is_star(node: exp.Expression) -> bool:
    return isinstance(node.this if isinstance(node, exp.Column) else node, exp.Star)


def _starred(node: exp.Expression, scope: Scope) -> list[Output]:
    star = node.this if isinstance(node, exp.Column) else node
    if any(star.args.values()):
        words = " and ".join(name.rstrip("_").upper() for name, value in star.args.items() if value)
        raise UnsupportedSql(f"* {words} is not supported", "list the columns")
    if not isinstance(node, exp.Column):
        return [Output(name.name, name.expression) for name in scope.names if name.shown]
    found = [Output(name.name, name.expression) for name in scope.names if name.belongs_to(node.table)]
    if not found:
        raise UnsupportedSql(f"{node.table}.* names no table of FROM", scope.hint_of_sources())
    return found
