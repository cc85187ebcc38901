"""Status: where the pipeline is, in numbers.

In: an open database. Out: a frozen value, printed by the CLI and returned as JSON. Always: read without a lock, so it
may be called at any time; it warns while the log grows because nothing consumes it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime

from viewkeeper.catalog.catalog import Catalog, ViewDefinition
from viewkeeper.client.connection import Connection
from viewkeeper.client.fill_progress import filling_of, tasks_done, where_epochs_ran
from viewkeeper.client.session import Snapshot
from viewkeeper.client.set_aside import NONE, Listed, degraded, set_aside
from viewkeeper.client.views import why_stopped
from viewkeeper.coordinator.table_sizes import sizes_of
from viewkeeper.errors import PositionLost
from viewkeeper.events import Where
from viewkeeper.model.epochs import Checked, EpochRecord, Repaired
from viewkeeper.model.positions import LogRange
from viewkeeper.model.schema import TableId
from viewkeeper.model.wording import counted
from viewkeeper.model.work_stats import Size, add_up
from viewkeeper.ports.admin import NodeFacts
from viewkeeper.ports.meta import live_holder

LAG_WARNING_CHANGES = 1_000_000


@dataclass(frozen=True, slots=True)
class ViewStatus:
    """One view.

    `state` is one word: "stopped" (neither maintained nor readable), "filling" (or to be filled; not readable yet),
    "degraded" (it lacks rows that are set aside, or values that do not fit), "lagging" (changes wait, are lost, or are
    not in the log) or "fresh". Epochs are atomic over all views, so all lag alike.
    """

    name: str
    kind: str
    state: str
    lag_changes: int
    lag_seconds: float
    records: int  # as of the committed epoch, with those of its auxiliary tables and of what it shares with other views
    bytes: int  # of the keys and rows of these records
    ready: int | None  # the epoch from which on it can be read
    filling: tuple[int, int] | None = None  # while it is filled: how many rows are in it, of about how many
    stopped: str | None = None  # why it is no longer maintained
    set_aside: Listed = NONE
    degraded: Listed = NONE
    replacement: str | None = None  # how far the version is that will replace it, or that it is compared with
    checked: Checked | None = None
    repaired: Repaired | None = None


@dataclass(frozen=True, slots=True)
class Status:
    """A store and its pipeline at one moment."""

    url: str
    epoch: int
    inflight: int | None
    inflight_tasks: tuple[int, int] | None  # of the epoch in flight: how many are done, of how many, where known
    lag_changes: int
    lag_seconds: float  # how long the oldest waiting change has waited
    log_entries: int
    bytes_used: int
    pipeline_pid: int | None
    pipeline_waits: str | None  # what the pipeline that runs waits for, if it does
    tables: tuple[str, ...]
    views: tuple[ViewStatus, ...]
    warnings: tuple[str, ...]
    nodes: tuple[NodeFacts, ...]
    log_lost: str | None  # why nobody knows what views lack, and what to do: the log no longer has changes that wait
    where: Where | None  # the last epoch ran, and why there, if that is known


@dataclass(frozen=True, slots=True)
class Lag:
    """What waits for the pipeline: changes, and views that are not filled."""

    changes: int
    views: int


def read_lag(database: Connection) -> Lag:
    record = database.store.read_epoch_record()
    unfilled = (view for view in database.catalog().kept if view.node.backfill not in record.filled)
    waiting = sum(why_stopped(view, record) is None for view in unfilled)
    return Lag(database.store.describe(record.positions).changes, waiting)


def read_status(database: Connection) -> Status:
    store = database.store
    record = store.read_epoch_record()
    waiting, lost = LogRange(), None
    try:
        waiting = store.describe(record.positions)
    except PositionLost as error:  # the log lacks changes that no epoch has applied
        lost = str(error)
    seconds = 0.0 if waiting.oldest is None else max(0.0, (store.now() - waiting.oldest) / 1e9)
    holder = live_holder(store)
    pid, waits = (holder.pid, holder.waits or None) if holder else (None, None)
    with Snapshot(database) as snapshot:
        catalog, facts = snapshot.catalog, store.facts()
        outside = facts.changed_outside_log
        asked = catalog.views if lost or outside else ()
        unknown = {view.id for view in asked if lost or not outside.keys().isdisjoint(catalog.bases_of(view))}
        sizes, lag = sizes_of(store, catalog, record), (waiting.changes, seconds)
        views = tuple(
            _view_status(database, snapshot, record, view, sizes, lag, is_lost=view.id in unknown)
            for view in catalog.views
        )
    return Status(
        url=store.url,
        epoch=record.committed,
        inflight=record.inflight.epoch if record.inflight else None,
        inflight_tasks=tasks_done(store, record),
        lag_changes=waiting.changes,
        lag_seconds=seconds,
        log_entries=facts.log_entries,
        bytes_used=facts.bytes_used,
        pipeline_pid=pid,
        pipeline_waits=waits,
        tables=tuple(table.name for table in catalog.tables),
        views=views,
        warnings=(
            *(() if lost is None else (f"changes are lost: {lost}",)),
            *_outside(catalog, outside),
            *_warnings(waiting.changes, pid, waits, views),
            *facts.warnings,
        ),
        nodes=facts.nodes,
        log_lost=lost,
        where=where_epochs_ran(store),
    )


def _outside(catalog: Catalog, changed: Mapping[int, tuple[int, str]]) -> Iterator[str]:
    for table in catalog.tables:
        views = ", ".join(view.name for view in catalog.views if table.id in catalog.bases_of(view))
        if table.id in changed and views:
            stamp, how = changed[table.id]
            at = datetime.fromtimestamp(stamp / 1e9, UTC).strftime("%Y-%m-%d %H:%M:%SZ")
            fact = f"table {table.name} was {how} at {at}, which its log does not tell"
            yield f"{fact}: {views} may be wrong; run viewkeeper repair URL"


def _view_status(
    database: Connection,
    snapshot: Snapshot,
    record: EpochRecord,
    view: ViewDefinition,
    sizes: Mapping[int, Size],
    lag: tuple[int, float],
    *,
    is_lost: bool,
) -> ViewStatus:
    stopped, filling = why_stopped(view, record), filling_of(record, view.node.backfill)
    ready = record.filled.get(view.node.backfill) if stopped is None else None
    aside = set_aside(snapshot, view, lambda listed, key: _reason(database, view, listed, key), filled=sizes)
    failing = degraded(snapshot, view, filled=sizes)
    tables = (table for node in snapshot.catalog.stored(view) for table in node.tables)
    size = add_up([Size(), *(sizes.get(table, Size()) for table in tables)])
    if stopped is not None or ready is None:
        state = "filling" if stopped is None else "stopped"
    elif aside.count or failing.count:
        state = "degraded"
    else:
        state = "lagging" if lag[0] > 0 or is_lost else "fresh"
    return ViewStatus(
        name=view.name,
        kind=view.kind,
        state=state,
        lag_changes=lag[0],
        lag_seconds=lag[1],
        records=size.records,
        bytes=size.bytes,
        ready=ready,
        filling=(filling.rows, filling.total) if filling and stopped is None else None,
        stopped=stopped,
        set_aside=aside,
        degraded=failing,
        replacement=_replacement(snapshot.catalog, record, view),
        checked=record.checked.get(view.node.table),
        repaired=record.repaired.get(view.node.table),
    )


def _reason(database: Connection, view: ViewDefinition, listed: TableId, key: bytes) -> str | None:
    from viewkeeper.client.failed_rows import reason_of  # with DuckDB, which no other part of a status needs

    return reason_of(database, view, listed, key)


def _replacement(catalog: Catalog, record: EpochRecord, view: ViewDefinition) -> str | None:
    other = next((other for other in catalog.replacements if other.replaces[-1] == view.id), None)
    if other is None:
        return None
    what = {"": "being replaced", "repair": "being repaired", "rebuild": "being rebuilt"}[other.twin]
    if (stopped := why_stopped(other, record)) is not None:
        return f"{what}, stopped: {stopped}"
    filling = filling_of(record, other.node.backfill)
    return f"{what}, " + ("waiting" if filling is None else f"{filling.rows:,} of about {filling.total:,} rows")


def _warnings(lag: int, pid: int | None, waits: str | None, views: tuple[ViewStatus, ...]) -> Iterator[str]:
    if waits:
        yield f"the pipeline waits: {waits}"
    if lag and pid is None:
        wait = f"{counted(lag, 'change')} wait{'s' * (lag == 1)}"
        yield f"no pipeline is running: the log grows, {wait}; viewkeeper run URL"
    elif lag >= LAG_WARNING_CHANGES:
        yield f"the pipeline is {lag:,} changes behind: the log grows; viewkeeper scale URL N sets its view managers"
    if waiting := [view.name for view in views if view.ready is None and view.stopped is None]:
        yield f"to be filled by the pipeline: {', '.join(waiting)}"
    yield from (
        f"view {view.name} is stopped: {view.stopped}; viewkeeper rebuild URL {view.name}"
        for view in views
        if view.stopped
    )
    for view in views:
        checked, repaired = view.checked, view.repaired
        if checked and checked.findings and not (repaired and repaired.epoch > checked.epoch):
            wrong = counted(checked.findings, "wrong record")
            yield f"view {view.name} had {wrong} at epoch {checked.epoch}; viewkeeper repair URL {view.name}"
    for view in views:
        if view.set_aside.count:
            rows = counted(view.set_aside.count, "row")
            fact = f"view {view.name} sets {rows} aside, on which its SQL fails: {_keys(view.set_aside)}"
            yield f"{fact}; viewkeeper set-aside URL {view.name}"
        if view.degraded.count:
            groups = counted(view.degraded.count, "group")
            fact = f"view {view.name} is degraded: a value of {groups} does not fit: {_keys(view.degraded)}"
            yield f"{fact}; CAST to a wider type in its SQL"


def _keys(listed: Listed) -> str:
    """The first keys, in SQL notation."""
    shown = [", ".join(map(str, key)) if key else "the only record" for key in listed.keys]
    shown = [f"({text})" if len(key) > 1 else text for text, key in zip(shown, listed.keys, strict=True)]
    return ", ".join(shown) + (", …" if listed.count > len(shown) else "")
