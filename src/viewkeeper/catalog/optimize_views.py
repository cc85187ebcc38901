"""Optimizing views: which of them are computed together from now on.

In: a catalog. Out: a catalog in which views that can share a γ have a replacement that does. Always: nothing changes for
readers until the replacement is filled, which then takes the view's place between two epochs; a view that is not filled
itself is replaced at once.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from viewkeeper.catalog.catalog import Catalog, ViewDefinition
from viewkeeper.catalog.define import computed_relation, relation_of
from viewkeeper.catalog.sharings import Sharing
from viewkeeper.model.schema import TableId
from viewkeeper.plan.assign import assign
from viewkeeper.plan.lower import lower_view
from viewkeeper.plan.optimize import optimize
from viewkeeper.plan.rules.share_groupings import families


def optimize_views(
    catalog: Catalog, epoch: int, *, filled: Collection[int] = (), stopped: Collection[int] = ()
) -> Catalog:
    """The catalog with a replacement for each view that will share a γ and does not share the same one already.

    Views that others read stay as they are: a text means the records of the view that it names.
    """
    if "share_groupings" in catalog.rules_off:
        return catalog
    version = catalog.version
    changing = {view.replaces[-1] for view in catalog.replacements}
    free = [view for view in catalog.views if view.id not in changing and _is_free(catalog, view)]
    relations = {view.id: relation_of(catalog, view) for view in free if view.kind != "INDEX"}
    by_id = {view.id: view for view in free}
    for family in families(relations):
        views = [by_id[member] for member in family]
        members = tuple(view.source for view in views)
        known = catalog.sharing(views[0])
        if known is not None and known.members == members and len({view.sharing for view in views}) == 1:
            continue
        sharing = Sharing(TableId(catalog.next_id), members)
        catalog = catalog.with_sharing(sharing)
        for view in views:
            catalog = _with_shared(catalog, view, sharing, epoch, stopped)
    if catalog.version == version:
        return catalog
    read = {view.id for view in free if view.node.backfill in filled}
    needed = {view.node.backfill for view in catalog.replacements if view.replaces[-1] in read}
    unread = {view.node.backfill for view in catalog.replacements if view.replaces[-1] in by_id}.difference(needed)
    return replace(catalog.with_replaced(unread, epoch), version=version + 1)


def _is_free(catalog: Catalog, view: ViewDefinition) -> bool:
    return not any(other.reads(view.id) for other in catalog.kept)


def _with_shared(
    catalog: Catalog, view: ViewDefinition, sharing: Sharing, epoch: int, stopped: Collection[int]
) -> Catalog:
    new = replace(view, id=TableId(catalog.next_id), written=view.source.written, sharing=sharing.id, replaces=())
    relation = optimize(computed_relation(catalog, new), without=catalog.rules_off)
    lowered = lower_view(relation)
    nodes = assign(lowered, catalog.nodes, new.id, without=stopped)
    needs = tuple(node.table for node in nodes)
    new = replace(new, shown=lowered.shown, present=lowered.present, needs=needs, node=nodes[-1])
    return catalog.with_replacement(new, nodes, epoch)
