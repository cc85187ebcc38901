"""Binding of a view's query: one table, σ, π and γ.

In: the text of a SELECT and the tables it may name. Out: a frozen `BoundQuery`. Always: each output column has a
distinct name and a type; with aggregates, outputs speak of groups and aggregates only.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from sqlglot import exp

from viewkeeper.errors import DuplicateName, SqlError, UnsupportedSql
from viewkeeper.model.schema import TableSchema
from viewkeeper.sql import construct
from viewkeeper.sql.bind_expression import Scope, bind_expression
from viewkeeper.sql.expressions import Aggregate, ColumnRef, Expression, FoldRef, columns_of, rewrite, walk
from viewkeeper.sql.refusals import refuse_clause
from viewkeeper.sql.tokens import check_name, parse_query


@dataclass(frozen=True, slots=True)
class Output:
    name: str
    expression: Expression


@dataclass(frozen=True, slots=True)
class Grouping:
    """γ: group expressions in GROUP BY order (none: one group, always there), and the distinct aggregates."""

    groups: tuple[Expression, ...]
    aggregates: tuple[Aggregate, ...]


@dataclass(frozen=True, slots=True)
class BoundQuery:
    """`outputs` are over the table's columns, or over `FoldRef`s when there is a grouping."""

    table: TableSchema
    where: Expression | None
    grouping: Grouping | None
    outputs: tuple[Output, ...]


def bind_query(text: str, table_named: Callable[[str], TableSchema]) -> BoundQuery:
    """Bind the SELECT in `text`; `table_named` raises UnknownName for a table that does not exist."""
    tree = parse_query(text)
    while isinstance(tree, exp.Subquery) and not tree.args.get("alias"):
        tree = tree.this
    if isinstance(tree, exp.SetOperation):
        raise UnsupportedSql(f"{tree.key.upper()} is not supported in a view", "make one view for each branch")
    if not isinstance(tree, exp.Select):
        raise SqlError("a view is defined by a SELECT")
    _refuse_clauses(tree)
    table, qualifier = _source(tree, table_named)
    scope = Scope(table, qualifier, barred=None)
    where = tree.args.get("where")
    predicate = None
    if where is not None:
        bound = bind_expression(where.this, Scope(table, qualifier, barred="WHERE"))
        predicate = construct.boolean(bound, "WHERE")
    items = _select_items(tree, scope)
    group = tree.args.get("group")
    if group is None and not any(isinstance(node, Aggregate) for item in items for node in walk(item.expression)):
        return BoundQuery(table, predicate, None, _checked(items))
    groups = _groups(group, items, Scope(table, qualifier, barred="GROUP BY")) if group is not None else ()
    return _fold(table, predicate, groups, _checked(items))


def _refuse_clauses(tree: exp.Select) -> None:
    for name, value in tree.args.items():
        if value and name not in ("expressions", "from_", "where", "group"):
            raise refuse_clause(name)


def _source(tree: exp.Select, table_named: Callable[[str], TableSchema]) -> tuple[TableSchema, str]:
    source = tree.args.get("from_")
    if source is None:
        raise UnsupportedSql("a SELECT without FROM is not a view", "name the table it reads")
    node = source.this
    if isinstance(node, exp.Subquery):
        raise UnsupportedSql("a subquery in FROM is not supported in a view", "write the query over the table itself")
    if not isinstance(node, exp.Table) or not isinstance(node.this, exp.Identifier):
        raise UnsupportedSql("FROM takes the name of a table")
    for name, value in node.args.items():
        if name == "db" and value:
            raise UnsupportedSql(f"table {node.sql(dialect='spark')} is qualified", "a table has a name of one part")
        if value and name not in ("this", "alias"):
            raise refuse_clause(name)
    if node.args.get("alias") and node.args["alias"].columns:
        raise UnsupportedSql("a column list after the table's alias is not supported in a view")
    return table_named(node.name), node.alias or node.name


def _select_items(tree: exp.Select, scope: Scope) -> list[Output]:
    items: list[Output] = []
    for node in tree.expressions:
        if _is_star(node, scope):
            items += [_plain(scope.table, position) for position in range(len(scope.table.columns))]
            continue
        inner = node.this if isinstance(node, exp.Alias) else node
        if isinstance(node, exp.Aliases):
            raise UnsupportedSql("an alias of several names is not supported in a view")
        bound = construct.typed(bind_expression(inner, scope), "the select list")
        name = node.alias if isinstance(node, exp.Alias) else _given_name(bound)
        if isinstance(node, exp.Alias):
            check_name(name, "column")
        items.append(Output(name, bound))
    return items


