"""Query blocks: a view's text over base tables alone, and the SELECTs that it consists of.

In: a view whose text may name other views. Out: a query in which every view, and every name of a WITH, is replaced by
its subquery, and every table has a name of its own; for each SELECT in it what belongs to it and not to a query inside
it. Always: the users' own text, not our planner's; a name means what it meant when the view was written, and a table
has the columns it had then. The FROM of a block can be bound alone, so our binder knows its columns and their types.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import sqlglot
from sqlglot import expressions as exp

from viewkeeper.algebra.aggregates import AGGREGATE_FUNCTIONS, NODES, AggregateFunction, Asked
from viewkeeper.algebra.relations import Relation, Scan
from viewkeeper.catalog.catalog import Catalog, ViewDefinition
from viewkeeper.errors import InvariantBroken, ViewKeeperError
from viewkeeper.model.schema import Column, TableSchema
from viewkeeper.model.types import SqlType
from viewkeeper.sql.bind_query import bind_select
from viewkeeper.sql.query_parser import ViewSpark

Tables = dict[str, TableSchema]


def expanded_query(catalog: Catalog, view: ViewDefinition) -> tuple[exp.Query, Tables]:
    """The query, and the tables that it reads by the names they have in it."""
    tables: Tables = {}
    return _expanded(catalog, view, tables), tables


def name_of(table: TableSchema) -> str:
    """The name of a table in the query; views of another age may see fewer columns of it."""
    return f"__table_{table.id}_{len(table.columns)}"


def changed_name(table: TableSchema) -> str:
    """The name of what has the changed rows of a table, as they were and as they became."""
    return f"__changed_{table.id}_{len(table.columns)}"


def _expanded(catalog: Catalog, view: ViewDefinition, tables: Tables) -> exp.Query:
    then, meant = catalog.as_of(view.id), dict(view.names)
    tree = sqlglot.parse_one(view.text, dialect=ViewSpark)
    if not isinstance(tree, exp.Query):
        raise InvariantBroken(f"view {view.name} is stored with a text that is no query")
    for clause in reversed(list(tree.find_all(exp.With))):  # inner ones first, so no name hides another
        _inline(clause)
    for node in list(tree.find_all(exp.Table)):
        entry = then.by_id(meant[node.name.lower()])
        if isinstance(entry, TableSchema):
            tables[name_of(entry)] = entry
            _put(node, exp.Table(this=exp.to_identifier(name_of(entry), quoted=True)))
        else:  # where the view's text gives no name, ours may differ from Spark's
            names = [exp.to_identifier(shown.column.name, quoted=True) for shown in entry.shown]
            _put(node, exp.Subquery(this=_expanded(then, entry, tables)), names)
    return tree


def _inline(clause: exp.With) -> None:
    """Replace the names of a WITH by its queries, the last first: a query may name those before it, not the others."""
    query = clause.parent
    if query is None:
        raise InvariantBroken("a WITH stands before no query")
    clause.pop()
    for common in reversed(clause.expressions):
        columns = common.args["alias"].args.get("columns") or []
        for node in [table for table in query.find_all(exp.Table) if table.name.lower() == common.alias.lower()]:
            _put(node, exp.Subquery(this=common.this.copy()), [column.copy() for column in columns])


def _put(node: exp.Table, source: exp.Expression, columns: list[exp.Identifier] | None = None) -> None:
    """Replace a table by `source`, under the table's name in the text; with its column names, where it gives any."""
    given = node.args.get("alias")
    named = [] if given is None else given.args.get("columns") or []
    alias = exp.to_identifier(node.alias or node.name, quoted=True)
    source.set("alias", exp.TableAlias(this=alias, columns=named or columns or []))
    source.set("joins", node.args.get("joins"))  # of a join in parentheses: they are attached to its first table
    node.replace(source)


_SUMMED_DIGITS_MAX = 28  # of a DECIMAL: Spark adds ten digits for the sum, and 38 is the maximum


