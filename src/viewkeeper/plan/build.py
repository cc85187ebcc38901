"""From a bound relation to a logical plan: base → δ → σ → ⋈ → δ → γ → δ → σ (having) → π → view (paper 3, figure 3).

In: a relation, or an index definition. Out: an unoptimized `LogicalPlan`. Always: a base table stands once, with one δ;
each conjunct of WHERE is a σ of its own, in written order, so that views with a common first condition can share it; what
makes a new zone and feeds further nodes is followed by a δ.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from viewkeeper.model.schema import TableId, TableSchema
from viewkeeper.plan.logical import (
    BEFORE_IMAGES,
    STORED,
    VERSIONS,
    Base,
    Delta,
    Fold,
    Index,
    Join,
    LogicalNode,
    LogicalPlan,
    Project,
    ReverseJoin,
    Select,
    Top,
    Union,
    View,
)
from viewkeeper.sql import relations
from viewkeeper.sql.expressions import Expression, conjuncts
from viewkeeper.sql.relations import Relation


@dataclass(frozen=True, slots=True)
class Keeping:
    """Which stored node keeps a part of a query; of each view its name and the table that it shows."""

    tables: Mapping[Relation, int] = field(default_factory=dict)
    views: Mapping[TableId, tuple[str, int]] = field(default_factory=dict)


def build_view(relation: Relation, *, view_id: TableId, name: str, keeping: Keeping | None = None) -> LogicalPlan:
    builder = _Builder(keeping or Keeping())
    _, stored = builder.keeping.views.get(view_id, (name, None))
    builder.add_view(relation, view_id, name, stored)
    return LogicalPlan(tuple(builder.nodes))


def build_index(
    table: TableSchema,
    *,
    view_id: TableId,
    name: str,
    columns: tuple[int, ...],
    covered: tuple[int, ...],
    stored: int | None = None,
) -> LogicalPlan:
    return LogicalPlan(
        (Base(table), Delta(0, _old_rows(table)), Index(1, columns, covered), View(2, view_id, name, stored))
    )


def _old_rows(table: TableSchema) -> str:
    return BEFORE_IMAGES if table.delta is None else STORED


class _Builder:
    """The nodes made so far."""

    def __init__(self, keeping: Keeping) -> None:
        self.nodes: list[LogicalNode] = []
        self.keeping = keeping
        self._bases: dict[TableId, int] = {}
        self._views: dict[TableId, int] = {}

    def add(self, node: LogicalNode) -> int:
        self.nodes.append(node)
        return len(self.nodes) - 1

    def add_view(self, relation: Relation, view_id: TableId, name: str, stored: int | None) -> int:
        if view_id not in self._views:
            top = self.add_relation(relation, feeds=False)
            self._views[view_id] = self.add(View(top, view_id, name, stored))
        return self._views[view_id]

    def add_relation(self, relation: Relation, *, feeds: bool) -> int:
        """The place of the node that gives the rows of `relation`; `feeds`: whether more than π and a view reads them."""
        stored = self.keeping.tables.get(relation)
        match relation:
            case relations.Scan(table=table):
                return self._add_base(table)
            case relations.Select(input=source, predicate=predicate):
                return self._add_selections(source, predicate)
            case relations.ViewRows(view=view, input=source):
                place = self.add_view(source, view, *self.keeping.views[view])
                return self.add(Delta(place, VERSIONS)) if feeds else place
            case relations.Project(input=source, outputs=outputs):
                return self.add(Project(self.add_relation(source, feeds=feeds), outputs, stored))
            case relations.Union(inputs=inputs):
                return self.add(Union(tuple(self.add_relation(source, feeds=True) for source in inputs)))
            case relations.Fold(input=source, grouping=grouping):
                place = self.add(Fold(self.add_relation(source, feeds=True), grouping, stored))
            case relations.Join():
                place = self._add_join(relation)
            case relations.Top(input=source, order=order, limit=limit):
                place = self.add(Top(self.add_relation(source, feeds=True), order, limit, stored))
        return self.add(Delta(place, VERSIONS)) if feeds else place

    def _add_base(self, table: TableSchema) -> int:
        if table.id not in self._bases:
            self._bases[table.id] = self.add(Delta(self.add(Base(table)), _old_rows(table)))
        return self._bases[table.id]

    def _add_selections(self, source: Relation, predicate: Expression) -> int:
        """HAVING is one σ, WHERE one for each conjunct."""
        place = self.add_relation(source, feeds=True)
        for part in (predicate,) if isinstance(source, relations.Fold) else conjuncts(predicate):
            place = self.add(Select(place, part))
        return place

    def _add_join(self, join: relations.Join) -> int:
        sides = tuple(self.add_relation(side, feeds=True) for side in join.sides)
        widths = tuple(len(side.columns) for side in join.sides)
        stored = self.keeping.tables.get(join)
        return self.add(Join(self.add(ReverseJoin(sides, join.keys, widths, stored)), join.kind, join.residual, stored))
