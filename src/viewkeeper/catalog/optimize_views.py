"""Optimizing views: all of them are planned anew, with the rules that are on.

In: a catalog, and the rules that are off from now on. Out: a catalog in which views that get another plan have a
replacement. Always: nothing changes for readers until the replacement is filled, which then takes the view's place
between two epochs; a view that is not filled itself is replaced at once.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

from viewkeeper.catalog.catalog import Catalog, ViewDefinition
from viewkeeper.catalog.define import computed_relation, lower, refuse_unkept, relation_of
from viewkeeper.catalog.sharings import Sharing
from viewkeeper.errors import UnknownName, UnsupportedSql
from viewkeeper.model.nearest import suggestion
from viewkeeper.model.schema import TableId
from viewkeeper.plan.assign import assign
from viewkeeper.plan.cost.statistics import DISTINCT_SHARE
from viewkeeper.plan.optimize import FEED_GROUPINGS, SHARE_COPIES, SHARE_GROUPINGS, SHARE_NODES, SWITCHES, optimize
from viewkeeper.plan.rules import share_copies, share_groupings


def optimize_views(
    catalog: Catalog,
    epoch: int,
    *,
    without: Collection[str] = (),
    filled: Collection[int] = (),
    stopped: Collection[int] = (),
    sizes: Mapping[TableId, int] | None = None,
) -> Catalog:
    """The catalog with a replacement for each view whose plan changes; the same catalog when none does.

    Views that others read stay as they are: a text means the records of the view that it names. So do views that are
    stopped, unless they will share with others. `sizes`: how many rows and records tables have, as far as is known.
    """
    for rule in without:
        if rule not in SWITCHES:
            raise UnknownName(f"there is no rule {rule}", suggestion(rule, SWITCHES, "the rules are"))
    before = catalog
    catalog = replace(catalog, rules_off=tuple(rule for rule in SWITCHES if rule in without))
    changing = {view.replaces[-1] for view in catalog.replacements}
    free = {view.id: view for view in catalog.views if view.id not in changing and _is_free(catalog, view)}
    alone = dict(free)
    for family in _families(catalog, free, sizes or {}):
        views = [alone.pop(member) for member in family]
        catalog, sharing = _with_sharing(catalog, views)
        for view in views:
            catalog = _planned_anew(catalog, view, sharing, epoch, stopped)
    for view in alone.values():
        if not set(view.needs) & set(stopped):
            catalog = _planned_anew(catalog, view, None, epoch, stopped)
    if catalog == before:
        return before
    read = {view.id for view in free.values() if view.node.backfill in filled}
    needed = {view.node.backfill for view in catalog.replacements if view.replaces[-1] in read}
    unread = {view.node.backfill for view in catalog.replacements if view.replaces[-1] in free}.difference(needed)
    return replace(catalog.with_replaced(unread, epoch), version=before.version + 1)


def _is_free(catalog: Catalog, view: ViewDefinition) -> bool:
    return view.kind != "INDEX" and not any(other.reads(view.id) for other in catalog.kept)


def _families(
    catalog: Catalog, views: Mapping[TableId, ViewDefinition], sizes: Mapping[TableId, int]
) -> list[tuple[TableId, ...]]:
    """The views that will share a γ or a copy."""
    relations = {view.id: relation_of(catalog, view) for view in views.values()}
    records = {view.id: sizes.get(view.node.table, 0) for view in views.values()}
    bases = {view.id: catalog.bases_of(view) for view in views.values()}
    rows = {view: sizes.get(tables[0], 0) for view, tables in bases.items() if len(tables) == 1}

    def records_for_each_row(view: TableId) -> float:
        return records[view] / rows[view] if records[view] and rows.get(view) else DISTINCT_SHARE

    found: list[tuple[TableId, ...]] = []
    if SHARE_GROUPINGS not in catalog.rules_off:
        feeds = FEED_GROUPINGS not in catalog.rules_off
        found += share_groupings.families(relations, records_for_each_row if feeds else None)
    if SHARE_COPIES not in catalog.rules_off:
        found += share_copies.families(relations, records, rows)
    return found


def _with_sharing(catalog: Catalog, views: Sequence[ViewDefinition]) -> tuple[Catalog, TableId]:
    """The catalog with the sharing of some views, which may have it already, and its id."""
    members = tuple(view.source for view in views)
    known = catalog.sharing(views[0])
    if known is not None and known.members == members and len({view.sharing for view in views}) == 1:
        return catalog, known.id
    sharing = Sharing(TableId(catalog.next_id), members)
    return catalog.with_sharing(sharing), sharing.id


def _planned_anew(
    catalog: Catalog, view: ViewDefinition, sharing: TableId | None, epoch: int, stopped: Collection[int]
) -> Catalog:
    new = replace(view, sharing=sharing, rules_off=catalog.rules_off)
    _refuse_unplanned(catalog, new)
    lowered = lower(catalog, new)
    nodes = assign(
        lowered, catalog.lasting_nodes, TableId(catalog.next_id), without={*stopped, *_foreign(catalog, new)}
    )
    needs = tuple(node.table for node in nodes)
    if needs == view.needs and lowered.shown == view.shown:
        return catalog.with_definition(new)
    new = replace(
        new,
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
    if view.rules_off:
        try:
            refuse_unkept(optimize(computed_relation(catalog, view), without=view.rules_off))
        except UnsupportedSql as error:
            rules = ", ".join(view.rules_off)
            raise UnsupportedSql(
                f"view {view.name} has no plan without {rules}: {error.fact}", "leave them on"
            ) from None


def _foreign(catalog: Catalog, view: ViewDefinition) -> Collection[int]:
    """Where equal nodes are not shared, the tables of nodes that are not the view's own, nor those of its sharing."""
    if SHARE_NODES not in catalog.rules_off:
        return ()
    same = {table for other in catalog.kept if view.sharing and other.sharing == view.sharing for table in other.needs}
    return {node.table for node in catalog.nodes} - catalog.own_nodes(view) - same
