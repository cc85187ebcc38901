"""Binding of the clauses around FROM and WHERE: the select list, DISTINCT, GROUP BY, HAVING, ORDER BY and LIMIT.

In: the relation of FROM and WHERE, its scope, and the clauses. Out: one `Output` for each column; γ, σ above it and π; a
`Top`, or, for a query that runs `once`, a `Sorted`. Always: a column keeps its declared spelling, any other expression
without AS is named by its text; above γ an expression refers to groups and aggregates only; an order is by columns of the
relation below, some of them hidden, so that a row whose order expression fails is set aside before it is ordered.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from sqlglot import exp

from viewkeeper.algebra import construct
from viewkeeper.algebra.expressions import Aggregate, AggregationRef, ColumnRef, Expression, rewrite, walk
from viewkeeper.algebra.relations import Aggregation, Grouping, Ordering, Output, Project, Relation, Select, Sorted, Top
from viewkeeper.algebra.rewriting import column_refs, keep_columns, project
from viewkeeper.errors import SqlError, UnsupportedSql
from viewkeeper.sql.alternatives import allow_clauses, refuse_clause
from viewkeeper.sql.bind_expression import bind_expression
from viewkeeper.sql.query_parser import check_name
from viewkeeper.sql.scope import Scope, Source, ambiguous, names_of


def select_items(tree: exp.Select, scope: Scope) -> list[Output]:
    items: list[Output] = []
    for node in tree.expressions:
        if isinstance(star := node.this if isinstance(node, exp.Column) else node, exp.Star):
            items += _starred(node, star, scope)
            continue
        if isinstance(node, exp.Aliases):
            raise UnsupportedSql("an alias of several names is not supported")
        inner = node.this if isinstance(node, exp.Alias) else node
        bound = construct.typed(bind_expression(inner, scope), "the select list")
        if isinstance(node, exp.Alias):
            check_name(node.alias, "column")
            name = node.alias
        else:
            name = scope.find(inner).name if isinstance(inner, exp.Column) else rewrite(bound, _as_shown).text
        items.append(Output(name, bound))
    return items


def _as_shown(node: Expression) -> Expression | None:
    """An aggregate of conditions by its own name; that of COUNT_IF is kept as a FILTER."""
    if not isinstance(node, Aggregate) or not node.shown:
        return None
    if node.args or node.filter is None:
        return replace(node, function=node.shown)
    return replace(node, function=node.shown, args=(node.filter,), filter=None)


def _starred(node: exp.Expression, star: exp.Star, scope: Scope) -> list[Output]:
    if any(star.args.values()):
        words = " and ".join(name.rstrip("_").upper() for name, value in star.args.items() if value)
        raise UnsupportedSql(f"* {words} is not supported", "list the columns")
    if not isinstance(node, exp.Column):
        return [Output(name.name, name.expression) for name in scope.names if name.shown]
    found = [Output(name.name, name.expression) for name in scope.names if name.belongs_to(node.table)]
    if not found:
        raise UnsupportedSql(f"{node.table}.* names no table of FROM", scope.hint_of_sources())
    return found


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
    groups = tuple(dict.fromkeys(_bind_group(node, items, scope) for node in group.expressions))
    if not groups:
        raise SqlError("GROUP BY names nothing")
    return groups


def _bind_group(node: exp.Expression, items: Sequence[Output], scope: Scope) -> Expression:
    """A column of FROM, else an alias of the select list; a number is a position in the select list (Spark)."""
    found = _at_position(node, items, "GROUP BY")
    if found is None and isinstance(node, exp.Column) and not node.table and not scope.has_column(node.name):
        found = next((item.expression for item in items if item.name.lower() == node.name.lower()), None)
    if found is None:
        return construct.typed(bind_expression(node, scope), "GROUP BY")
    for aggregate in aggregates_in(found):
        raise SqlError(f"{aggregate.text} cannot stand in GROUP BY", "aggregates belong in the select list")
    return found


def _at_position(node: exp.Expression, items: Sequence[Output], clause: str) -> Expression | None:
    """The expression of the select list that a number stands for; None of any other node."""
    if not isinstance(node, exp.Literal) or node.is_string or not node.this.isdigit():
        return None
    position = int(node.this)
    if not 1 <= position <= len(items):
        raise SqlError(f"{clause} {position} is outside the select list", f"it has {len(items)} columns")
    return items[position - 1].expression


def aggregation(
    relation: Relation,
    groups: tuple[Expression, ...],
    items: Sequence[Output],
    having: Expression | None = None,
    called: Callable[[ColumnRef], str] = lambda column: column.name,
) -> Relation:
    """γ by `groups`, σ of HAVING, and π of `items`; `called` returns a column's name for messages."""
    indexes = {group: index for index, group in reversed(list(enumerate(groups)))}
    aggregates: dict[Aggregate, int] = {}

    def refer(node: Expression) -> Expression | None:
        if node in indexes:
            return AggregationRef("group", indexes[node], node)
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


_LIMIT_MAX = 2**31 - 1


@dataclass(frozen=True, slots=True)
class Order:
    """ORDER BY, LIMIT and OFFSET, bound where the select list is bound."""

    terms: tuple[Ordering, ...]
    limit: int | None
    offset: int = 0

    def over(self, relation: Relation) -> Relation:
        if self.terms and self.limit and not self.offset:
            return Top(relation, self.terms, self.limit)
        return Sorted(relation, self.terms, self.limit, self.offset)


