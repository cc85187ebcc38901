"""Binding of FROM and WITH: tables, views, named queries, subqueries and joins.

In: the FROM or WITH of a query and its environment. Out: a relation, and the names of its columns; or the environment that
also resolves the names of WITH. Always: columns are numbered in FROM order; the columns of a side that may be absent are
nullable. An inner join is bound as σ over the product of its sources, in one flat list; in any other join the equalities
between the sides are the key, and the rest of ON is the residual. A query of WITH sees those before it, never itself.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from sqlglot import exp

from viewkeeper.algebra import construct
from viewkeeper.algebra.expressions import Call, Cast, ColumnRef, Expression, conjuncts, rewrite
from viewkeeper.algebra.relations import ON_SIDES, Join, Relation, Scan, Select, equality_of, is_product, sides_of
from viewkeeper.algebra.rewriting import conjunction, is_true, select, shift
from viewkeeper.errors import DuplicateName, InvariantBroken, SqlError, UnsupportedSql
from viewkeeper.model.schema import TableId, TableSchema
from viewkeeper.sql import alternatives
from viewkeeper.sql.alternatives import allow_clauses, name_of, refuse_fallible, refuse_keyless
from viewkeeper.sql.bind_expression import bind_expression
from viewkeeper.sql.query_parser import check_name
from viewkeeper.sql.scope import Environment, Name, Named, Scope, Source, names_of


def inner_join(left: Relation, right: Relation, on: Sequence[Expression], labels: tuple[str, str]) -> Relation:
    """σ over the product; `labels` name the two in messages."""
    first, second = _opened(left, labels[0]), _opened(right, labels[1])
    names = (*first.labels, *second.labels)
    product: Relation = Join("inner", (*first.sides, *second.sides), ((),) * len(names), labels=names)
    for predicate in _predicates(left):
        product = Select(product, predicate)
    for predicate in _predicates(right):
        product = Select(product, shift(predicate, len(left.columns)))
    return select(product, on)


def _opened(relation: Relation, label: str) -> Join:
    while isinstance(relation, Select):
        relation = relation.input
    if isinstance(relation, Join) and is_product(relation):
        return relation
    return Join("inner", (relation,), ((),), labels=(label,))


def _predicates(relation: Relation) -> list[Expression]:
    """The predicates of the σ over a product, the lowest first; FROM contains no other σ."""
    found = []
    while isinstance(relation, Select):
        found.append(relation.predicate)
        relation = relation.input
    return found[::-1]


def outer_join(
    kind: str,
    sides: tuple[Relation, Relation],
    on: Sequence[Expression],
    labels: tuple[str, str],
    called: Callable[[Expression], Expression | None],
    *,
    once: bool,
) -> Relation:
    """A join whose sides cannot be swapped; `called` returns a column's name for messages.

    A view needs a key, and its residual must not fail, because no row could be set aside; conditions of one side may.
    """
    keys: tuple[list[Expression], list[Expression]] = ([], [])
    residual = []
    for condition in on:
        equality = equality_of(condition, sides)
        if equality is not None:
            for side, term in equality.by_side().items():
                keys[side].append(shift(term, -len(sides[0].columns) if side else 0))
        elif not is_true(condition):
            residual.append(condition)
    if not keys[0] and not once:
        raise refuse_keyless(f"{kind.upper()} JOIN", *labels)
    filters = [(part, sides_of(part, sides)) for part in residual]  # of one side's rows, which fall out before the join
    stays = conjunction([part for part, read in filters if len(read) != 1 or min(read) not in ON_SIDES[kind]])
    if stays is not None and stays.fallible and not once:
        raise refuse_fallible(f"the {kind.upper()} JOIN with {labels[1]}", rewrite(stays, called))
    return Join(kind, sides, (tuple(keys[0]), tuple(keys[1])), conjunction(residual), labels)


JOINS_MAX = 50

# What a SELECT without FROM reads: one row without columns.
ONE_ROW = TableSchema(TableId(0), "", (), ())


@dataclass(frozen=True, slots=True)
class From:
    """A bound FROM; `label` names it in messages."""

    relation: Relation
    label: str
    names: tuple[Name, ...]
    sources: tuple[Source, ...]


_TAKEN = "FROM takes tables, views and subqueries"
_KINDS = {("", kind): "inner" for kind in ("", "INNER", "CROSS")}
_KINDS |= {(side, kind): side.lower() for side in ("LEFT", "RIGHT", "FULL") for kind in ("", "OUTER")}
_KINDS |= {(side, kind): kind.lower() for side in ("", "LEFT") for kind in ("SEMI", "ANTI")}


def bind_from(tree: exp.Select, env: Environment) -> From:
    node = tree.args.get("from_")
    if node is None and not env.once:
        raise UnsupportedSql("a SELECT without FROM is not a view", "name the table it reads")
    if node is None:
        return From(Scan(ONE_ROW), "nothing", (), ())
    return _join_all(_bind_source(node.this, env), tree.args.get("joins") or (), env)


def _join_all(found: From, joins: Sequence[exp.Join], env: Environment) -> From:
    if len(joins) > JOINS_MAX:
        raise UnsupportedSql(f"FROM has more than {JOINS_MAX} joins", "make views of some of them")
    for join in joins:
        found = _join(found, join, env)
    return found


def _bind_source(node: exp.Expression, env: Environment) -> From:
    match node:
        case exp.Table(this=exp.Identifier()):
            return _join_all(_bind_table(node, env), node.args.get("joins") or (), env)
        case exp.Subquery():
            return _bind_parentheses(node, env)
        case exp.Lateral():
            raise UnsupportedSql("LATERAL is not supported", "join with a subquery that names its own tables")
        case exp.Values():
            raise UnsupportedSql("VALUES in FROM is not supported", "put the rows into a table")
        case exp.Table(this=exp.Func() as function):
            name = name_of(function)
            hint = alternatives.INSTEAD_OF_FUNCTIONS.get(name.lower(), _TAKEN)
            raise UnsupportedSql(f"the function {name} in FROM is not supported", hint)
    raise UnsupportedSql(f"{node.sql(dialect='spark')} in FROM is not supported", _TAKEN)


def _bind_table(node: exp.Table, env: Environment) -> From:
    if node.args.get("db"):
        raise UnsupportedSql(f"table {node.sql(dialect='spark')} is qualified", "a table has a name of one part")
    allow_clauses(node, "this", "alias", "joins")
    if node.alias:
        check_name(node.alias, "table")
    return _leaf(env.named(node.name), node.alias or node.name, node.args.get("alias"))


def _bind_parentheses(node: exp.Subquery, env: Environment) -> From:
    allow_clauses(node, "this", "alias")
    alias = node.args.get("alias")
    inner = node.this
    while isinstance(inner, exp.Subquery):
        inner = inner.this
    if isinstance(inner, exp.Table):
        found = _bind_source(node.this, env)
        return found if alias is None else _under_alias(found, alias)
    relation = env.bind_nested(node.this, env)
    columns = tuple(column.name for column in relation.columns)
    label = f"subquery {node.alias}" if node.alias else "the subquery of FROM"
    return _leaf(Named(relation, label, columns), node.alias or None, alias)


def _leaf(found: Named, qualifier: str | None, alias: exp.TableAlias | None) -> From:
    columns = column_aliases(alias, found.columns, qualifier or found.label)
    names = names_of(found.relation.columns, qualifier, names=columns)
    return From(found.relation, qualifier or found.label, names, (Source(qualifier, found.label),))


def _under_alias(found: From, alias: exp.TableAlias) -> From:
    """Joined tables under one name: `(a JOIN b ON …) AS t`."""
    shown = [name for name in found.names if name.shown]
    columns = column_aliases(alias, [name.name for name in shown], alias.name)
    names = tuple(replace(one, name=name, qualifier=alias.name) for one, name in zip(shown, columns, strict=True))
    return replace(found, names=names, sources=(Source(alias.name, f"subquery {alias.name}"),))


def column_aliases(alias: exp.TableAlias | None, columns: Sequence[str], what: str) -> tuple[str, ...]:
    """The names that `AS t(a, b)` gives, else the existing ones."""
    given = tuple(column.name for column in alias.columns) if alias is not None else ()
    for name in given:
        check_name(name, "column")
    if given and len(given) != len(columns):
        raise SqlError(f"{what} has {len(columns)} columns, its alias names {len(given)}", "name each column, or none")
    return given or tuple(columns)


def _join(left: From, node: exp.Join, env: Environment) -> From:
    kind = _kind(node)
    right = _bind_source(node.this, env)
    by = len(left.relation.columns)
    moved = tuple(replace(name, expression=shift(name.expression, by)) for name in right.names)
    scope = Scope((*left.names, *moved), (*left.sources, *right.sources), barred="ON", outer=env.outer)
    pairs = _using(node, left, replace(right, names=moved))
    on: list[Expression] = [construct.compare("=", a.expression, b.expression) for a, b in pairs]
    if node.args.get("on") is not None:
        on += conjuncts(construct.boolean(bind_expression(node.args["on"], scope), "ON"))
    names = _names_after(kind, left.names, moved, pairs)
    labels = (left.label, right.label)
    if kind == "inner":
        return From(inner_join(left.relation, right.relation, on, labels), ", ".join(labels), names, scope.sources)

    def called(part: Expression) -> Expression | None:
        return replace(part, name=scope.called(part)) if isinstance(part, ColumnRef) else None

    relation = outer_join(kind, (left.relation, right.relation), on, labels, called, once=env.once)
    if kind in ("semi", "anti"):
        return From(relation, left.label, names, left.sources)
    return From(relation, ", ".join(labels), names, scope.sources)


def _kind(node: exp.Join) -> str:
    if node.method == "NATURAL":
        raise UnsupportedSql("NATURAL JOIN is not supported", "name the columns: JOIN … USING (a, b)")
    shown = " ".join(part for part in (node.method, node.side, node.kind) if part)
    allow_clauses(node, "this", "on", "using", "side", "kind", "method")
    if node.method or (node.side, node.kind) not in _KINDS:
        hint = "INNER, LEFT, RIGHT, FULL, CROSS, LEFT SEMI and LEFT ANTI JOIN are"
        raise UnsupportedSql(f"{shown} JOIN is not supported", hint)
    return _KINDS[node.side, node.kind]


def _using(node: exp.Join, left: From, right: From) -> list[tuple[Name, Name]]:
    columns = [exp.column(item.name) for item in node.args.get("using") or ()]
    first, second = (Scope(side.names, side.sources) for side in (left, right))
    return [(first.find(column), second.find(column)) for column in columns]


def _names_after(
    kind: str, left: tuple[Name, ...], right: tuple[Name, ...], pairs: Sequence[tuple[Name, Name]]
) -> tuple[Name, ...]:
    """The names of a join: with USING each key appears once and first, as in Spark.

    It is the left side's, with RIGHT JOIN the right side's, and with FULL JOIN whichever is not absent.
    """
    kept = {pair[0] for pair in pairs}, {pair[1] for pair in pairs}
    others = [name for name in left if name not in kept[0]]
    if kind in ("semi", "anti"):
        return (*(pair[0] for pair in pairs), *others)
    if kind in ("right", "full"):
        pairs, others = [(_absent(a), b) for a, b in pairs], [_absent(name) for name in others]
    last = [name for name in right if name not in kept[1]]
    if kind in ("left", "full"):
        pairs, last = [(a, _absent(b)) for a, b in pairs], [_absent(name) for name in last]
    if kind == "full":
        shown = [Name(a.name, None, construct.coalesce([a.expression, b.expression])) for a, b in pairs]
        hidden = [name for pair in pairs for name in pair]
    else:
        shown, hidden = ([pair[at] for pair in pairs] for at in ((1, 0) if kind == "right" else (0, 1)))
    return (*shown, *(replace(name, shown=False) for name in hidden), *others, *last)


def _absent(name: Name) -> Name:
    """The column of a side that may be absent."""
    return replace(name, expression=_nullable(name.expression))


def _nullable(expression: Expression) -> Expression:
    match expression:
        case ColumnRef():
            return replace(expression, nullable=True)
        case Call(name="coalesce", args=args):
            return construct.coalesce([_nullable(arg) for arg in args])
        case Cast(arg=arg):
            return replace(expression, arg=_nullable(arg))
    raise InvariantBroken(f"{expression.text} is no column of FROM")


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
        allow_clauses(entry, "this", "alias")
        relation = env.bind_nested(entry.this, env)
        columns = column_aliases(entry.args["alias"], [column.name for column in relation.columns], entry.alias)
        named = Named(relation, f"query {entry.alias}", columns)
        env = replace(env, queries={**env.queries, entry.alias.lower(): named})
    return env
