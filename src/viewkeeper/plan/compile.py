"""From a logical plan of one view to the node that an epoch runs.

In: an unoptimized logical plan, so that which rows are set aside depends on the view's text alone. Out: a `CopyNode` or
a `FoldNode`, and where each shown column stands. Always: the SQL never fails: a row whose expression fails is left out,
a value of a group that fails reads NULL.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from viewkeeper.errors import InvariantBroken
from viewkeeper.model.schema import Column, TableSchema
from viewkeeper.plan.compile_fold import FoldLayout, lay_out_fold
from viewkeeper.plan.logical import Base, Delta, Fold, Index, LogicalPlan, Project, Select, View
from viewkeeper.plan.physical import CopyNode, FoldNode, Node, Shown
from viewkeeper.sql.bind import Output
from viewkeeper.sql.duckdb_sql import emit, group_key, guarded
from viewkeeper.sql.expressions import ColumnRef, Expression, columns_of


@dataclass(frozen=True, slots=True)
class Chain:
    """The nodes between a base table and a view, by their kind."""

    view: View
    table: TableSchema
    predicates: tuple[Expression, ...]
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
    place = len(plan.nodes) - 1
    while True:
        node = plan.nodes[place]
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
        found.get(Fold),  # type: ignore[arg-type]
        found.get(Project),  # type: ignore[arg-type]
        found.get(Index),  # type: ignore[arg-type]
    )


# Every relation of images has it; it is never NULL, so it also guards TRY against being folded to a constant.
_ORDER = "ord"


def _passing(predicates: Sequence[Expression]) -> str:
    """WHERE of the images that pass. A failing conjunct and a false one both leave the row out, so order is free."""
    parts = [emit(part) for part in predicates if not part.fallible]
    risky = [emit(part) for part in predicates if part.fallible]
    for part in risky:
        parts.append(f"({guarded([part], _ORDER)}).v0")
    return f" WHERE {' AND '.join(parts)}" if parts else ""


def _rows_sql(names: Sequence[str], expressions: Sequence[Expression], sqls: Sequence[str], where: str) -> str:
    """SELECT of `expressions` (written as `sqls`) over the passing images, without the rows on which one fails."""
    risky = [place for place, expression in enumerate(expressions) if expression.fallible]
    columns = [_ORDER]
    for place, (name, sql) in enumerate(zip(names, sqls, strict=True)):
        value = f"t.v{risky.index(place)}" if place in risky else sql
        columns.append(f"{value} AS {name}")
    if not risky:
        return f"SELECT {', '.join(columns)} FROM images{where}"
    tried = guarded([sqls[place] for place in risky], _ORDER)
    return f"SELECT {', '.join(columns)} FROM (SELECT *, {tried} AS t FROM images{where}) WHERE t IS NOT NULL"


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
    project = _rows_sql(
        names,
        [*keys, *stored],
        [*key_sqls, *(emit(expression) for expression in stored)],
        _passing(chain.predicates),
    )
    return CopyNode(
        table=chain.view.id,
        source=chain.table.id,
        columns=columns_of(*keys, *stored, *chain.predicates),
        key=tuple(chain.table.columns[position] for position in key),
        row=row,
        project=project,
    )


def _compile_fold(chain: Chain, fold: Fold, outputs: Sequence[Output]) -> tuple[FoldNode, tuple[Shown, ...]]:
    layout = lay_out_fold(fold.grouping, outputs)
    node = FoldNode(
        table=chain.view.id,
        source=chain.table.id,
        columns=columns_of(*layout.groups, *layout.arguments, *chain.predicates),
        key=tuple(Column(_stored_column(group).name, group.type, group.nullable) for group in layout.groups),
        state=layout.state,
        values=layout.values,
        contribute=_contribute(chain, layout),
        finish=layout.finish,
        always=not layout.groups,
    )
    return node, layout.shown


def _contribute(chain: Chain, layout: FoldLayout) -> str:
    keys = [f"k{place}" for place in range(len(layout.groups))]
    expressions = [*layout.groups, *layout.arguments]
    rows = _rows_sql(
        [*keys, *(f"a{place}" for place in range(len(layout.arguments)))],
        expressions,
        [emit(expression) for expression in expressions],
        _passing(chain.predicates),
    )
    normal = [group_key(key, group.type) for key, group in zip(keys, layout.groups, strict=True)]
    shown = [f"{sql} AS {key}" for sql, key in zip(normal, keys, strict=True)]
    states = [f"{sql} AS s{place}" for place, sql in enumerate(layout.state_sqls)]
    grouped = f" GROUP BY {', '.join(normal)}" if normal else ""
    return f"SELECT {', '.join([*shown, *states])} FROM ({rows}){grouped}"
