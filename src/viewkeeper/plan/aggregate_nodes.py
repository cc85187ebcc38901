"""From the layout of a γ to its node: the SQL by which rows contribute to groups.

In: a layout and the rows of the relation that is grouped. Out: an `AggregateNode`. Always: contributions of failing
rows are left out; one node takes the rows of all branches of a union.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from viewkeeper.algebra.canonical import spell
from viewkeeper.algebra.expressions import ColumnRef, Expression
from viewkeeper.codegen.expression_sql import emit, group_key
from viewkeeper.model.schema import Column, TableId
from viewkeeper.model.types import SqlType
from viewkeeper.plan.aggregate_layout import AggregateLayout, EntryPlan, unfiltered
from viewkeeper.plan.nodes import AggregateNode, Direct, Edge, Entries
from viewkeeper.plan.row_sql import Rows, Wanted


def aggregate_node(layout: AggregateLayout, rows: Sequence[Rows], ids: Iterator[TableId]) -> AggregateNode:
    """The node; `ids` are those of its tables, its own first."""
    table, kept = next(ids), layout.kept
    expressions = [*layout.groups, *kept.arguments]
    can_fail = any(one.can_fail(expressions) for one in rows)
    names = [f"k{place}" for place in range(len(layout.groups))]
    names += [f"a{place}" for place in range(len(kept.arguments))]
    wanted: list[Wanted] = [(name, part, emit(part)) for name, part in zip(names, expressions, strict=True)]
    types = {_types(layout, plan): next(ids) for plan in {_types(layout, one): one for one in kept.entries}.values()}
    entries = tuple(_entries(layout, one, types[_types(layout, one)], can_fail=can_fail) for one in kept.entries)
    groups = next(ids) if layout.has_having else None
    edges = tuple(_edge(one, wanted, expressions, ids, can_fail=can_fail) for one in rows)
    return AggregateNode(
        table=table,
        edges=edges,
        key=tuple(Column(_name(group), group.type, group.nullable) for group in layout.groups),
        contribute=_grouped(layout, [state.sql for state in kept.states], [], "NOT fails" if can_fail else ""),
        contribute_each=_each(layout, "NOT fails" if can_fail else ""),
        state=tuple(state.column for state in kept.states),
        exact_sums=tuple(kept.exact_sums),
        computed=tuple(kept.computed),
        entries=entries,
        values=layout.values,
        finish=layout.finish,
        having=layout.has_having,
        always=not layout.groups,
        groups=groups,
        degraded=next(ids) if layout.can_fail else None,
        direct=_direct(rows[0], layout) if len(rows) == 1 and rows[0].is_raw else None,
    )


def _edge(
    rows: Rows, wanted: Sequence[Wanted], expressions: Sequence[Expression], ids: Iterator[TableId], *, can_fail: bool
) -> Edge:
    aside = next(ids) if rows.can_fail(expressions) else None
    return rows.edge(wanted, aside, with_key=False, marked=can_fail)


def _direct(rows: Rows, layout: AggregateLayout) -> Direct:
    kept = layout.kept
    given = [state.given for state in kept.states]
    entries = [_unfiltered([kept.arguments[argument] for argument in plan.arguments]) for plan in kept.entries]
    conditions = [*(one.filter for one in given), *(condition for _, condition in entries)]
    filters = {spell(one): one for one in conditions if one is not None}
    places = {text: place for place, text in enumerate(filters)}
    numbers = [None if one is None else places[spell(one)] for one in conditions]
    passes = _is_true(" AND ".join(f"({emit(one)})" for one in rows.predicates)) if rows.predicates else None
    keys = [(group_key(emit(group), group.type), group.fallible) for group in layout.groups]
    tests = [(_is_true(emit(one)), one.fallible) for one in filters.values()]
    summed = {one.argument: kept.arguments[one.argument] for one in kept.exact_sums}
    arguments = {place: (emit(one), one.fallible) for place, one in summed.items()}
    values = [[(group_key(emit(one), one.type), one.fallible) for one in some] for some, _ in entries]
    parts = [(passes or "", any(one.fallible for one in rows.predicates)), *keys, *tests, *arguments.values()]
    parts += [*((one.sql or "", one.can_fail) for one in given), *(part for some in values for part in some)]
    return Direct(
        passes=passes,
        keys=tuple(sql for sql, _ in keys),
        filters=tuple(sql for sql, _ in tests),
        states=tuple(zip((one.sql for one in given), numbers, strict=False)),
        arguments=tuple((place, sql) for place, (sql, _) in arguments.items()),
        values=tuple(zip((tuple(sql for sql, _ in some) for some in values), numbers[len(given) :], strict=True)),
        risky=tuple(dict.fromkeys(sql for sql, can_fail in parts if can_fail)),
        is_whole=all(one.is_whole for one in given),
    )


def _unfiltered(arguments: Sequence[Expression]) -> tuple[Sequence[Expression], Expression | None]:
    """The arguments of entries without a FILTER that all of them have, and the condition of that."""
    parts = [unfiltered(one) for one in arguments]
    (first, *others) = (condition for _, condition in parts)
    if first is None or any(one is None or spell(one) != spell(first) for one in others):
        return arguments, None
    return [value for value, _ in parts], first


def _is_true(condition: str) -> str:
    return f"coalesce({condition}, FALSE)"


def _entries(layout: AggregateLayout, plan: EntryPlan, table: TableId, *, can_fail: bool) -> Entries:
    """Distinct values, none of them NULL, each with its multiplicity."""
    arguments = [layout.kept.arguments[place] for place in plan.arguments]
    names = [f"a{place}" for place in plan.arguments]
    values = [group_key(name, argument.type) for name, argument in zip(names, arguments, strict=True)]
    present = [f"{name} IS NOT NULL" for name in names]
    return Entries(
        table=table,
        values=layout.kept.values(plan),
        contribute=_grouped(
            layout,
            ["CAST(sum(sign) AS BIGINT)"],
            values,
            " AND ".join([*(["NOT fails"] if can_fail else []), *present]),
        ),
        add=_add(plan),
        facts=plan.facts,
    )


def _types(layout: AggregateLayout, plan: EntryPlan) -> tuple[SqlType, ...]:
    return tuple(column.type for column in layout.kept.values(plan))


def _add(plan: EntryPlan) -> str:
    sums = [f"CAST(sum(sign * CAST({sql} AS HUGEINT)) AS HUGEINT) AS s{place}" for place, sql in enumerate(plan.each)]
    return f"SELECT owner, {', '.join(sums)} FROM changed GROUP BY owner" if sums else ""


def _grouped(layout: AggregateLayout, sums: Sequence[str], values: Sequence[str], where: str) -> str:
    """The contributions of `rows`: `sums` by group key, or by group key and `values`."""
    keys = [group_key(f"k{place}", group.type) for place, group in enumerate(layout.groups)]
    shown = [f"{sql} AS k{place}" for place, sql in enumerate(keys)]
    shown += [f"{sql} AS e{place}" for place, sql in enumerate(values)]
    shown += [f"{sql} AS {'n' if values else f's{place}'}" for place, sql in enumerate(sums)]
    by = [*keys, *values]
    grouped = f" GROUP BY {', '.join(by)}" if by else ""
    grouped += " HAVING sum(sign) <> 0" if values else ""  # an entry inserted and deleted is none
    return f"SELECT {', '.join(shown)} FROM rows{f' WHERE {where}' if where else ''}{grouped}"


def _each(layout: AggregateLayout, where: str) -> str:
    """What each of `rows` contributes: its group key, states, arguments of exact sums, and values of entries."""
    kept, each = layout.kept, [state.each for state in layout.kept.states]
    shown = [f"{group_key(f'k{place}', group.type)} AS k{place}" for place, group in enumerate(layout.groups)]
    shown += [f"{sql} AS s{place}" for place, sql in enumerate(each)]
    shown += [f"a{argument}" for argument in dict.fromkeys(one.argument for one in kept.exact_sums)]
    for number, plan in enumerate(kept.entries):
        values = [group_key(f"a{argument}", kept.arguments[argument].type) for argument in plan.arguments]
        shown += [f"{value} AS e{number}_{place}" for place, value in enumerate(values)]
    return f"SELECT sign, {', '.join(shown)} FROM rows{f' WHERE {where}' if where else ''}"


def _name(group: Expression) -> str:
    return group.name if isinstance(group, ColumnRef) else group.text
