"""Binding of a view's query: one table, σ, π and γ.

In: the text of a SELECT and the tables it may name. Out: a frozen `BoundQuery`. Always: each output column has a
distinct name and a type; with aggregates, outputs speak of groups and aggregates only.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

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
    """`outputs` and `having` are over the table's columns, or over `FoldRef`s when there is a grouping.

    SELECT DISTINCT is a grouping by all outputs, without aggregates.
    """

    table: TableSchema
    where: Expression | None
    grouping: Grouping | None
    outputs: tuple[Output, ...]
    having: Expression | None = None
    distinct: bool = False


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
    group, having = tree.args.get("group"), tree.args.get("having")
    condition = _having(having.this, items, scope) if having is not None else None
    is_plain = not any(_aggregates(item.expression) for item in items)
    if group is None and condition is None and is_plain:
        distinct = tree.args.get("distinct") is not None
        return (_distinct if distinct else _plain_query)(table, predicate, _checked(items))
    if tree.args.get("distinct"):
        raise UnsupportedSql(
            "DISTINCT over groups is not supported in a view", "leave DISTINCT out: groups are distinct"
        )
    groups = _groups(group, items, Scope(table, qualifier, barred="GROUP BY")) if group is not None else ()
    return _fold(table, predicate, groups, _checked(items), condition)


def _aggregates(expression: Expression) -> list[Aggregate]:
    return [node for node in walk(expression) if isinstance(node, Aggregate)]


def _plain_query(table: TableSchema, where: Expression | None, items: tuple[Output, ...]) -> BoundQuery:
    return BoundQuery(table, where, None, items)


def _distinct(table: TableSchema, where: Expression | None, items: tuple[Output, ...]) -> BoundQuery:
    """The groups by all outputs; each is shown from the key."""
    groups = tuple(dict.fromkeys(item.expression for item in items))
    return replace(_fold(table, where, groups, items, None), distinct=True)


def _having(node: exp.Expression, items: list[Output], scope: Scope) -> Expression:
    """HAVING may speak of aliases of the select list; one that is a column's name too would be ambiguous."""
    bound = _bind_with_aliases(node, items, scope)
    return construct.boolean(bound, "HAVING")


def _bind_with_aliases(node: exp.Expression, items: list[Output], scope: Scope) -> Expression:
    columns = {column.name.lower() for column in scope.table.columns}
    named = {item.name.lower(): item.expression for item in items}
    aliases = {}
    for column in node.find_all(exp.Column):
        name = column.name.lower()
        if column.table or name not in named:
            continue
        meant = named[name]
        if name not in columns:
            aliases[name] = meant
        elif not (isinstance(meant, ColumnRef) and meant.name.lower() == name):
            raise SqlError(f"{column.name} in HAVING is a column and an alias", "give the alias another name")
    return bind_expression(node, replace(scope, aliases=aliases))


def _refuse_clauses(tree: exp.Select) -> None:
    for name, value in tree.args.items():
        if value and name not in ("expressions", "from_", "where", "group", "having", "distinct"):
            raise refuse_clause(name)
    if tree.args.get("distinct") and tree.args["distinct"].args.get("on"):
        raise UnsupportedSql(
            "DISTINCT ON is not supported in a view", "GROUP BY the columns, with MIN or MAX of the rest"
        )


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
    for node in _aggregates(expression):
        raise SqlError(f"{node.text} cannot stand in GROUP BY", "aggregates belong in the select list")
    return expression


def _fold(
    table: TableSchema,
    where: Expression | None,
    groups: tuple[Expression, ...],
    items: tuple[Output, ...],
    having: Expression | None,
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
    condition = None if having is None else rewrite(having, refer)
    return BoundQuery(table, where, Grouping(groups, tuple(aggregates)), outputs, condition)


def columns_read(query: BoundQuery) -> tuple[int, ...]:
    """Positions of all base columns that the query reads."""
    expressions = [query.where] if query.where is not None else []
    if query.grouping is None:
        expressions += [output.expression for output in query.outputs]
    else:
        expressions += [*query.grouping.groups, *query.grouping.aggregates]
    return columns_of(*expressions)
