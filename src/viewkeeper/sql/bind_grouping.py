"""Binding of GROUP BY, HAVING and DISTINCT.

In: the relation of FROM and WHERE, and the select list over it. Out: γ, σ above it and π. Always: above γ an expression
refers to groups and aggregates only.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from sqlglot import exp

from viewkeeper.errors import SqlError, UnsupportedSql
from viewkeeper.sql import construct
from viewkeeper.sql.bind_expression import bind_expression
from viewkeeper.sql.expressions import Aggregate, AggregationRef, ColumnRef, Expression, rewrite, walk
from viewkeeper.sql.positions import column_refs
from viewkeeper.sql.relations import Aggregation, Grouping, Output, Project, Relation, Select
from viewkeeper.sql.scope import Scope


def aggregates_in(expression: Expression) -> list[Aggregate]:
    return [node for node in walk(expression) if isinstance(node, Aggregate)]


def bind_having(node: exp.Expression, items: Sequence[Output], scope: Scope) -> Expression:
    """HAVING may refer to aliases of the select list; one that is also a column's name is ambiguous."""
    named = {item.name.lower(): item.expression for item in items}
    aliases = {}
    for column in node.find_all(exp.Column):
        name = column.name.lower()
        if column.table or name not in named:
            continue
        meant = named[name]
        if not scope.has_column(name):
            aliases[name] = meant
        elif scope.find(column).expression != meant:
            raise SqlError(f"{column.name} in HAVING is a column and an alias", "give the alias another name")
    return construct.boolean(bind_expression(node, replace(scope, aliases=aliases)), "HAVING")


def bind_groups(group: exp.Group, items: Sequence[Output], scope: Scope) -> tuple[Expression, ...]:
    for name, value in group.args.items():
        if value and name != "expressions":
            hint = "name the columns" if name == "all" else "make one view for each grouping"
            raise UnsupportedSql(f"GROUP BY {name.replace('_', ' ').upper()} is not supported", hint)
    groups: list[Expression] = []
    for node in group.expressions:
        bound = _bind_group(node, items, scope)
        if bound not in groups:
            groups.append(bound)
    if not groups:
        raise SqlError("GROUP BY names nothing")
    return tuple(groups)


def _bind_group(node: exp.Expression, items: Sequence[Output], scope: Scope) -> Expression:
    """A column of FROM, else an alias of the select list; a number is a position in the select list (Spark)."""
    if isinstance(node, exp.Literal) and not node.is_string and node.this.isdigit():
        place = int(node.this)
        if not 1 <= place <= len(items):
            raise SqlError(f"GROUP BY {place} is outside the select list", f"it has {len(items)} columns")
        return _ungrouped(items[place - 1].expression)
    if isinstance(node, exp.Column) and not node.table:
        name = node.name.lower()
        for item in () if scope.has_column(name) else items:
            if item.name.lower() == name:
                return _ungrouped(item.expression)
    return construct.typed(bind_expression(node, scope), "GROUP BY")


def _ungrouped(expression: Expression) -> Expression:
    for node in aggregates_in(expression):
        raise SqlError(f"{node.text} cannot stand in GROUP BY", "aggregates belong in the select list")
    return expression


def aggregation(
    relation: Relation,
    groups: tuple[Expression, ...],
    items: Sequence[Output],
    having: Expression | None = None,
    called: Callable[[ColumnRef], str] = lambda column: column.name,
) -> Relation:
    """γ by `groups`, σ of HAVING, and π of `items`; `called` returns a column's name for messages."""
    places = {group: place for place, group in reversed(list(enumerate(groups)))}
    aggregates: dict[Aggregate, int] = {}

    def refer(node: Expression) -> Expression | None:
        if node in places:
            return AggregationRef("group", places[node], node)
        if isinstance(node, Aggregate):
            return AggregationRef("aggregate", aggregates.setdefault(node, len(aggregates)), node)
        if isinstance(node, ColumnRef):
            raise SqlError(f"{called(node)} is neither grouped nor aggregated", f"add {called(node)} to GROUP BY")
        return None

    outputs = tuple(Output(item.name, rewrite(item.expression, refer)) for item in items)
    condition = None if having is None else rewrite(having, refer)
    aggregated: Relation = Aggregation(relation, Grouping(groups, tuple(aggregates)))
    return Project(aggregated if condition is None else Select(aggregated, condition), outputs)


def aggregate_distinct(relation: Relation, items: Sequence[Output]) -> Relation:
    """SELECT DISTINCT: a grouping by all outputs, which are read from the key."""
    return aggregation(relation, tuple(dict.fromkeys(item.expression for item in items)), items)


def distinct_rows(relation: Relation) -> Relation:
    """Each row of `relation` once."""
    return aggregate_distinct(relation, [Output(ref.name, ref) for ref in column_refs(relation)])
