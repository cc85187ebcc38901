"""Replacements: views that are filled beside themselves, under other rules (OPTIMIZE), or from base tables (repair,
rebuild).

In: a catalog, and the rules that are off from now on, or the names of views. Out: a catalog in which each view that gets
another plan has a replacement, or each named view a shadow: the same view over stored nodes of its own. Always: readers
see nothing new until a replacement is filled; then it replaces the view between two epochs. All views that share records
get shadows, because a record that is corrected for one view would not fit what another has computed from it; one backfill
fills all shadows of a request.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Literal

from viewkeeper.catalog.catalog import Catalog, StoredNode, ViewDefinition
from viewkeeper.catalog.shared_state import Sharing
from viewkeeper.errors import NameInUse, UnknownName, UnsupportedSql
from viewkeeper.model.schema import TableId
from viewkeeper.model.wording import suggestion
from viewkeeper.plan.choose import choose_plans
from viewkeeper.plan.cost.cost_model import PlanModel
from viewkeeper.plan.define import lower, refuse_unkept, relation_of
from viewkeeper.plan.optimize import SWITCHES, optimize, rules_over
from viewkeeper.plan.share_nodes import assign

Ending = Literal["repair", "rebuild"]


def with_shadow_views(catalog: Catalog, names: Sequence[str], ending: Ending, epoch: int) -> tuple[Catalog, TableId]:
    """The catalog with new twins of the named views and of those that share records with them; and the twins' backfill."""
    views = sharing_records(catalog, names)
    _refuse_replaced(catalog, views)
    nodes = {table: node for view in views for table, node in zip(view.needs, catalog.stored(view), strict=True)}
    backfill, free = TableId(catalog.next_id), catalog.next_id + len(views)
    placed: dict[int, TableId] = {}
    for node in nodes.values():
        placed |= {table: TableId(free + index) for index, table in enumerate(node.tables)}
        free += len(node.tables)
    copies = {table: _copied(node, placed, backfill) for table, node in nodes.items()}
    twins = [
        replace(
            view,
            id=TableId(backfill + index),
            written=view.source.written,
            needs=tuple(placed[table] for table in view.needs),
            node=copies[view.node.table],
            replaces=(*view.replaces, view.id),
            twin=ending,
        )
        for index, view in enumerate(views)
    ]
    ids = {view.id for view in views}
    before = {other.node.backfill for other in catalog.replacements if other.twin and other.replaces[-1] in ids}
    return catalog.without_shadow_views(before, epoch).with_shadow_views(twins, copies.values(), free), backfill


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


def optimize_views(
    catalog: Catalog,
    epoch: int,
    *,
    without: Collection[str] = (),
    filled: Collection[int] = (),
    stopped: Collection[int] = (),
    sizes: Mapping[int, float] | None = None,
    model: PlanModel | None = None,
) -> Catalog:
    """The catalog with a replacement for each view whose plan changes; the same catalog when none does.

    Views that others read stay as they are: a text means the records of the view that it names. So do views that are
    stopped, unless they will share with others. `sizes`: the known numbers of rows and records of tables. By the `model`
    views share, and rules are left out, only where that costs less; without it all views share that can.
    """
    for rule in without:
        if rule not in SWITCHES:
            raise UnknownName(f"there is no rule {rule}", suggestion(rule, SWITCHES, "the rules are"))
    before = catalog
    catalog = replace(catalog, rules_off=tuple(rule for rule in SWITCHES if rule in without))
    changing = {view.replaces[-1] for view in catalog.replacements}
    read = {meant for view in catalog.kept for _, meant in view.names}
    fixed = changing | read | {view.id for view in catalog.views if view.kind == "INDEX"}
    free = {view.id: view for view in catalog.views if view.id not in fixed}
    for view in free.values():
        if not set(view.needs) & set(stopped):
            _refuse_unplanned(catalog, view)
    for choice in choose_plans(catalog, free, sizes or {}, model):
        views = [free[view] for view in choice.views]
        sharing = None
        if len(views) > 1:
            catalog, sharing = _with_sharing(catalog, views)
        elif set(views[0].needs) & set(stopped):
            continue
        for view in views:
            catalog = _replanned(catalog, replace(view, sharing=sharing, rules_off=choice.rules_off), epoch, stopped)
    if catalog == before:
        return before
    readable = {view.id for view in free.values() if view.node.backfill in filled}
    needed = {view.node.backfill for view in catalog.replacements if view.replaces[-1] in readable}
    unread = {view.node.backfill for view in catalog.replacements if view.replaces[-1] in free}.difference(needed)
    return replace(catalog.with_replaced(unread, epoch), version=before.version + 1)


def _with_sharing(catalog: Catalog, views: Sequence[ViewDefinition]) -> tuple[Catalog, TableId]:
    """The catalog with the sharing of some views, which may have it already, and its id."""
    members = tuple(view.source for view in views)
    known = catalog.sharing(views[0])
    if known is not None and known.members == members and len({view.sharing for view in views}) == 1:
        return catalog, known.id
    sharing = Sharing(TableId(catalog.next_id), members)
    return catalog.with_sharing(sharing), sharing.id


def _replanned(catalog: Catalog, view: ViewDefinition, epoch: int, stopped: Collection[int]) -> Catalog:
    lowered = lower(catalog, view)
    unusable = {*stopped, *_foreign(catalog, view)}
    nodes = assign(lowered, catalog.lasting_nodes, TableId(catalog.next_id), without=unusable)
    needs = tuple(node.table for node in nodes)
    if needs == view.needs and lowered.shown == view.shown:
        return catalog.with_definition(view)
    new = replace(
        view,
        id=TableId(catalog.next_id),
        written=view.source.written,
        shown=lowered.shown,
        present=lowered.present,
        needs=needs,
        node=nodes[-1],
        replaces=(),
    )
    return catalog.with_replacement(new, nodes, epoch)


def _refuse_unplanned(catalog: Catalog, view: ViewDefinition) -> None:
    """Raise where a view has no plan without the rules that are off."""
    if catalog.rules_off:
        try:
            refuse_unkept(optimize(relation_of(catalog, view), without=catalog.rules_off))
        except UnsupportedSql as error:
            fact = f"view {view.name} has no plan without {', '.join(catalog.rules_off)}: {error.fact}"
            raise UnsupportedSql(fact, "leave them on") from None


def _foreign(catalog: Catalog, view: ViewDefinition) -> Collection[int]:
    """Where equal nodes are not shared, the tables of nodes that are not the view's own, nor those of its sharing."""
    if rules_over("nodes", catalog.rules_off):
        return ()
    same = {table for other in catalog.kept if view.sharing and other.sharing == view.sharing for table in other.needs}
    return {node.table for node in catalog.nodes} - catalog.own_nodes(view) - same
