"""Asides: rows that a view has set aside, tried again or dropped.

In: a view, and keys of rows as `set_aside` lists them. Out: how many left the list. Always: the request is in the catalog, so
it survives whoever made it, and one epoch does it for each list; views that share records share their lists.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from viewkeeper.catalog.define import lower
from viewkeeper.client.connection import Connection
from viewkeeper.client.finishing import finish
from viewkeeper.client.row_values import key_bytes
from viewkeeper.client.session import Snapshot
from viewkeeper.client.set_aside import exceptions_of, listed_rows, undecoded_of
from viewkeeper.client.views import why_stopped
from viewkeeper.errors import EpochFailed, InputError, NotOffered, NotReady, ViewKeeperError
from viewkeeper.model.asides import AsideRequest
from viewkeeper.plan.assign import placed_nodes
from viewkeeper.plan.nodes import AggregateNode, ProjectNode

if TYPE_CHECKING:
    from viewkeeper.catalog.catalog import Catalog, Exceptions, ViewDefinition
    from viewkeeper.engine.session import SparkSession

_KEYS_MAX = 1_000
Wanted = dict[int, tuple[bytes, ...]]  # the lists that hold rows which are asked for, and their keys there


def settle(
    database: Connection, name: str, keys: Sequence[Sequence[object]] | None, ending: str, spark: SparkSession | None
) -> int:
    """Try rows again ("retry") or drop them ("drop"); returns how many of them are no longer listed."""
    keys = None if keys is None else [key if isinstance(key, (tuple, list)) else (key,) for key in keys]
    view = database.catalog().view(name)
    _require_maintained(database, view)
    with Snapshot(database) as snapshot:
        lists = exceptions_of(snapshot.catalog, view, "aside")
        wanted = _all(snapshot, lists) if keys is None else _named(snapshot, view, lists, keys)
        _refuse_undecoded(snapshot.catalog, view, wanted)
        if ending == "retry":
            _refuse_rows_of_joins(snapshot.catalog, view, wanted)
        else:
            wanted = _still_listed(snapshot, wanted)
    if not wanted:
        return 0
    last = _request(database, ending, {table: () if keys is None else found for table, found in wanted.items()})
    finish(database, lambda: any(one.id <= last for one in database.catalog().asides), spark)
    if database.store.read_epoch_record().aside < last:
        raise EpochFailed("the request was given up", "see the status of the view: it may be stopped, or be made anew")
    with Snapshot(database) as snapshot:
        left = sum(len({*found}.intersection(listed_rows(snapshot, table))) for table, found in wanted.items())
    return sum(map(len, wanted.values())) - left


def _require_maintained(database: Connection, view: ViewDefinition) -> None:
    record = database.store.read_epoch_record()
    if (reason := why_stopped(view, record)) is not None:
        raise NotReady(f"view {view.name} is stopped: {reason}", f"viewkeeper rebuild URL {view.name}")
    if view.node.backfill not in record.filled:
        raise NotReady(f"view {view.name} is not filled yet", "wait for the pipeline, which tries every row")


def _all(snapshot: Snapshot, lists: Sequence[Exceptions]) -> Wanted:
    found = {int(one.table): tuple(listed_rows(snapshot, one.table)) for one in lists}
    return {table: keys for table, keys in found.items() if keys}


def _named(
    snapshot: Snapshot, view: ViewDefinition, lists: Sequence[Exceptions], keys: Sequence[Sequence[object]]
) -> Wanted:
    """The lists that hold the rows under these keys; a row that several parts of a view fail on is in several."""
    if len(keys) > _KEYS_MAX:
        raise InputError(f"{len(keys):,} keys are more than {_KEYS_MAX:,}", "name fewer, or none for all rows")
    listed = {int(one.table): set(listed_rows(snapshot, one.table, with_dropped=True)) for one in lists}
    wanted: dict[int, list[bytes]] = {}
    for key in keys:
        encoded = [(int(one.table), _encoded(view, one, key)) for one in lists]
        mine = [(table, row) for table, row in encoded if row is not None and row in listed[table]]
        if not mine:
            raise InputError(
                f"view {view.name} has set no row {tuple(key)} aside", "viewkeeper set-aside lists the keys"
            )
        for table, row in mine:
            wanted.setdefault(table, []).append(row)
    return {table: tuple(dict.fromkeys(found)) for table, found in wanted.items()}


def _still_listed(snapshot: Snapshot, wanted: Wanted) -> Wanted:
    """Without the rows that were dropped before: they have left the list already."""
    listed = {table: set(listed_rows(snapshot, table)) for table in wanted}
    found = {table: tuple(key for key in keys if key in listed[table]) for table, keys in wanted.items()}
    return {table: keys for table, keys in found.items() if keys}


def _encoded(view: ViewDefinition, listed: Exceptions, key: Sequence[object]) -> bytes | None:
    """The key in a list, if it can be one there."""
    try:
        return key_bytes(f"view {view.name}", listed.key, key)
    except ViewKeeperError:
        return None


def _refuse_undecoded(catalog: Catalog, view: ViewDefinition, wanted: Wanted) -> None:
    """A cell that does not decode is no matter of the view: its row comes back by itself."""
    if any(listed.table in wanted for listed in undecoded_of(catalog, view)):
        raise NotOffered(
            f"a row that view {view.name} sets aside has a cell that does not decode",
            "write that cell anew, or delete it, in the store's own table; the view follows",
        )


def _refuse_rows_of_joins(catalog: Catalog, view: ViewDefinition, wanted: Wanted) -> None:
    """Only rows of tables, and records of copies and groups, are there to be read again."""
    nodes = placed_nodes(lower(catalog, view), catalog.stored(view))
    readable = {int(table.id) for table in catalog.tables}
    readable |= {int(node.table) for node in nodes if isinstance(node, (ProjectNode, AggregateNode))}
    if any(edge.aside in wanted and edge.source not in readable for node in nodes for edge in node.edges):
        raise NotOffered(
            f"rows that view {view.name} sets aside are rows of a join or of ORDER BY, which no table holds",
            f"viewkeeper repair URL {view.name} computes all of them again",
        )


def _request(database: Connection, ending: str, wanted: Wanted) -> int:
    """Put the requests into the catalog; returns the id of the last."""
    last = 0

    def change(catalog: Catalog) -> Catalog:
        nonlocal last
        numbered = enumerate(sorted(wanted.items()), catalog.next_id)
        requests = [AsideRequest(number, table, ending, keys) for number, (table, keys) in numbered]
        last = requests[-1].id
        return catalog.with_asides(requests, last + 1)

    database.change_catalog(change)
    return last
