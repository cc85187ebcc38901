"""Repairing and rebuilding: views are filled anew beside themselves, by the pipeline.

In: a database and the names of views. Out: views that are what their texts say. Always: the request is in the catalog, as
twins, so it survives whoever made it; the pipeline that runs takes it up, and without one this process runs it. What is
written for readers is one epoch (repair), or one change of the catalog (rebuild).
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from viewkeeper.catalog.catalog import Catalog
from viewkeeper.catalog.twins import Ending, sharing_records, with_twins
from viewkeeper.check.report import RepairReport
from viewkeeper.client.checking import check_views, delta_label
from viewkeeper.client.connection import Connection
from viewkeeper.client.finishing import finish
from viewkeeper.client.row_values import key_bytes
from viewkeeper.client.standby import own_now
from viewkeeper.client.views import why_stopped
from viewkeeper.coordinator.anew import start_views_anew
from viewkeeper.errors import EpochFailed, InputError, NotReady, PositionLost
from viewkeeper.model.writes import RowWrites

if TYPE_CHECKING:
    from viewkeeper.catalog.catalog import ViewDefinition
    from viewkeeper.check.report import CheckReport
    from viewkeeper.client.judging import Progress
    from viewkeeper.engine.session import SparkSession
    from viewkeeper.model.epochs import EpochRecord
    from viewkeeper.model.schema import TableSchema
    from viewkeeper.model.verdicts import Repaired

_ROWS_AT_ONCE = 1_000


def repair_views(
    database: Connection, names: Sequence[str] | None, spark: SparkSession | None, progress: Progress | None = None
) -> RepairReport:
    """Check the named views, or all that are filled, put their records right, and check them again.

    Where a DELTA is wrong, its rows are logged again and the views over its table are rebuilt: what they were computed from
    is not known. So are views that an epoch did not put right.
    """
    chosen = _chosen(database, names)
    before = check_views(database, chosen, spark, progress)
    catalog = database.catalog()
    nodes = [table for name in chosen for node in catalog.stored(catalog.view(name)) for table in node.tables]
    database.store.distrust(
        [*dict.fromkeys(nodes), *(table.delta for table in catalog.tables if table.delta is not None)]
    )
    over_delta = _log_wrong_rows_again(database, before)
    rebuilt = rebuild_views(database, over_delta, spark) if over_delta else ()
    mine = _repaired(database, [name for name in chosen if name not in rebuilt], spark)
    after = check_views(database, [*mine, *rebuilt], spark, progress)
    wrong = {finding.view for finding in after.findings}
    if stuck := [name for name in mine if name in wrong]:  # what others wrote to its records hides what an epoch does
        rebuilt = (*rebuilt, *rebuild_views(database, stuck, spark))
        after = check_views(database, list(dict.fromkeys([*mine, *rebuilt])), spark, progress)
    return RepairReport(
        after.ok,
        max((one.epoch for one in mine.values()), default=after.epoch),
        {name: one.records for name, one in mine.items()},
        {name: one.auxiliary for name, one in mine.items()},
        rebuilt,
        before,
        after,
    )


def _repaired(database: Connection, names: Sequence[str], spark: SparkSession | None) -> dict[str, Repaired]:
    """Put the records of views right; returns what was done in each, and in those that share records with them."""
    if not names:
        return {}
    backfill = _request(database, names, "repair")
    finish(database, lambda: _is_pending(database, backfill), spark)
    catalog, record = database.catalog(), database.store.read_epoch_record()
    done = [(view, record.repaired.get(view.node.table)) for view in catalog.views]
    mine = {view.name: one for view, one in done if one is not None and one.backfill == backfill}
    if not mine:
        raise EpochFailed("the repair was given up", "see the status of the views, and rebuild those that are stopped")
    return mine


def _log_wrong_rows_again(database: Connection, report: CheckReport) -> list[str]:
    """Write rows that DELTA has wrong as they are in the base; returns the views that were computed with DELTA's."""
    catalog, found = database.catalog(), list[str]()
    for table in [table for table in catalog.tables if table.delta is not None]:
        keys = [_encoded(table, finding.key) for finding in report.findings if finding.view == delta_label(table)]
        for start in range(0, len(keys), _ROWS_AT_ONCE):
            some = keys[start : start + _ROWS_AT_ONCE]
            for chosen in database.store.together(some, apart=True):
                again = RowWrites(table.id, [some[at] for at in chosen], lambda rows: rows, repeats=True)
                database.write_rows([again], [table], apart=True)
        found += [view.name for view in catalog.views if keys and table.id in catalog.bases_of(view)]
    return list(dict.fromkeys(found))


