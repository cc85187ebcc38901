"""Aggregate nodes: from the layout of a γ to its node, with the terms that rows contribute.

In: a layout and the rows of the relation that is grouped. Out: an `AggregateNode`. Always: one node reads the rows of all
branches of a union; each term is computed once, however many aggregates need it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby

from viewkeeper.algebra.canonical import spell
from viewkeeper.algebra.expressions import ColumnRef, Expression, columns_of
from viewkeeper.codegen.expression_sql import emit, group_key
from viewkeeper.codegen.relation_sql import unfiltered
from viewkeeper.model.schema import Column, TableId
from viewkeeper.plan.aggregate_layout import AggregateLayout, term_of
from viewkeeper.plan.nodes import AggregateNode, Contribution, Entries, Given, Term
from viewkeeper.plan.row_sql import Rows


def aggregate_node(layout: AggregateLayout, rows: Sequence[Rows], ids: Iterator[TableId]) -> AggregateNode:
    """The node; `ids` are those of its tables, its own first."""
    table, kept = next(ids), layout.kept
    types = [tuple(column.type for column in kept.values(one)) for one in kept.entries]
    shared = {one: next(ids) for one in dict.fromkeys(types)}
    pairs = zip(types, kept.entries, strict=True)
    entries = [Entries(shared[type_], kept.values(one), one.adds, one.facts) for type_, one in pairs]
    groups = next(ids) if layout.has_having else None
    parts = [*layout.groups, *kept.arguments]
    return AggregateNode(
        table=table,
        edges=tuple(one.grouped_edge(parts, next(ids) if one.can_fail(parts) else None) for one in rows),
        conditions=tuple(_conditions(one) for one in rows),
        key=tuple(
            Column(one.name if isinstance(one, ColumnRef) else one.text, one.type, one.nullable)
            for one in layout.groups
        ),
        each=_contribution(layout),
        state=tuple(state.column for state in kept.states),
        exact_sums=tuple(kept.exact_sums),
        computed=tuple(kept.computed),
        entries=tuple(entries),
        values=layout.values,
        finish=layout.finish,
        finish_reads=layout.finish_reads,
        having=layout.has_having,
        always=not layout.groups,
        groups=groups,
        degraded=next(ids) if layout.can_fail else None,
    )


def _conditions(rows: Rows) -> tuple[Term, ...]:
    """The predicates, those together that follow one another and cannot fail."""
    found = list[Term]()
    for can_fail, some in groupby(rows.predicates, lambda one: one.fallible):
        for part in [[one] for one in some] if can_fail else [[*some]]:
            sql = " AND ".join(f"({emit(one)})" for one in part)
            found.append(Term(_is_true(sql), columns_of(*part), can_fail))
    return tuple(found)


class _Terms(dict[Term, int]):
    """Distinct terms, each with its index."""

    def index(self, term: Term) -> int:
        return self.setdefault(term, len(self))

    def filter(self, condition: Expression | None) -> int | None:
        return None if condition is None else self.index(term_of(condition, _is_true(emit(condition))))

    def key(self, value: Expression) -> int:
        return self.index(term_of(value, group_key(emit(value), value.type)))


def _contribution(layout: AggregateLayout) -> Contribution:
    kept, terms = layout.kept, _Terms()
    keys = tuple(terms.key(group) for group in layout.groups)
    states = tuple(
        Given(None if one.term is None else terms.index(one.term), one.is_count, terms.filter(one.filter))
        for one in kept.states
    )
    arguments = tuple(terms.index(term_of(kept.arguments[one.argument])) for one in kept.exact_sums)
    entries = [_unfiltered([kept.arguments[index] for index in plan.arguments]) for plan in kept.entries]
    values = tuple((tuple(map(terms.key, some)), terms.filter(condition)) for some, condition in entries)
    return Contribution(tuple(terms), keys, states, arguments, values)


def _unfiltered(arguments: Sequence[Expression]) -> tuple[Sequence[Expression], Expression | None]:
    """The arguments of entries without a FILTER that all of them have, and the condition of that."""
    parts = [unfiltered(one) for one in arguments]
    (first, *others) = (condition for _, condition in parts)
    if first is None or any(one is None or spell(one) != spell(first) for one in others):
        return arguments, None
    return [value for value, _ in parts], first


def _is_true(condition: str) -> str:
    return f"coalesce({condition}, FALSE)"
