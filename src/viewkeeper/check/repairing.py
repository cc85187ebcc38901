"""Repairing and rebuilding: views are filled beside themselves, by the pipeline, from base tables.

In: a database and the names of views. Out: views that are what their texts say. Always: the request is in the catalog,
as shadows of the views, so it survives whoever made it; the pipeline that runs takes it up, and without one this
process runs it. What is written for readers is one epoch (repair), or one change of the catalog (rebuild).
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from viewkeeper.catalog.catalog import Catalog
from viewkeeper.check.check_files import MISPLACED, UNREADABLE, delta_label
from viewkeeper.check.check_views import LeftOut, check_views, why_not
from viewkeeper.check.report import RepairReport, ViewOutcome
from viewkeeper.client.arguments import key_bytes
from viewkeeper.client.connection import Connection
from viewkeeper.client.pipeline import await_request
from viewkeeper.client.views import why_stopped
from viewkeeper.coordinator.backfill import reset_views
from viewkeeper.coordinator.standby import own_now
from viewkeeper.errors import EpochFailed, InputError, PositionLost
from viewkeeper.failpoints import failpoint
from viewkeeper.model.stored_rows import RowWrites
from viewkeeper.plan.planner import unfilled
from viewkeeper.plan.replacements import Ending, sharing_records, with_shadow_views

if TYPE_CHECKING:
    from viewkeeper.check.report import CheckReport
    from viewkeeper.check.verify import Progress
    from viewkeeper.engine.spark_session import SparkSession
    from viewkeeper.model.epochs import Repaired

_ROWS_AT_ONCE = 1_000
_OTHERS = "another repair or rebuild, or a CREATE OR REPLACE or DROP, came in between"
_AGAIN = "wait until viewkeeper status URL shows that it is done, then run yours again"


def repair_views(
    database: Connection, names: Sequence[str] | None, spark: SparkSession | None, progress: Progress | None = None
) -> RepairReport:
    """Check the named views, or all, put the records of those that are filled right, and check them again.

    A view with records that no epoch can read, or put right, is rebuilt. Where a DELTA is wrong, its rows are logged again
    and the views over its table are rebuilt: what they were computed from is not known. Where no epoch can read it, all
    start anew.
    """
    before = check_views(database, names, spark, progress)
    failpoint("repair.checked")
    left_out = _left_out(database, names, before)
    chosen = [one.view for one in before.outcomes if one.view not in left_out]
    catalog = database.catalog()
    nodes = [table for name in chosen for node in catalog.stored(catalog.view(name)) for table in node.tables]
    deltas = [table.delta for table in catalog.tables if table.delta is not None]
    database.store.distrust([*dict.fromkeys(nodes), *deltas])  # what it remembers may be what others changed
    rebuilt, failed = _rebuilt(database, before, chosen, spark)
    failpoint("repair.rebuilt")
    left_out |= failed
    mine, failed = _repaired(database, [name for name in chosen if name not in {*rebuilt, *left_out}], spark)
    failpoint("repair.repaired")
    left_out |= failed
    asked = None if names is None else list(dict.fromkeys([*names, *mine, *rebuilt]))
    after = check_views(database, asked, spark, progress)
    wrong = {finding.view for finding in after.findings}
    if stuck := [name for name in mine if name in wrong]:  # what others wrote to its records hides what an epoch does
        again, failed = _rebuilt_each(database, stuck, spark)
        rebuilt, left_out = (*rebuilt, *again), left_out | failed
        asked = None if names is None else list(dict.fromkeys([*names, *mine, *rebuilt]))
        after = check_views(database, asked, spark, progress)
    return RepairReport(
        after.ok and not any(one.is_wrong for one in left_out.values()),
        max((one.epoch for one in mine.values()), default=after.epoch),
        {name: one.records for name, one in mine.items()},
        {name: one.auxiliary for name, one in mine.items()},
        rebuilt,
        before,
        after,
        tuple(_outcome(one, mine.get(one.view), rebuilt, left_out.get(one.view)) for one in after.outcomes),
    )


def _outcome(left: ViewOutcome, done: Repaired | None, rebuilt: Sequence[str], left_out: LeftOut | None) -> ViewOutcome:
    """What was done with a view, of which `left` is what the last check says."""
    if left_out is not None:
        return ViewOutcome(left.view, "not done", why=left_out.why, way_out=left_out.way_out)
    if left.state == "wrong":
        return replace(left, way_out=_way_out(left.view))
    if left.state == "ok" and left.view in rebuilt:
        return replace(left, state="rebuilt")
    if left.state == "ok" and done is not None and (done.records or done.auxiliary):
        return ViewOutcome(left.view, "repaired", done.records, done.auxiliary)
    return left


def _way_out(name: str) -> str:
    return f"viewkeeper rebuild URL {name}"


def _rebuilt(
    database: Connection, before: CheckReport, chosen: Sequence[str], spark: SparkSession | None
) -> tuple[tuple[str, ...], dict[str, LeftOut]]:
    """Rebuild what no epoch of a repair can put right; returns the views that are, and those that cannot be."""
    catalog = database.catalog()
    labels = {delta_label(table) for table in catalog.tables}
    unreadable = [finding for finding in before.findings if finding.kind in (UNREADABLE, MISPLACED)]
    if any(finding.view in labels for finding in unreadable):
        _reset_all(database)

        def is_filling() -> bool:
            catalog, record = database.catalog(), database.store.read_epoch_record()
            return bool(unfilled(catalog, filled=record.filled, stopped=record.stopped))

        await_request(database, is_filling, spark)
        return tuple(sorted(view.name for view in database.catalog().views)), {}
    damaged = {finding.view for finding in unreadable if finding.kind == UNREADABLE}
    logged = _log_wrong_rows_again(database, before)
    failpoint("repair.logged")
    return _rebuilt_each(database, [*logged, *(name for name in chosen if name in damaged)], spark)


def _rebuilt_each(
    database: Connection, names: Sequence[str], spark: SparkSession | None
) -> tuple[tuple[str, ...], dict[str, LeftOut]]:
    """Rebuild views, together or, where that fails for one, each alone; returns those that are, and those that cannot be."""
    catalog, groups = database.catalog(), list[list[str]]()  # of views that are rebuilt together
    for name in names:
        if not any(name in group for group in groups):
            groups.append([view.name for view in sharing_records(catalog, [name])])
    if len(groups) > 1:
        with contextlib.suppress(EpochFailed):  # of one of them: then each by itself
            return rebuild_views(database, names, spark), {}
    rebuilt, failed = tuple[str, ...](), dict[str, LeftOut]()
    for some in groups:
        try:
            rebuilt += rebuild_views(database, some, spark)
        except EpochFailed as error:
            failed |= {name: LeftOut(error.fact, error.hint, is_wrong=True) for name in some}
    return rebuilt, failed


def _repaired(
    database: Connection, names: Sequence[str], spark: SparkSession | None
) -> tuple[dict[str, Repaired], dict[str, LeftOut]]:
    """Put the records of views right; returns what was done in each, and in those that share records with them.

    Also returned: why it was not done in others.
    """
    failed: dict[str, LeftOut] = {}
    mine: dict[str, Repaired] = {}
    while rest := [name for name in names if name not in failed]:
        backfill, stopped = _request(database, rest, "repair"), dict[str, str]()
        await_request(database, lambda: _is_pending(database, backfill, stopped), spark)  # noqa: B023 - called within the loop
        catalog, record = database.catalog(), database.store.read_epoch_record()
        done = [(view, record.repaired.get(view.node.table)) for view in catalog.views]
        mine = {view.name: one for view, one in done if one is not None and one.backfill == backfill}
        if not stopped:  # a view that is left met damage, or something took its place
            fact = f"the repair of it was given up: {_OTHERS}"
            again, why = LeftOut(fact, _AGAIN, is_wrong=True), why_not(catalog.views, record.filled, record)
            return mine, failed | {name: why.get(name, again) for name in rest if name not in mine}
        for name, reason in stopped.items():  # all are given up then: once more without those that share with it
            told = LeftOut(f"it cannot be filled anew: {reason}", _way_out(name), is_wrong=True)
            failed |= {view.name: told for view in sharing_records(catalog, [name])}
    return mine, failed


def _log_wrong_rows_again(database: Connection, report: CheckReport) -> list[str]:
    """Write rows that DELTA has wrong as they are in the base; returns the views that were computed with DELTA's."""
    catalog, found = database.catalog(), list[str]()
    for table in [table for table in catalog.tables if table.delta is not None]:
        keys = []
        for finding in report.findings:
            if finding.view == delta_label(table):
                parts = [one.replace(tzinfo=UTC) if isinstance(one, datetime) else one for one in finding.key]
                keys.append(key_bytes(f"table {table.name}", table.key_columns, parts))
        for start in range(0, len(keys), _ROWS_AT_ONCE):
            some = keys[start : start + _ROWS_AT_ONCE]
            for chosen in database.store.together(some, apart=True):
                again = RowWrites(table.id, [some[at] for at in chosen], lambda rows: rows, repeats=True)
                database.write_rows([again], [table], apart=True)
        found += [view.name for view in catalog.views if keys and table.id in catalog.bases_of(view)]
    return list(dict.fromkeys(found))