def bind_order(node: exp.Expression, items: Sequence[Output], scope: Scope, *, once: bool = False) -> Order | None:
    """The order of a query whose select list is `items` over `scope`; a name is an output first, then a column."""
    order, limit, offset = (node.args.get(name) for name in ("order", "limit", "offset"))
    if order is None and limit is None and offset is None:
        return None
    if not once:
        _require_whole(order, limit, offset)
    terms = tuple(_term(term, items, scope) for term in order.expressions) if order is not None else ()
    count = None if limit is None else limit.args.get("expression")
    is_all = once and isinstance(count, (exp.Var, exp.Column)) and count.name.upper() == "ALL"
    most = None if limit is None or is_all else read_limit(limit, least=0 if once else 1)
    return Order(terms, most, 0 if offset is None else read_limit(offset, least=0))


def _require_whole(order: exp.Expression | None, limit: exp.Expression | None, offset: exp.Expression | None) -> None:
    """Raise unless a view's order determines which rows it keeps."""
    if offset is not None:
        raise refuse_clause("offset")
    if limit is None:
        raise refuse_clause("order")
    if order is None:
        raise UnsupportedSql("LIMIT without ORDER BY is not deterministic", "say with ORDER BY which rows come first")


def read_limit(limit: exp.Expression, *, least: int = 1) -> int:
    """The number after LIMIT or OFFSET."""
    count = limit.args.get("expression")
    if isinstance(count, exp.Literal) and not count.is_string and count.this.isdigit():
        if limit.args.get("offset") or limit.args.get("expressions"):
            raise refuse_clause("offset")
        if least <= int(count.this) <= _LIMIT_MAX:
            return int(count.this)
    hint = f"{'OFFSET' if isinstance(limit, exp.Offset) else 'LIMIT'} takes a number from {least} to {_LIMIT_MAX}"
    raise UnsupportedSql(f"{limit.sql(dialect='spark').strip()} is not supported", hint)


def _term(node: exp.Ordered, items: Sequence[Output], scope: Scope) -> Ordering:
    allow_clauses(node, "this", "desc", "nulls_first")
    if isinstance(node.this, exp.Var) and node.this.name.upper() == "ALL":
        raise UnsupportedSql("ORDER BY ALL is not supported", "list the columns")
    aliases, found = {}, _at_position(node.this, items, "ORDER BY")
    for column in node.this.find_all(exp.Column):
        meant = {item.expression for item in items if item.name.lower() == column.name.lower()}
        if column.table or not meant:
            continue
        if len(meant) > 1:
            raise ambiguous(column.name, [None])
        aliases[column.name.lower()] = meant.pop()
    if found is None:
        found = construct.typed(bind_expression(node.this, replace(scope, aliases=aliases)), "ORDER BY")
    # sqlglot fills in Spark's defaults: NULLs come first, with DESC last.
    return Ordering(found, bool(node.args.get("desc")), bool(node.args["nulls_first"]))


def with_hidden(items: Sequence[Output], order: Order | None) -> tuple[tuple[Output, ...], Order | None]:
    """The select list with the columns that the order needs added, and the order over that list."""
    if order is None:
        return tuple(items), None
    extended, terms = list(items), []
    for term in order.terms:
        at = next((i for i, item in enumerate(extended) if item.expression == term.expression), len(extended))
        if at == len(extended):
            extended.append(Output(term.expression.text, term.expression))
        column = extended[at].column
        terms.append(replace(term, expression=ColumnRef(at, extended[at].name, column.type, column.nullable)))
    return tuple(extended), replace(order, terms=tuple(terms))


def top(relation: Relation, order: Order | None, shown: int) -> Relation:
    """The first rows of `relation`, whose first `shown` columns are those of the query."""
    return relation if order is None else keep_columns(order.over(relation), range(shown))


def order_relation(node: exp.Expression, relation: Relation, *, once: bool = False) -> Relation:
    """ORDER BY … LIMIT of a set operation or a query in parentheses: by names and positions of its columns."""
    scope = Scope(names_of(relation.columns, None), (Source(None, "the query"),), barred="ORDER BY")
    items = [Output(ref.name, ref) for ref in column_refs(relation)]
    return order_over(relation, bind_order(node, items, scope, once=once))


def order_over(relation: Relation, order: Order | None) -> Relation:
    """The first rows by expressions over the relation's own columns."""
    refs = column_refs(relation)
    items, order = with_hidden([Output(ref.name, ref) for ref in refs], order)
    return top(relation if len(items) == len(refs) else project(relation, items), order, len(refs))


def speak_of_outputs(order: Order, items: Sequence[Output], relation: Relation) -> Order:
    """The order of SELECT DISTINCT, whose rows have only the outputs, over the columns of `relation`."""
    refs = column_refs(relation)

    def refer(node: Expression) -> Expression | None:
        found = next((ref for item, ref in zip(items, refs, strict=True) if item.expression == node), None)
        if found is None and isinstance(node, ColumnRef | Aggregate):
            hint = "SELECT DISTINCT orders by what it selects"
            raise SqlError(f"ORDER BY {node.text} is not in the select list", hint)
        return found

    return replace(order, terms=tuple(replace(t, expression=rewrite(t.expression, refer)) for t in order.terms))


def refuse_aggregates(order: Order | None) -> None:
    """Aggregates in the ORDER BY of a query without groups."""
    for term in order.terms if order is not None else ():
        for node in aggregates_in(term.expression):
            raise SqlError(f"{node.text} in ORDER BY needs GROUP BY", "aggregates belong in the select list")
