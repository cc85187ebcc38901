"""Twins: views filled anew beside themselves, to be compared with what is stored (repair) or to take its place (rebuild).

In: a catalog and the names of views. Out: a catalog in which each of them has a twin: the same view over stored nodes of
its own. Always: views that share records get twins together, because a record that is put right for one view would
otherwise not fit what another has computed from it; all twins of a request are filled by one backfill, from base tables.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Literal

from viewkeeper.catalog.catalog import Catalog, StoredNode, ViewDefinition
from viewkeeper.errors import NameInUse
from viewkeeper.model.schema import TableId

Ending = Literal["repair", "rebuild"]


def with_twins(catalog: Catalog, names: Sequence[str], ending: Ending, epoch: int) -> tuple[Catalog, TableId]:
    """The catalog with twins of the named views and of those that share records with them; and the twins' backfill.

    Unfinished twins of these views are dropped.
    """
    views = sharing_records(catalog, names)
    _refuse_replaced(catalog, views)
    nodes = {table: node for view in views for table, node in zip(view.needs, catalog.stored(view), strict=True)}
    backfill, free = TableId(catalog.next_id), catalog.next_id + len(views)
    placed: dict[int, TableId] = {}
    for node in nodes.values():
        placed |= {table: TableId(free + place) for place, table in enumerate(node.tables)}
        free += len(node.tables)
    copies = {table: _copied(node, placed, backfill) for table, node in nodes.items()}
    twins = [
        replace(
            view,
            id=TableId(backfill + place),
            written=view.source.written,
            needs=tuple(placed[table] for table in view.needs),
            node=copies[view.node.table],
            replaces=(*view.replaces, view.id),
            twin=ending,
        )
        for place, view in enumerate(views)
    ]
    ids = {view.id for view in views}
    before = {other.node.backfill for other in catalog.replacements if other.twin and other.replaces[-1] in ids}
    return catalog.without_twins(before, epoch).with_twins(twins, copies.values(), free), backfill


def sharing_records(catalog: Catalog, names: Sequence[str]) -> tuple[ViewDefinition, ...]:
    """The named views, and all that need a stored node which one of them needs."""
    tables = {table for name in names for table in catalog.view(name).needs}
    while True:
        views = tuple(view for view in catalog.views if not tables.isdisjoint(view.needs))
        more = {table for view in views for table in view.needs}
        if more == tables:
            return views
        tables = more


def _copied(node: StoredNode, placed: dict[int, TableId], backfill: TableId) -> StoredNode:
    return replace(
        node,
        table=placed[node.table],
        reads=tuple(placed.get(table, table) for table in node.reads),
        tables=tuple(placed[table] for table in node.tables),
        backfill=backfill,
        exceptions=tuple(replace(listed, table=placed[listed.table]) for listed in node.exceptions),
    )


def _refuse_replaced(catalog: Catalog, views: Sequence[ViewDefinition]) -> None:
    """What a replacement is filled from must stay as it is until it is filled."""
    tables, ids = {table for view in views for table in view.needs}, {view.id for view in views}
    for other in catalog.replacements:
        if not other.twin and (other.replaces[-1] in ids or not tables.isdisjoint(other.needs)):
            raise NameInUse(f"view {other.name} is being replaced", "wait until the new one is filled")