def _given_name(expression: Expression) -> str:
    """A column keeps its declared spelling; anything else is named by its text."""
    return expression.name if isinstance(expression, ColumnRef) else expression.text


def _plain(table: TableSchema, position: int) -> Output:
    column = table.columns[position]
    return Output(column.name, ColumnRef(position, column.name, column.type, column.nullable))


def _is_star(node: exp.Expression, scope: Scope) -> bool:
    star = node.this if isinstance(node, exp.Column) else node
    if not isinstance(star, exp.Star):
        return False
    if any(star.args.values()):
        raise UnsupportedSql("* EXCEPT is not supported in a view", "list the columns")
    if isinstance(node, exp.Column) and node.table.lower() != scope.qualifier.lower():
        raise UnsupportedSql(f"{node.table}.* names no table of FROM", f"the table is called {scope.qualifier} here")
    return True


def _checked(items: list[Output]) -> tuple[Output, ...]:
    seen: set[str] = set()
    for item in items:
        if item.name.lower() in seen:
            raise DuplicateName(f"two columns of the view are called {item.name}", "give one another name with AS")
        seen.add(item.name.lower())
    return tuple(items)


def _groups(group: exp.Group, items: list[Output], scope: Scope) -> tuple[Expression, ...]:
    for name, value in group.args.items():
        if value and name != "expressions":
            raise UnsupportedSql(
                f"GROUP BY {name.upper()} is not supported in a view", "make one view for each grouping"
            )
    groups: list[Expression] = []
    for node in group.expressions:
        bound = _group(node, items, scope)
        if bound not in groups:
            groups.append(bound)
    if not groups:
        raise SqlError("GROUP BY names nothing")
    return tuple(groups)


def _group(node: exp.Expression, items: list[Output], scope: Scope) -> Expression:
    """A column of the table, else an alias of the select list; a number is a place in the select list (Spark)."""
    if isinstance(node, exp.Literal) and not node.is_string and node.this.isdigit():
        place = int(node.this)
        if not 1 <= place <= len(items):
            raise SqlError(f"GROUP BY {place} is outside the select list", f"it has {len(items)} columns")
        return _ungrouped(items[place - 1].expression)
    if isinstance(node, exp.Column) and not node.table:
        is_column = any(column.name.lower() == node.name.lower() for column in scope.table.columns)
        for item in items:
            if not is_column and item.name.lower() == node.name.lower():
                return _ungrouped(item.expression)
    return construct.typed(bind_expression(node, scope), "GROUP BY")


def _ungrouped(expression: Expression) -> Expression:
    for node in walk(expression):
        if isinstance(node, Aggregate):
            raise SqlError(f"{node.text} cannot stand in GROUP BY", "aggregates belong in the select list")
    return expression


def _fold(
    table: TableSchema, where: Expression | None, groups: tuple[Expression, ...], items: tuple[Output, ...]
) -> BoundQuery:
    aggregates: list[Aggregate] = []

    def refer(node: Expression) -> Expression | None:
        if node in groups:
            return FoldRef("group", groups.index(node), node)
        if isinstance(node, Aggregate):
            if node not in aggregates:
                aggregates.append(node)
            return FoldRef("aggregate", aggregates.index(node), node)
        if isinstance(node, ColumnRef):
            raise SqlError(f"{node.name} is neither grouped nor aggregated", f"add {node.name} to GROUP BY")
        return None

    outputs = tuple(Output(item.name, rewrite(item.expression, refer)) for item in items)
    return BoundQuery(table, where, Grouping(groups, tuple(aggregates)), outputs)


def columns_read(query: BoundQuery) -> tuple[int, ...]:
    """Positions of all base columns that the query reads."""
    expressions = [query.where] if query.where is not None else []
    if query.grouping is None:
        expressions += [output.expression for output in query.outputs]
    else:
        expressions += [*query.grouping.groups, *query.grouping.aggregates]
    return columns_of(*expressions)
