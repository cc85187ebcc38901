"""Status: where the pipeline is, in numbers.

In: an open database. Out: a frozen value, printed by the CLI and returned as JSON. Always: read without a lock, so it
may be called at any time; it warns while the log grows because nothing consumes it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from viewkeeper.client.connection import Connection
from viewkeeper.client.fill_progress import filling_of, tasks_done
from viewkeeper.client.session import Snapshot
from viewkeeper.client.set_aside import NONE, Listed, degraded, set_aside
from viewkeeper.client.views import why_stopped
from viewkeeper.coordinator.table_sizes import sizes_of
from viewkeeper.errors import PositionLost
from viewkeeper.model.positions import Waiting
from viewkeeper.model.wording import counted
from viewkeeper.model.work_stats import Size, add_up
from viewkeeper.ports.admin import NodeFacts

if TYPE_CHECKING:
    from viewkeeper.catalog.catalog import Catalog, ViewDefinition
    from viewkeeper.model.epochs import Checked, EpochRecord, Repaired
    from viewkeeper.model.schema import TableId
    from viewkeeper.ports.store import Store

LAG_WARNING_CHANGES = 1_000_000


@dataclass(frozen=True, slots=True)
class ViewStatus:
    """One view: `ready` is the epoch from which on it can be read, None before.

    `state` is one word: "stopped" (neither maintained nor readable), "filling" (or to be filled; not readable yet),
    "degraded" (it lacks rows that are set aside, or values that do not fit), "lagging" (changes wait, are lost, or are not
    in the log) or "fresh". Epochs are atomic over all views, so all lag alike. `records` and `bytes`: how many records it
    has, with those of its auxiliary tables and of what it shares with other views, and the bytes of their keys and rows, all
    as of the committed epoch. `filling`: how many rows are in it of about how many, while it is filled; `stopped`: why it is
    no longer maintained. `replacement`: how far the version is that will replace it, or that it is compared with.
    """

    name: str
    kind: str
    state: str
    lag_changes: int
    lag_seconds: float
    records: int
    bytes: int
    ready: int | None
    filling: tuple[int, int] | None = None
    stopped: str | None = None
    set_aside: Listed = NONE
    degraded: Listed = NONE
    replacement: str | None = None
    checked: Checked | None = None
    repaired: Repaired | None = None


@dataclass(frozen=True, slots=True)
class Status:
    """A store and its pipeline at one moment."""

    url: str
    epoch: int
    inflight: int | None
    inflight_tasks: (
        tuple[int, int] | None
    )  # of the epoch in flight those that are done, of how many, where that is known
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


@dataclass(frozen=True, slots=True)
class Lag:
    """What waits for the pipeline: changes, and views that are not filled."""

    changes: int
    views: int


def read_lag(database: Connection) -> Lag:
    """What waits for the pipeline now."""
    record = database.store.read_epoch_record()
    waiting = [view for view in database.catalog().kept if _is_waiting(view, record)]
    return Lag(database.store.waiting(record.positions).changes, len(waiting))


def _is_waiting(view: ViewDefinition, record: EpochRecord) -> bool:
    return view.node.backfill not in record.filled and why_stopped(view, record) is None


def read_status(database: Connection) -> Status:
    """The status now."""
    store = database.store
    record = store.read_epoch_record()
    waiting, lost = _waiting(store, record)
    seconds = 0.0 if waiting.oldest is None else max(0.0, (store.now() - waiting.oldest) / 1e9)
    pid = store.claimed_by()
    holder = store.holder() if pid is not None else None
    waits = holder.waits or None if holder else None
    with Snapshot(database) as snapshot:
        catalog, outside = snapshot.catalog, store.changed_outside_log()
        asked = catalog.views if lost or outside else ()
        unknown = {view.id for view in asked if lost or not outside.keys().isdisjoint(catalog.bases_of(view))}
        sizes, lag = sizes_of(store, catalog, record), (waiting.changes, seconds)
        views = tuple(
            _view_status(database, snapshot, record, view, sizes, lag, is_lost=view.id in unknown)
            for view in catalog.views
        )
    translate_lost = () if lost is None else (f"changes are lost: {lost}",)
    return Status(
        url=store.url,
        epoch=record.committed,
        inflight=record.inflight.epoch if record.inflight else None,
        inflight_tasks=tasks_done(store, record),
        lag_changes=waiting.changes,
        lag_seconds=seconds,
        log_entries=store.log_entries(),
        bytes_used=store.bytes_used(),
        pipeline_pid=pid,
        pipeline_waits=waits,
        tables=tuple(table.name for table in catalog.tables),
        views=views,
        warnings=(
            *translate_lost,
            *_outside(catalog, outside),
            *_warnings(waiting.changes, pid, waits, views),
            *store.warnings(),
        ),
        nodes=store.node_facts(),
        log_lost=lost,
    )


def _outside(catalog: Catalog, changed: Mapping[int, tuple[int, str]]) -> Iterator[str]:
    for table in catalog.tables:
        views = [view.name for view in catalog.views if table.id in catalog.bases_of(view)]
        if table.id in changed and views:
            stamp, how = changed[table.id]
            at = datetime.fromtimestamp(stamp / 1e9, UTC).strftime("%Y-%m-%d %H:%M:%SZ")
            yield (
                f"table {table.name} was {how} at {at}, which its log does not tell: {', '.join(views)} may be wrong; "
                "run viewkeeper repair"
            )


def _waiting(store: Store, record: EpochRecord) -> tuple[Waiting, str | None]:
    """What waits in the log; and why that is not known, where it lacks changes that no epoch has applied."""
    try:
        return store.waiting(record.positions), None
    except PositionLost as error:
        return Waiting(0, None), str(error)


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
    size = add_up([Size(), *(sizes.get(table, Size()) for table in _tables_of(snapshot.catalog, view))])
    has_troubles = bool(aside.count or failing.count)
    return ViewStatus(
        name=view.name,
        kind=view.kind,
        state=_state(
            is_stopped=stopped is not None,
            is_ready=ready is not None,
            has_troubles=has_troubles,
            is_behind=lag[0] > 0 or is_lost,
        ),
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


def _state(*, is_stopped: bool, is_ready: bool, has_troubles: bool, is_behind: bool) -> str:
    if is_stopped or not is_ready:
        return "stopped" if is_stopped else "filling"
    return "degraded" if has_troubles else "lagging" if is_behind else "fresh"


def _tables_of(catalog: Catalog, view: ViewDefinition) -> Iterator[int]:
    """The tables of all nodes that a view needs."""
    return (table for node in catalog.stored(view) for table in node.tables)


def _reason(database: Connection, view: ViewDefinition, listed: TableId, key: bytes) -> str | None:
    from viewkeeper.client.failed_rows import reason_of  # with DuckDB, which no other part of a status needs

    return reason_of(database, view, listed, key)


def _replacement(catalog: Catalog, record: EpochRecord, view: ViewDefinition) -> str | None:
    for other in catalog.replacements:
        if other.replaces[-1] == view.id:
            what = {"": "being replaced", "repair": "being repaired", "rebuild": "being rebuilt"}[other.twin]
            stopped = why_stopped(other, record)
            if stopped is not None:
                return f"{what}, stopped: {stopped}"
            filling = filling_of(record, other.node.backfill)
            how_far = "waiting" if filling is None else f"{filling.rows:,} of about {filling.total:,} rows"
            return f"{what}, {how_far}"
    return None


def _warnings(lag: int, pid: int | None, waits: str | None, views: tuple[ViewStatus, ...]) -> tuple[str, ...]:
    found = []
    if waits:
        found.append(f"the pipeline waits: {waits}")
    if lag and pid is None:
        found.append(f"no pipeline is running: the log grows, {counted(lag, 'change')} wait{'s' * (lag == 1)}")
    elif lag >= LAG_WARNING_CHANGES:
        found.append(f"the pipeline is {lag:,} changes behind: the log grows")
    waiting = [view.name for view in views if view.ready is None and view.stopped is None]
    if waiting:
        found.append(f"to be filled by the pipeline: {', '.join(waiting)}")
    found += [f"view {view.name} is stopped: {view.stopped}" for view in views if view.stopped]
    found += [
        f"view {view.name} had {counted(view.checked.findings, 'wrong record')} at epoch {view.checked.epoch}: repair it"
        for view in views
        if view.checked and view.checked.findings and not (view.repaired and view.repaired.epoch > view.checked.epoch)
    ]
    for view in views:
        if view.set_aside.count:
            rows = counted(view.set_aside.count, "row")
            found.append(f"view {view.name} sets {rows} aside, on which its SQL fails: {_keys(view.set_aside)}")
        if view.degraded.count:
            groups = counted(view.degraded.count, "group")
            found.append(f"view {view.name} is degraded: a value of {groups} does not fit: {_keys(view.degraded)}")
    return tuple(found)


def _keys(listed: Listed) -> str:
    """The first keys, in SQL notation."""
    shown = [", ".join(map(str, key)) if key else "the only record" for key in listed.keys]
    shown = [f"({text})" if len(key) > 1 else text for text, key in zip(shown, listed.keys, strict=True)]
    return ", ".join(shown) + (", …" if listed.count > len(shown) else "")
