"""From a logical plan of one view to the node that an epoch runs.

In: an unoptimized logical plan, so that which rows are set aside depends on the view's text alone. Out: a `CopyNode` or
a `FoldNode`, and where each shown column stands. Always: the SQL never fails: a row whose expression fails is marked,
a value of a group that fails reads NULL. The tables beside the view's own have the ids behind the view's.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import reduce

from viewkeeper.errors import InvariantBroken
from viewkeeper.model.schema import Column, TableId, TableSchema
from viewkeeper.plan.compile_fold import EntryPlan, FoldLayout, lay_out_fold
from viewkeeper.plan.logical import Base, Delta, Fold, Index, LogicalPlan, Project, Select, View
from viewkeeper.plan.physical import CopyNode, Entries, FoldNode, Node, Rollup, Shown
from viewkeeper.sql.construct import logical
from viewkeeper.sql.duckdb_sql import emit, group_key, guarded
from viewkeeper.sql.expressions import ColumnRef, Expression, columns_of
from viewkeeper.sql.relations import Output


@dataclass(frozen=True, slots=True)
class Chain:
    """The nodes between a base table and a view, by their kind."""

    view: View
    table: TableSchema
    predicates: tuple[Expression, ...]
    having: Expression | None
    fold: Fold | None
    project: Project | None
    index: Index | None


def compile_view(plan: LogicalPlan) -> tuple[Node, tuple[Shown, ...]]:
    chain = _chain(plan)
    if chain.index is not None:
        return _compile_index(chain, chain.index)
    if chain.project is None:
        raise InvariantBroken(f"view {chain.view.name} shows no columns")
    if chain.fold is not None:
        return _compile_fold(chain, chain.fold, chain.project.outputs)
    return _compile_copy(chain, chain.project.outputs)


def _chain(plan: LogicalPlan) -> Chain:
    found: dict[type, object] = {}
    predicates: list[Expression] = []
    having: Expression | None = None
    place = len(plan.nodes) - 1
    while True:
        node = plan.nodes[place]
        if isinstance(node, Fold) and predicates:
            having, predicates = reduce(lambda a, b: logical("and", a, b), predicates), []
        if isinstance(node, Select):
            predicates.insert(0, node.predicate)
        elif not isinstance(node, Delta):
            found[type(node)] = node
        if isinstance(node, Base):
            break
        place = node.input
    if View not in found:
        raise InvariantBroken("the plan does not end in a view")
    return Chain(
        found[View],  # type: ignore[arg-type]
        plan.base_of(0),
        tuple(predicates),
        having,
        found.get(Fold),  # type: ignore[arg-type]
        found.get(Project),  # type: ignore[arg-type]
        found.get(Index),  # type: ignore[arg-type]
    )


# Every relation of images has both; `ord` is never NULL, so it also guards TRY against being folded to a constant.
_ORDER, _SIGN = "ord", "sign"


def _rows_sql(
    names: Sequence[str],
    expressions: Sequence[Expression],
    sqls: Sequence[str],
    predicates: Sequence[Expression],
    carried: Sequence[str] = (),
) -> tuple[str, bool]:
    """SELECT of `expressions` (written as `sqls`) over the images that pass, and whether it marks `fails`.

    A failing row is one on which WHERE fails, or which passes and on which an expression fails. `carried`: columns of the
    images that stay as they are.
    """
    source, failures = _passing(predicates)
    risky = [place for place, expression in enumerate(expressions) if expression.fallible]
    if risky:
        tried = guarded([sqls[place] for place in risky], _ORDER)
        tried = f"CASE WHEN w.v0 THEN {tried} END" if failures else tried
        source = f"(SELECT *, {tried} AS t FROM {source})"
        failures = [*failures, "t IS NULL"]
    columns = [_ORDER, _SIGN, *carried]
    for place, (name, sql) in enumerate(zip(names, sqls, strict=True)):
        columns.append(f"{f't.v{risky.index(place)}' if place in risky else sql} AS {name}")
    if failures:
        columns.append(f"({' OR '.join(failures)}) AS fails")
    return f"SELECT {', '.join(columns)} FROM {source}", bool(failures)


def _passing(predicates: Sequence[Expression]) -> tuple[str, list[str]]:
    """The relation of images that pass, or on which WHERE fails; and the conditions that say which do."""
    if not predicates:
        return "images", []
    if not any(part.fallible for part in predicates):
        return f"images WHERE {' AND '.join(emit(part) for part in predicates)}", []
    whole = emit(reduce(lambda left, right: logical("and", left, right), predicates))
    return f"(SELECT *, {guarded([whole], _ORDER)} AS w FROM images) WHERE w IS NULL OR w.v0", ["w IS NULL"]


def _ids_behind(chain: Chain) -> Iterator[TableId]:
    return (TableId(number) for number in itertools.count(chain.view.id + 1))


def _base_key(table: TableSchema) -> tuple[int, ...]:
    return tuple(table.position(name) for name in table.key)


def _reference(table: TableSchema, position: int) -> ColumnRef:
    column = table.columns[position]
    return ColumnRef(position, column.name, column.type, column.nullable)


def _compile_copy(chain: Chain, outputs: Sequence[Output]) -> tuple[CopyNode, tuple[Shown, ...]]:
    """σ and π: under the base key; a key column that is shown is shown from the key."""
    key = _base_key(chain.table)
    stored: list[Expression] = []
    shown: list[Shown] = []
    for output in outputs:
        expression = output.expression
        column = Column(output.name, expression.type, expression.nullable)
        if isinstance(expression, ColumnRef) and expression.position in key:
            shown.append(Shown(column, "key", key.index(expression.position)))
            continue
        if expression not in stored:
            stored.append(expression)
        shown.append(Shown(column, "row", stored.index(expression)))
    row = tuple(_stored_column(expression) for expression in stored)
    return _copy_node(chain, key, stored, row), tuple(shown)


def _stored_column(expression: Expression) -> Column:
    name = expression.name if isinstance(expression, ColumnRef) else expression.text
    return Column(name, expression.type, expression.nullable)


def _compile_index(chain: Chain, index: Index) -> tuple[CopyNode, tuple[Shown, ...]]:
    """Under the indexed columns, then what of the base key is not among them."""
    key = (*index.columns, *(part for part in _base_key(chain.table) if part not in index.columns))
    covered = [_reference(chain.table, position) for position in index.covered]
    row = tuple(chain.table.columns[position] for position in index.covered)
    shown = [Shown(chain.table.columns[position], "key", place) for place, position in enumerate(key)]
    shown += [Shown(column, "row", place) for place, column in enumerate(row)]
    return _copy_node(chain, key, covered, row), tuple(shown)


def _copy_node(chain: Chain, key: tuple[int, ...], stored: Sequence[Expression], row: tuple[Column, ...]) -> CopyNode:
    base_key = _base_key(chain.table)
    keys = [_reference(chain.table, position) for position in key]
    # A base key is stored as it is; an indexed value is looked up by what SQL calls equal.
    key_sqls = [emit(ref) if ref.position in base_key else group_key(emit(ref), ref.type) for ref in keys]
    names = [f"k{place}" for place in range(len(keys))] + [f"v{place}" for place in range(len(stored))]
    sqls = [*key_sqls, *(emit(expression) for expression in stored)]
    project, can_fail = _rows_sql(names, [*keys, *stored], sqls, chain.predicates)
    return CopyNode(
        table=chain.view.id,
        source=chain.table.id,
        columns=columns_of(*keys, *stored, *chain.predicates),
        key=tuple(chain.table.columns[position] for position in key),
        row=row,
        project=project,
        aside=next(_ids_behind(chain)) if can_fail else None,
    )


def _compile_fold(chain: Chain, fold: Fold, outputs: Sequence[Output]) -> tuple[FoldNode, tuple[Shown, ...]]:
    layout = lay_out_fold(fold.grouping, outputs, chain.having)
    rows, can_fail = _fold_rows(chain, layout)
    ids = _ids_behind(chain)
    node = FoldNode(
        table=chain.view.id,
        source=chain.table.id,
        columns=columns_of(*layout.groups, *layout.arguments, *chain.predicates),
        key=tuple(Column(_stored_column(group).name, group.type, group.nullable) for group in layout.groups),
        rows=rows,
        contribute=_grouped(layout, layout.state_sqls, [], "NOT fails" if can_fail else ""),
        state=layout.state,
        doubles=layout.doubles,
        entries=tuple(_entries(layout, plan, next(ids), can_fail=can_fail) for plan in layout.entries),
        values=layout.values,
        finish=layout.finish,
        having=chain.having is not None,
        always=not layout.groups,
        groups=next(ids) if chain.having is not None else None,
        aside=next(ids) if can_fail else None,
        degraded=next(ids) if layout.can_fail else None,
        rollup=_rollup(chain, layout),
    )
    return node, layout.shown


def _rollup(chain: Chain, layout: FoldLayout) -> Rollup | None:
    """The same contributions from counted rows: when nothing but counts and sums of columns is kept.

    A DOUBLE in the grain would make -0.0 and 0.0 one, which an expression over it can tell apart.
    """
    grain = columns_of(*layout.groups, *chain.predicates)
    is_double = any(chain.table.columns[position].type.kind == "DOUBLE" for position in grain)
    if not layout.rolled or layout.doubles or layout.entries or not grain or is_double:
        return None
    summed = tuple(sorted({column for _, column in layout.rolled if column is not None}))
    carried = ["n", *(f"{prefix}{column}" for column in summed for prefix in "nt")]
    names = [f"k{place}" for place in range(len(layout.groups))]
    rows, can_fail = _rows_sql(
        names, layout.groups, [emit(group) for group in layout.groups], chain.predicates, carried
    )
    failed = ", bool_or(fails) AS failed" if can_fail else ""
    contribute = _grouped(layout, [sql for sql, _ in layout.rolled], [], "", failed)
    return Rollup(grain, summed, f"WITH rows AS ({rows}) {contribute}")


def _fold_rows(chain: Chain, layout: FoldLayout) -> tuple[str, bool]:
    expressions = [*layout.groups, *layout.arguments]
    names = [f"k{place}" for place in range(len(layout.groups))]
    names += [f"a{place}" for place in range(len(layout.arguments))]
    return _rows_sql(names, expressions, [emit(expression) for expression in expressions], chain.predicates)


def _entries(layout: FoldLayout, plan: EntryPlan, table: TableId, *, can_fail: bool) -> Entries:
    """Distinct values, none of them NULL, with how often each is there."""
    arguments = [layout.arguments[place] for place in plan.arguments]
    names = [f"a{place}" for place in plan.arguments]
    values = [group_key(name, argument.type) for name, argument in zip(names, arguments, strict=True)]
    present = [f"{name} IS NOT NULL" for name in names]
    return Entries(
        table=table,
        values=tuple(Column(argument.text, argument.type, nullable=False) for argument in arguments),
        contribute=_grouped(
            layout,
            ["CAST(sum(sign) AS BIGINT)"],
            values,
            " AND ".join([*(["NOT fails"] if can_fail else []), *present]),
        ),
        counted=plan.counted,
        first=plan.first,
        last=plan.last,
    )


def _grouped(layout: FoldLayout, sums: Sequence[str], values: Sequence[str], where: str, also: str = "") -> str:
    """The contributions of `rows`: `sums` by group key, or by group key and `values`."""
    keys = [group_key(f"k{place}", group.type) for place, group in enumerate(layout.groups)]
    shown = [f"{sql} AS k{place}" for place, sql in enumerate(keys)]
    shown += [f"{sql} AS e{place}" for place, sql in enumerate(values)]
    shown += [f"{sql} AS {'n' if values else f's{place}'}" for place, sql in enumerate(sums)]
    by = [*keys, *values]
    grouped = f" GROUP BY {', '.join(by)}" if by else ""
    grouped += " HAVING sum(sign) <> 0" if values else ""  # an entry that came and went is none
    return f"SELECT {', '.join(shown)}{also} FROM rows{f' WHERE {where}' if where else ''}{grouped}"
