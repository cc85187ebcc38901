"""From the layout of a γ to its node: the SQL by which rows contribute to groups.

In: a layout and the rows of the relation that is grouped. Out: an `AggregateNode`. Always: contributions of failing
rows are left out; one node takes the rows of all branches of a union.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from viewkeeper.codegen.expression_sql import emit, group_key
from viewkeeper.model.schema import Column, TableId
from viewkeeper.plan.aggregate_layout import Accumulator, AggregateLayout, EntryPlan, Rolled
from viewkeeper.plan.canonical import spell
from viewkeeper.plan.nodes import AggregateNode, Direct, Edge, Entries, Rollup
from viewkeeper.plan.row_sql import Rows, Wanted
from viewkeeper.sql.expressions import ColumnRef, Expression, columns_of, walk


def aggregate_node(layout: AggregateLayout, rows: Sequence[Rows], ids: Iterator[TableId]) -> AggregateNode:
    """The node; `ids` are those of its tables, its own first."""
    table, kept = next(ids), layout.kept
    expressions = [*layout.groups, *kept.arguments]
    can_fail = any(one.can_fail(expressions) for one in rows)
    names = [f"k{place}" for place in range(len(layout.groups))]
    names += [f"a{place}" for place in range(len(kept.arguments))]
    wanted: list[Wanted] = [(name, part, emit(part)) for name, part in zip(names, expressions, strict=True)]
    entries = tuple(_entries(layout, plan, next(ids), can_fail=can_fail) for plan in kept.entries)
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
        rollup=_rollup(rows[0], layout) if len(rows) == 1 else None,
        direct=_direct(rows[0], layout) if len(rows) == 1 and rows[0].is_raw and not can_fail else None,
    )


def _edge(
    rows: Rows, wanted: Sequence[Wanted], expressions: Sequence[Expression], ids: Iterator[TableId], *, can_fail: bool
) -> Edge:
    aside = next(ids) if rows.can_fail(expressions) else None
    return rows.edge(wanted, aside, with_key=False, marked=can_fail)


def _direct(rows: Rows, layout: AggregateLayout) -> Direct:
    kept = layout.kept
    filters = {spell(one): one for _, one in (state.direct for state in kept.states) if one is not None}
    places = {text: place for place, text in enumerate(filters)}
    entries = [[kept.arguments[argument] for argument in plan.arguments] for plan in kept.entries]
    return Direct(
        passes=_is_true(" AND ".join(f"({emit(one)})" for one in rows.predicates) or "TRUE"),
        keys=tuple(group_key(emit(group), group.type) for group in layout.groups),
        filters=tuple(_is_true(emit(one)) for one in filters.values()),
        states=tuple(
            (sql, None if one is None else places[spell(one)]) for sql, one in (s.direct for s in kept.states)
        ),
        arguments=tuple((one, emit(kept.arguments[one])) for one in {one.argument: None for one in kept.exact_sums}),
        values=tuple(tuple(group_key(emit(argument), argument.type) for argument in some) for some in entries),
    )


def _is_true(condition: str) -> str:
    return f"coalesce({condition}, FALSE)"


def _rollup(rows: Rows, layout: AggregateLayout) -> Rollup | None:
    """The contributions to groups from counted rows of a base table: when only counts and sums of columns are kept."""
    rolled = [state.rolled for state in layout.kept.states if state.rolled is not None]
    if rows.source < 0 or not rows.is_raw or len(rolled) < len(layout.kept.states):
        return None
    filters = list(dict.fromkeys(emit(one.filter) for one in rolled if one.filter is not None))
    sums = [_rolled_up(state, filters) for state in layout.kept.states]
    summed = tuple(sorted({one.column for one in rolled if one.column is not None}))
    names = ["n", *(f"{prefix}{column}" for column in summed for prefix in "nt")]
    expressions = (*layout.groups, *rows.predicates, *(one.filter for one in rolled if one.filter is not None))
    if filters:  # a row that fails counts for nothing, and must be found by itself
        can_fail = rows.can_fail([*expressions, *layout.kept.arguments])
        return None if can_fail else _filtered(rows, layout, filters, names, sums, summed)
    return _by_columns(rows, layout, expressions, names, sums, summed)


def _rolled_up(state: Accumulator, filters: Sequence[str]) -> str:
    rolled = state.rolled or Rolled("n", None)
    passing = "" if rolled.filter is None else f" FILTER (WHERE f{filters.index(emit(rolled.filter))})"
    return f"CAST(coalesce(sum({rolled.name}){passing}, 0) AS {state.column.type.duckdb})"


def _by_columns(
    rows: Rows,
    layout: AggregateLayout,
    expressions: Sequence[Expression],
    names: Sequence[str],
    sums: Sequence[str],
    summed: tuple[int, ...],
) -> Rollup | None:
    """Rows counted by the columns that groups and conditions refer to: several nodes can use them.

    A DOUBLE in the grain would merge -0.0 and 0.0, which an expression over it can tell apart.
    """
    kept = layout.kept
    references = [part for one in expressions for part in walk(one) if isinstance(part, ColumnRef)]
    is_double = any(part.type.kind == "DOUBLE" for part in references)
    if kept.exact_sums or kept.entries or not references or is_double:
        return None
    carried: list[Wanted] = [(name, None, name) for name in names]
    keys: list[Wanted] = [(f"k{place}", group, emit(group)) for place, group in enumerate(layout.groups)]
    edge = rows.edge([*carried, *keys], TableId(0), with_key=False)
    failed = ", bool_or(fails) AS failed" if edge.aside is not None else ""
    contribute = f"WITH rows AS ({edge.rows}) {_grouped(layout, sums, [], '', failed)}"
    grain = tuple((f"c{position}", f"c{position}") for position in columns_of(*expressions))
    return Rollup(grain, summed, contribute, readers_min=2)


def _filtered(
    rows: Rows,
    layout: AggregateLayout,
    filters: Sequence[str],
    names: Sequence[str],
    sums: Sequence[str],
    summed: tuple[int, ...],
) -> Rollup:
    """Rows counted by group and by which filters they pass: then an aggregate with a filter adds up few numbers."""
    keys = [(f"g{place}", emit(group)) for place, group in enumerate(layout.groups)]
    wheres = [(f"w{place}", emit(predicate)) for place, predicate in enumerate(rows.predicates)]
    grain = (*keys, *wheres, *((f"f{place}", sql) for place, sql in enumerate(filters)))
    carried = [
        *(f"g{place} AS k{place}" for place in range(len(keys))),
        *(f"f{place}" for place in range(len(filters))),
    ]
    where = f" WHERE {' AND '.join(name for name, _ in wheres)}" if wheres else ""
    selected = f"SELECT {', '.join([*carried, *names])} FROM delta{where}"
    return Rollup(grain, summed, f"WITH rows AS ({selected}) {_grouped(layout, sums, [], '')}", readers_min=1)


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


def _add(plan: EntryPlan) -> str:
    sums = [f"CAST(sum(sign * CAST({sql} AS HUGEINT)) AS HUGEINT) AS s{place}" for place, sql in enumerate(plan.each)]
    return f"SELECT owner, {', '.join(sums)} FROM changed GROUP BY owner" if sums else ""


def _grouped(layout: AggregateLayout, sums: Sequence[str], values: Sequence[str], where: str, also: str = "") -> str:
    """The contributions of `rows`: `sums` by group key, or by group key and `values`."""
    keys = [group_key(f"k{place}", group.type) for place, group in enumerate(layout.groups)]
    shown = [f"{sql} AS k{place}" for place, sql in enumerate(keys)]
    shown += [f"{sql} AS e{place}" for place, sql in enumerate(values)]
    shown += [f"{sql} AS {'n' if values else f's{place}'}" for place, sql in enumerate(sums)]
    by = [*keys, *values]
    grouped = f" GROUP BY {', '.join(by)}" if by else ""
    grouped += " HAVING sum(sign) <> 0" if values else ""  # an entry inserted and deleted is none
    return f"SELECT {', '.join(shown)}{also} FROM rows{f' WHERE {where}' if where else ''}{grouped}"


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