@dataclass(frozen=True)
class Block:
    tree: exp.Select
    tables: Tables

    @property
    def joins(self) -> list[exp.Join]:
        return list(self.tree.args.get("joins") or [])

    @cached_property
    def columns(self) -> frozenset[str]:
        """The names of the columns of FROM, in lower case."""
        return frozenset(column.name.lower() for column in self.bound([exp.Star()]).columns)

    @property
    def is_grouped(self) -> bool:
        return self.tree.args.get("group") is not None or any(True for _ in self.aggregates())

    @property
    def groups(self) -> list[exp.Expression]:
        """The expressions of GROUP BY: for a position, or an alias, the selected expression."""
        group = self.tree.args.get("group")
        return [] if group is None else [self.meant(item) for item in group.expressions]

    def meant(self, item: exp.Expression) -> exp.Expression:
        """The expression that a position, or an alias, refers to; a column takes precedence over an alias."""
        if isinstance(item, exp.Literal) and item.is_int:
            return self.tree.expressions[int(item.this) - 1].unalias()
        if isinstance(item, exp.Column) and not item.table and item.name.lower() not in self.columns:
            named = [chosen for chosen in self.tree.expressions if chosen.alias.lower() == item.name.lower()]
            return named[0].unalias() if named else item
        return item

    def aggregates(self) -> Iterator[exp.AggFunc]:
        """The calls of aggregates, whose arguments are columns of FROM."""
        parts = (*self.tree.expressions, self.tree.args.get("having"), self.tree.args.get("order"))
        return (node for part in parts for node in parts_of(part) if isinstance(node, exp.AggFunc))

    @cached_property
    def sums(self) -> list[tuple[exp.AggFunc, SqlType]]:
        """The calls of functions that sum: they have an `error`. With the type of each one's argument."""
        calls = [call for call in self.aggregates() if type(call) in NODES and known(call).error is not None]
        items = [exp.alias_(argument_of(call).copy(), f"x{number}") for number, call in enumerate(calls)]
        types = [column.type for column in self.bound(items).columns] if calls else []
        return list(zip(calls, types, strict=True))

    @property
    def rounded(self) -> list[exp.AggFunc]:
        """The calls for which Spark adds doubles up."""
        return [call for call, type_ in self.sums if known(call).is_rounded(type_)]

    @property
    def sums_wide_decimals(self) -> bool:
        """Whether Spark may stop on its way to a sum that fits."""
        exact = [type_ for call, type_ in self.sums if not known(call).is_rounded(type_)]
        return any(type_.kind == "DECIMAL" and type_.precision > _SUMMED_DIGITS_MAX for type_ in exact)

    def bound(self, items: Sequence[exp.Expression], joins: Sequence[exp.Join] | None = None) -> Relation:
        """SELECT of other items from the same FROM, or from the first of its joins."""
        source = exp.Select(expressions=list(items))
        source.set("from_", self.tree.args["from_"].copy())
        source.set("joins", [join.copy() for join in (self.joins if joins is None else joins)])
        return bind_select(source.sql(dialect=ViewSpark), lambda name: Scan(self.tables[name]))

    def binds(self, items: Sequence[exp.Expression], joins: Sequence[exp.Join] | None = None) -> bool:
        """Whether `bound` knows all columns that the items refer to."""
        try:
            self.bound(items, joins)
        except ViewKeeperError:
            return False
        return True


def known(call: exp.AggFunc) -> AggregateFunction:
    return AGGREGATE_FUNCTIONS[NODES[type(call)]]


def argument_of(call: exp.AggFunc) -> exp.Expression:
    """The argument of a call of one argument, without DISTINCT."""
    return call.this.expressions[0] if isinstance(call.this, exp.Distinct) else call.this


def asked_of(call: exp.AggFunc, *, wide: bool) -> Asked:
    condition = call.parent.expression if isinstance(call.parent, exp.Filter) else None
    distinct = "DISTINCT " if isinstance(call.this, exp.Distinct) else ""
    where = "" if condition is None else f" FILTER ({text_of(condition)})"
    return Asked(text_of(argument_of(call)), distinct, where, wide=wide)


def blocks_of(tree: exp.Expression, tables: Tables) -> list[Block]:
    """All blocks; a block comes before those inside it, so that its FROM is unchanged when the block is rewritten."""
    return [Block(node, tables) for node in tree.find_all(exp.Select)]


def parts_of(node: exp.Expression | None) -> Iterator[exp.Expression]:
    """The node and what is below it, but not what is inside a query of its own."""
    found = node.walk(prune=lambda part: isinstance(part, exp.Query)) if node is not None else ()
    return (part for part in found if not isinstance(part, exp.Query))


def columns_named(tree: exp.Expression, columns: Sequence[Column]) -> list[Column]:
    """The columns of a table that a query can refer to: all, where it takes columns without naming them."""
    stars = [star for star in tree.find_all(exp.Star) if not isinstance(star.parent, exp.Count)]
    if stars or any(table.args["alias"].args.get("columns") for table in tree.find_all(exp.Table)):
        return list(columns)
    named = {part.name.lower() for part in tree.find_all(exp.Identifier)}
    return [column for column in columns if column.name.lower() in named]


def make_exact(block: Block, *, wide: bool) -> None:
    """`wide`: sum integers as DECIMAL; Spark stops where an intermediate sum leaves 64 bits, though the result fits."""
    for call, type_ in block.sums:
        asked = known(call).asked
        if type_.is_integer and asked is not None:
            whole = call.parent if isinstance(call.parent, exp.Filter) else call
            whole.replace(parsed(asked(asked_of(call, wide=wide))))


def parsed(text: str) -> exp.Expression:
    return sqlglot.parse_one(text, dialect=ViewSpark)


def text_of(node: exp.Expression) -> str:
    return node.sql(dialect=ViewSpark)
