"""Blocks: the SELECTs of a query over base tables, and what their parts are.

In: a query whose views and WITHs are expanded. Out: for each SELECT in it what belongs to it and not to a query inside
it. Always: a block's FROM can be bound by itself, so our binder knows its columns and the types of expressions over
them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import sqlglot
from sqlglot import expressions as exp

from viewkeeper.check.expansion import Tables
from viewkeeper.model.schema import Column
from viewkeeper.model.types import SqlType
from viewkeeper.sql.aggregates import FUNCTIONS, NODES, AggregateFunction, Asked
from viewkeeper.sql.bind import bind_select
from viewkeeper.sql.dialect import ViewSpark
from viewkeeper.sql.relations import Relation, Scan

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
        order = self.tree.args.get("order")
        for part in (*self.tree.expressions, self.tree.args.get("having"), order):
            for node in parts_of(part):
                if isinstance(node, exp.AggFunc):
                    yield node

    @cached_property
    def sums(self) -> list[tuple[exp.AggFunc, SqlType]]:
        """The calls of functions that sum, with the type of each one's argument."""
        calls = [call for call in self.aggregates() if _sums(call)]
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


def known(call: exp.AggFunc) -> AggregateFunction:
    return FUNCTIONS[NODES[type(call)]]


def _sums(call: exp.AggFunc) -> bool:
    return type(call) in NODES and known(call).error is not None


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
    if node is not None:
        yield from (part for part in node.walk(prune=_is_query) if not _is_query(part))


def _is_query(node: exp.Expression) -> bool:
    return isinstance(node, exp.Query)


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