def rebuild_views(database: Connection, names: Sequence[str], spark: SparkSession | None) -> tuple[str, ...]:
    """Fill the named views anew, and all where changes were lost from the log; returns those that were."""
    if not names:
        raise InputError("no view is named", "name the views to rebuild")
    backfill, stopped = _request(database, names, "rebuild"), dict[str, str]()
    try:
        await_request(database, lambda: _is_pending(database, backfill, stopped), spark)
        is_rebuilt = {backfill}
    except PositionLost:
        _reset_all(database)
        await_request(database, lambda: _is_pending(database, backfill, stopped), spark)
        is_rebuilt = set(database.store.read_epoch_record().filled)
    for name, reason in stopped.items():
        raise EpochFailed(f"view {name} cannot be filled anew: {reason}", "its records are as they were")
    rebuilt = tuple(sorted(view.name for view in database.catalog().views if view.node.backfill in is_rebuilt))
    if not rebuilt:
        raise EpochFailed(f"the rebuild of {', '.join(names)} was given up: {_OTHERS}", _AGAIN)
    return rebuilt


def _left_out(database: Connection, names: Sequence[str] | None, before: CheckReport) -> dict[str, LeftOut]:
    """The views that cannot be put right.

    None of them, nor of those that share records with them, may be stopped, unfilled or being replaced, and their tables
    must be readable.
    """
    catalog, record = database.catalog(), database.store.read_epoch_record()
    troubled = why_not(catalog.views, record.filled, record)
    by_id = {view.id: view.name for view in catalog.views}
    for new in catalog.replacements:
        if not new.twin and (name := by_id.get(new.replaces[-1])) is not None:
            way_out = "wait until the new one is filled"
            troubled[name] = LeftOut("it is being replaced", way_out, is_wrong=names is not None)
    unread = [one for one in before.outcomes if one.state == "not done" and one.way_out]
    found = {one.view: LeftOut(one.why or "", one.way_out, is_wrong=True) for one in unread}
    for name in [one.view for one in before.outcomes]:
        for other in [name, *(view.name for view in sharing_records(catalog, [name]))]:
            if (trouble := troubled.get(other)) is not None:
                why = trouble.why if other == name else f"it shares records with {other}: {trouble.why}"
                found[name] = LeftOut(why, trouble.way_out, is_wrong=trouble.is_wrong)
                break
    return found


def _request(database: Connection, names: Sequence[str], ending: Ending) -> int:
    epoch, backfill = database.store.read_frontier().committed, 0

    def change(catalog: Catalog) -> Catalog:
        nonlocal backfill
        changed, backfill = with_shadow_views(catalog, names, ending, epoch)
        return changed

    database.change_catalog(change)
    failpoint("twins.requested")
    return backfill


def _reset_all(database: Connection) -> None:
    own_now(database.store.claim(take_over=False), lambda _: reset_views(database.store))[0].release()


def _is_pending(database: Connection, backfill: int, stopped: dict[str, str]) -> bool:
    """Whether twins are still to be filled or compared. Where one is stopped, all are dropped, and `stopped` says why."""
    catalog, record = database.catalog(), database.store.read_epoch_record()
    twins = [twin for twin in catalog.replacements if twin.twin and twin.node.backfill == backfill]
    stopped |= {twin.name: reason for twin in twins if (reason := why_stopped(twin, record)) is not None}
    if stopped:
        database.change_catalog(lambda catalog: catalog.without_shadow_views({backfill}, record.committed))
    return bool(twins) and not stopped
