"""Scope: what a name means inside a query, and what surrounds the query.

In: the columns of FROM in order, with their names; each query passes its environment to the queries inside. Out: the
expression that a name refers to; relations by name. Always: a name that could mean two columns is an error; a column of
the query around a subquery is an `OuterRef`; a name of WITH hides a table or view of the same name, and an outer WITH.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from sqlglot import exp

from viewkeeper.algebra.expressions import ColumnRef, Expression, rewrite
from viewkeeper.algebra.relations import Relation, Scan
from viewkeeper.errors import SqlError, UnknownName, UnsupportedSql
from viewkeeper.model.memo import once_for_each
from viewkeeper.model.schema import Column
from viewkeeper.model.wording import suggestion


@dataclass(frozen=True, slots=True)
class OuterRef(ColumnRef):
    """A column of the outer query, by its position there; none is left once the subquery has become a join."""


@dataclass(frozen=True, slots=True)
class Name:
    """A column under one name. One that is not `shown` needs its qualifier: the other side's key after USING."""

    name: str
    qualifier: str | None
    expression: Expression
    shown: bool = True

    def goes_by(self, qualifier: str | None) -> bool:
        return self.belongs_to(qualifier) if qualifier else self.shown

    def belongs_to(self, qualifier: str) -> bool:
        return self.qualifier is not None and self.qualifier.lower() == qualifier.lower()


@once_for_each(kept_max=16)
def _by_name(names: tuple[Name, ...]) -> dict[str, list[Name]]:
    """Names by their lower case, made once: a table may have thousands of columns, and each is looked up."""
    found: dict[str, list[Name]] = {}
    for entry in names:
        found.setdefault(entry.name.lower(), []).append(entry)
    return found


@dataclass(frozen=True, slots=True)
class Source:
    """What FROM reads: its name, if any, and its name in messages."""

    qualifier: str | None
    label: str


@dataclass(frozen=True, slots=True)
class Scope:
    """What names mean. `barred` names the clause in which aggregates are not allowed, if any.

    `aliases` are names of expressions that are already bound. `outer` is the query around a subquery; names may refer
    to its columns where `reaches_out`, unless a clause of the subquery (`closed_by`) forbids it.
    """

    names: tuple[Name, ...]
    sources: tuple[Source, ...]
    barred: str | None = None
    depth: int = 0
    aliases: Mapping[str, Expression] = field(default_factory=dict)
    outer: Scope | None = None
    reaches_out: bool = False
    closed_by: str | None = None

    def find(self, node: exp.Column) -> Name:
        """The column that `node` names, here or, where that is allowed, in the outer query."""
        if (found := self._lookup(node)) is not None:
            return found

        def as_outer(part: Expression) -> Expression | None:
            return OuterRef(part.position, part.name, part.type, part.nullable) if isinstance(part, ColumnRef) else None

        if self.reaches_out and self.outer is not None and (around := self.outer._lookup(node)) is not None:
            return replace(around, expression=rewrite(around.expression, as_outer))
        self._refuse_outer(node)
        raise self._around(node.table)._unknown(node)

    def called(self, column: ColumnRef) -> str:
        """A column's name in messages: with its table, if FROM has several."""
        found = next((one for one in self.names if one.expression == column), None)
        return column.name if found is None or len(self.sources) < 2 else _dotted(found.name, found.qualifier)

    def has_column(self, name: str) -> bool:
        return any(entry.shown for entry in self._named(name))

    def _lookup(self, node: exp.Column) -> Name | None:
        if node.args.get("db"):
            return None
        found = [entry for entry in self._named(node.name) if entry.goes_by(node.table)]
        if len(found) > 1:
            raise self._ambiguous(node, found)
        return found[0] if found else None

    def _named(self, name: str) -> Sequence[Name]:
        return _by_name(self.names).get(name.lower(), ())

    def _ambiguous(self, node: exp.Column, found: Sequence[Name]) -> SqlError:
        tables = [one for one in self.sources if one.qualifier and one.qualifier.lower() == node.table.lower()]
        if len(tables) > 1:
            hint = f"two tables of FROM are called {node.table}; give one another name with AS"
            return SqlError(f"{node.sql(dialect='spark')} is ambiguous", hint)
        return ambiguous(node.name, [entry.qualifier for entry in found])

    def _refuse_outer(self, node: exp.Column) -> None:
        around = self.outer
        while around is not None:
            if around._lookup(node) is not None:
                because = f", which has {self.closed_by}" if self.closed_by else ""
                fact = f"{node.sql(dialect='spark')} belongs to the query around the subquery{because}"
                hint = "in its own WHERE, not deeper, and not below GROUP BY, LIMIT or a set operation"
                raise UnsupportedSql(fact, f"a subquery may name it {hint}")
            around = around.outer

    def _around(self, qualifier: str) -> Scope:
        """The innermost scope that has a source of that name, else this one."""
        scope: Scope | None = self
        while scope is not None:
            if any((one.qualifier or "").lower() == qualifier.lower() for one in scope.sources):
                return scope
            scope = scope.outer
        return self

    def _unknown(self, node: exp.Column) -> UnknownName:
        called = self.sources
        if node.table or node.args.get("db"):
            called = tuple(one for one in called if (one.qualifier or "").lower() == node.table.lower())
            if node.args.get("db") or not called:
                return UnknownName(f"unknown table in {node.sql(dialect='spark')}", self.hint_of_sources())
        if len(called) == 1:
            own = called[0].qualifier if len(self.sources) > 1 else None
            columns = [one.name for one in self.names if own is None or one.belongs_to(own)]
            hint = suggestion(node.name, columns, "its columns are")
            return UnknownName(f"{called[0].label} has no column {node.name}", hint)
        columns = [_dotted(one.name, one.qualifier) for one in self.names if one.shown]
        hint = suggestion(node.name, columns, "the columns are")
        return UnknownName(f"no table of FROM has a column {node.name}", hint)

    def hint_of_sources(self) -> str:
        names = [source.qualifier for source in self.sources if source.qualifier is not None]
        if not names:
            return "write the column's name alone"
        return f"the table is called {names[0]} here" if len(names) == 1 else f"FROM names {', '.join(names)}"


def names_of(
    columns: Sequence[Column], qualifier: str | None, *, names: Sequence[str] | None = None
) -> tuple[Name, ...]:
    """The columns of one source, by their own names or by the `names` they are given."""
    given = [column.name for column in columns] if names is None else names
    return tuple(
        Name(name, qualifier, ColumnRef(position, name, column.type, column.nullable))
        for position, (name, column) in enumerate(zip(given, columns, strict=True))
    )


def ambiguous(name: str, qualifiers: Sequence[str | None]) -> SqlError:
    """The refusal of a name that two columns have."""
    distinct = list(dict.fromkeys(_dotted(name, qualifier) for qualifier in qualifiers))
    if len(distinct) == 1:
        return SqlError(f"{name} is ambiguous", f"two columns are called {distinct[0]}; give one another name with AS")
    return SqlError(f"{name} is ambiguous", f"write {' or '.join(distinct)}")


def _dotted(name: str, qualifier: str | None) -> str:
    return name if qualifier is None else f"{qualifier}.{name}"


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

    `outer`, `reaches_out` and `closed_by` are those of `Scope`. `once`: the query runs once and is not maintained as a view,
    so it may have any order and pair every row with every row.
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
        if (found := self.queries.get(name.lower())) is not None:
            return found
        relation, label = self.relation_named(name), f"view {name}"
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
