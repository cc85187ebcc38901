"""From a bound query to a logical plan: base → δ → σ → γ → σ (having) → π → view.

In: a bound query, or an index definition. Out: an unoptimized `LogicalPlan`. Always: each conjunct of WHERE is a σ of
its own, in written order, so that views with a common first condition can share it.
"""

from __future__ import annotations

from viewkeeper.model.schema import TableId, TableSchema
from viewkeeper.plan.logical import Base, Delta, Fold, Index, LogicalNode, LogicalPlan, Project, Select, View
from viewkeeper.sql.expressions import conjuncts
from viewkeeper.sql.relations import Relation


def build_view(query: Relation, *, view_id: TableId, name: str, before_images: bool = True) -> LogicalPlan:
    nodes: list[LogicalNode] = [Base(query.table), Delta(0, before_images)]
    for part in conjuncts(query.where) if query.where is not None else ():
        nodes.append(Select(len(nodes) - 1, part))
    if query.grouping is not None:
        nodes.append(Fold(len(nodes) - 1, query.grouping))
    if query.having is not None:
        nodes.append(Select(len(nodes) - 1, query.having))
    nodes.append(Project(len(nodes) - 1, query.outputs))
    nodes.append(View(len(nodes) - 1, view_id, name))
    return LogicalPlan(tuple(nodes))


def build_index(
    table: TableSchema,
    *,
    view_id: TableId,
    name: str,
    columns: tuple[int, ...],
    covered: tuple[int, ...],
    before_images: bool = True,
) -> LogicalPlan:
    nodes = (Base(table), Delta(0, before_images), Index(1, columns, covered), View(2, view_id, name))
    return LogicalPlan(nodes)