def _encoded(table: TableSchema, key: tuple[object, ...]) -> bytes:
    instants = [part.replace(tzinfo=UTC) if isinstance(part, datetime) else part for part in key]
    return key_bytes(f"table {table.name}", table.key_columns, instants)


def rebuild_views(database: Connection, names: Sequence[str], spark: SparkSession | None) -> tuple[str, ...]:
    """Fill the named views anew, and all where changes were lost from the log; returns those that were."""
    if not names:
        raise InputError("no view is named", "name the views to rebuild")
    backfill = _request(database, names, "rebuild")
    try:
        finish(database, lambda: _is_pending(database, backfill), spark)
        is_rebuilt = {backfill}
    except PositionLost:
        own_now(database.store.claim(take_over=False), lambda _: start_views_anew(database.store))[0].release()
        finish(database, lambda: _is_pending(database, backfill), spark)
        is_rebuilt = set(database.store.read_epoch_record().filled)
    rebuilt = tuple(sorted(view.name for view in database.catalog().views if view.node.backfill in is_rebuilt))
    if not rebuilt:
        raise EpochFailed("the rebuild was given up: another request or statement took its place", "run it again")
    return rebuilt


def _chosen(database: Connection, names: Sequence[str] | None) -> list[str]:
    """The views to be put right: none of them, nor of those that share records with them, may be stopped or unfilled."""
    catalog, record = database.catalog(), database.store.read_epoch_record()
    if names is not None:
        for view in sharing_records(catalog, names):
            if (trouble := _trouble(view, record)) is not None:
                is_stopped = why_stopped(view, record) is not None
                way_out = (
                    f"viewkeeper rebuild URL {view.name}"
                    if is_stopped
                    else "wait until it is: a running pipeline fills views"
                )
                raise NotReady(f"view {view.name} is {trouble}", way_out)
        return list(names)
    well = [view.name for view in catalog.views if _trouble(view, record) is None]
    return [name for name in well if all(_trouble(one, record) is None for one in sharing_records(catalog, [name]))]


def _trouble(view: ViewDefinition, record: EpochRecord) -> str | None:
    if (reason := why_stopped(view, record)) is not None:
        return f"stopped: {reason}"
    return None if view.node.backfill in record.filled else "not filled yet"


def _request(database: Connection, names: Sequence[str], ending: Ending) -> int:
    epoch, backfill = database.store.read_horizon().committed, 0

    def change(catalog: Catalog) -> Catalog:
        nonlocal backfill
        changed, backfill = with_twins(catalog, names, ending, epoch)
        return changed

    database.change_catalog(change)
    return backfill


def _is_pending(database: Connection, backfill: int) -> bool:
    """Whether twins are still to be filled or compared. Those that are stopped are dropped here."""
    catalog, record = database.catalog(), database.store.read_epoch_record()
    twins = [twin for twin in catalog.replacements if twin.twin and twin.node.backfill == backfill]
    for twin in twins:
        if (reason := why_stopped(twin, record)) is not None:
            database.change_catalog(lambda catalog: catalog.without_twins({backfill}, record.committed))
            way_out = f": viewkeeper rebuild URL {twin.name}" if twin.twin == "repair" else ""
            raise EpochFailed(
                f"view {twin.name} cannot be filled anew: {reason}", f"its records are as they were{way_out}"
            )
    return bool(twins)
