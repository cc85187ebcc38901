"""Checking views: every view against its recomputation by Spark SQL, as of the committed epoch.

In: a database and the names of views. Out: a report. Always: view records and base rows are those of one epoch, while
writes and the pipeline go on; Spark SQL on the view's original text is the judge. Where DELTA keeps old rows, which the
judge then reads, DELTA is compared with the base.
"""

from __future__ import annotations

import contextlib
import itertools
import logging
import uuid
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import pyarrow as pa

from viewkeeper.check.check_files import CheckFiles, check_folder, delta_label
from viewkeeper.check.compare import FINDINGS_MAX, Shape, compare
from viewkeeper.check.oracle_sql import oracle_query_for
from viewkeeper.check.report import CheckReport, Finding, ViewOutcome
from viewkeeper.check.verify import Case, Progress, TablesRead, ViewVerdict, columns_read, judge, named_once, since_last
from viewkeeper.client.connection import Connection
from viewkeeper.client.session import Snapshot
from viewkeeper.client.set_aside import has_listed_errors
from viewkeeper.client.views import why_stopped
from viewkeeper.engine.recompute import FEW_ROWS_JAVA_OPTIONS, SparkRecompute
from viewkeeper.engine.spark_session import default_session
from viewkeeper.errors import InputError, PositionLost, StaleRead
from viewkeeper.failpoints import failpoint
from viewkeeper.model import epochs
from viewkeeper.model.epochs import Checked
from viewkeeper.model.keybatches import decode_keys
from viewkeeper.model.schema import TableSchema
from viewkeeper.model.soundness import DAMAGE
from viewkeeper.ports.meta import change_epoch_record

if TYPE_CHECKING:
    from viewkeeper.catalog.catalog import ViewDefinition
    from viewkeeper.engine.spark_session import SparkSession
    from viewkeeper.model.epochs import EpochRecord
    from viewkeeper.ports.store import Store

_RETRIES_MAX = 2
_FEW_ROWS_BYTES = 2 << 30
_LEASE_SECONDS = 900.0  # of a pin: a dead reader does not hold anything back for ever


@dataclass(frozen=True, slots=True)
class LeftOut:
    """Why nothing was done with a view, and what helps. `is_wrong`: what was asked for is then not `ok`."""

    why: str
    way_out: str | None
    is_wrong: bool

    def __str__(self) -> str:
        return f"{self.why}; {self.way_out}" if self.way_out else self.why


def check_views(
    database: Connection,
    names: Sequence[str] | None,
    spark: SparkSession | None,
    progress: Progress | None = None,
    *,
    since: str | None = None,
) -> CheckReport:
    """The report on the named views, or on all that are filled; `progress` gets how many of how many are judged.

    `since="last"`: of each view only what changes after its last check can have touched, where that can be told.
    """
    if since not in (None, "last"):
        raise InputError(f"a check goes back to the last one, not to {since!r}", 'write since="last", or leave it out')
    catalog = database.catalog()
    for name in names or ():
        catalog.view(name)
    for _ in range(_RETRIES_MAX):
        with contextlib.suppress(PositionLost, StaleRead):  # a long check lost its state: judge a later epoch
            return _check_once(database, names, spark, progress, is_whole=since is None)
    return _check_once(database, names, spark, progress, is_whole=since is None)


def _check_once(
    database: Connection,
    names: Sequence[str] | None,
    spark: SparkSession | None,
    progress: Progress | None,
    *,
    is_whole: bool,
) -> CheckReport:
    began = database.store.now()
    with contextlib.ExitStack() as stack:
        snapshot = stack.enter_context(Snapshot(database))
        # the base as of an epoch is read from the log, or from the versions of a DELTA
        if not database.store.capabilities.held_reads or any(table.delta for table in snapshot.catalog.tables):
            stack.enter_context(_pinned(database.store, snapshot.epoch))
        files = CheckFiles(stack.enter_context(check_folder()), database.store, snapshot)
        failpoint("check.started")
        chosen = snapshot.catalog.views if names is None else list(map(snapshot.catalog.view, dict.fromkeys(names)))
        left_out = why_not(chosen, snapshot.frontier.filled, database.store.read_epoch_record())
        cases = [
            Case(
                view, oracle_query_for(snapshot.catalog, view, error_tolerant=False), _has_listed_errors(snapshot, view)
            )
            for view in chosen
            if view.name not in left_out
        ]
        deltas = _deltas(snapshot, cases, is_named=names is not None)
        tables = columns_read(cases)
        if not is_whole:
            cases = since_last(database.store, snapshot, files, cases, tables)
        verdicts: dict[int, ViewVerdict] = {case.view.id: ViewVerdict() for case in cases if not case.is_touched}
        touched = [case for case in cases if case.is_touched]
        tables = {name: tables[name] for case in touched for name in case.question.tables}
        options = FEW_ROWS_JAVA_OPTIONS if database.store.facts().bytes_used < _FEW_ROWS_BYTES else ""
        session = _prepared(files, touched, tables, deltas, spark, java_options=options)
        if session is not None:
            stack.enter_context(_quiet(session) if spark is None else contextlib.nullcontext())
            recompute = SparkRecompute(session, files.table_bytes)
            unread = {
                case.view.id: error
                for case in touched
                if (error := files.unread_by(case.view, case.question.tables.values())) is not None
            }
            verdicts |= {view: ViewVerdict(unknown=error.fact, way_out=error.hint) for view, error in unread.items()}
            read = [case for case in touched if case.view.id not in unread]
            tables = {name: tables[name] for case in read for name in case.question.tables}
            verdicts |= judge(read, tables, snapshot.catalog, recompute, files, progress)
        verdicts |= {case.view.id: _with_columns(database.store, case, verdicts[case.view.id]) for case in touched}
        faults = [finding for table in deltas for finding in _faults_of_delta(files, table)]
    failpoint("check.judged")
    judged = [(case, verdicts[case.view.id]) for case in cases]
    _remember(database.store, snapshot, judged, faults)
    wrong = {fault.view for fault in faults}
    right = [table.id for table in deltas if delta_label(table) not in wrong and table.id not in files.unread]
    database.store.note_as_logged(right, began)
    failpoint("check.remembered")
    return _report(snapshot.epoch, judged, faults, left_out, is_named=names is not None)


def _remember(
    store: Store, snapshot: Snapshot, verdicts: Sequence[tuple[Case, ViewVerdict]], faults: Sequence[Finding]
) -> None:
    """Keep in the store what was found, for `status`; a store that cannot be written keeps nothing.

    Rows that a DELTA has wrong count for each view over its table: it was computed and judged with them.
    """
    now, epoch, positions = store.now(), snapshot.epoch, snapshot.frontier.positions
    wrong = Counter(fault.view for fault in faults)
    tables = {table.id: wrong[delta_label(table)] for table in snapshot.catalog.tables}
    below = {case.view.id: sum(tables[base] for base in snapshot.catalog.bases_of(case.view)) for case, _ in verdicts}
    known = [(case, len(found.findings) + below[case.view.id]) for case, found in verdicts if found.unknown is None]

    def remember(record: EpochRecord) -> EpochRecord:
        checked = {}
        for case, findings in known:
            table = int(case.view.node.table)
            before = record.checked.get(table)
            whole = epoch if case.since is None else before.whole if before is not None else 0
            checked[table] = Checked(epoch, now, findings, positions, whole)
        return epochs.check(record, checked)

    if known and store.capabilities.is_writable:
        change_epoch_record(store, remember)


@contextlib.contextmanager
def _pinned(store: Store, epoch: int) -> Iterator[None]:
    """Within the block `epoch` stays readable (R4): for reads of versions in the store, not of held ones."""
    if not store.capabilities.is_writable:  # then nothing can change
        yield
        return
    name = uuid.uuid4().hex
    until = store.now() + int(_LEASE_SECONDS * 1e9)
    change_epoch_record(store, lambda record: epochs.pin(record, name, epoch, until))
    try:
        yield
    finally:
        change_epoch_record(store, lambda record: epochs.unpin(record, name))
    if store.read_frontier().floor > epoch:
        raise StaleRead(f"epoch {epoch} was dropped while it was read", "run it again")


def why_not(views: Iterable[ViewDefinition], filled: Mapping[int, int], record: EpochRecord) -> dict[str, LeftOut]:
    """Those of the views that can neither be checked nor repaired."""
    found = {}
    for view in views:
        if (reason := why_stopped(view, record)) is not None:
            found[view.name] = LeftOut(f"it is stopped: {reason}", f"viewkeeper rebuild URL {view.name}", is_wrong=True)
        elif view.node.backfill not in filled:
            found[view.name] = LeftOut("it is not filled yet", "a running pipeline fills views", is_wrong=False)
    return found


def _has_listed_errors(snapshot: Snapshot, view: ViewDefinition) -> bool:
    try:
        return has_listed_errors(snapshot, view)
    except DAMAGE:  # a list that cannot be read: its fault is found with those of other auxiliary tables
        return True


def _deltas(snapshot: Snapshot, cases: Sequence[Case], *, is_named: bool) -> list[TableSchema]:
    """The tables with a DELTA; where views are named, those that they read.

    A table of others is staged before a view of it is filled: until then its DELTA lacks rows.
    """
    read = {source for case in cases for source in snapshot.catalog.bases_of(case.view)}
    tables = [table for table in snapshot.catalog.tables if table.delta is not None]
    return [table for table in tables if table.id in read or not (is_named or table.foreign)]


def _prepared(
    files: CheckFiles,
    cases: Sequence[Case],
    tables: TablesRead,
    deltas: Sequence[TableSchema],
    spark: SparkSession | None,
    *,
    java_options: str,
) -> SparkSession | None:
    """Write the files while Spark starts; without a view there is no query for it."""
    with ThreadPoolExecutor(1) as pool:
        views = [(case.view, case.since is None) for case in cases]
        written = pool.submit(files.write, views, tables.values(), deltas)
        try:
            session = spark or default_session(view_managers=2, java_options=java_options) if cases else None
            written.result()
        except BaseException:
            files.stop()
            raise
    return session


@contextlib.contextmanager
def _quiet(session: SparkSession) -> Iterator[None]:
    """A failed query is reported, without Spark's stack traces."""
    context, told = session.sparkContext, logging.getLogger("SQLQueryContextLogger")
    context.setLogLevel("OFF")
    was, told.disabled = told.disabled, True
    try:
        yield
    finally:
        told.disabled = was
        context.setLogLevel("ERROR")


def _with_columns(store: Store, case: Case, verdict: ViewVerdict) -> ViewVerdict:
    """The verdict on a view, and where its columns show something else than its records; not of a part of it."""
    if case.since is not None or verdict.unknown is not None:
        return verdict
    found = list(verdict.findings)
    for key, expected, shown in itertools.islice(store.wrong_columns(case.view.node.table), FINDINGS_MAX):
        decoded = decode_keys(case.view.node.key, pa.array([key], pa.binary()))
        parts = tuple(array[0].as_py() for array in decoded)
        found.append(Finding(case.view.name, parts, "wrong", expected, shown))
    return replace(verdict, findings=tuple(found))


def _faults_of_delta(files: CheckFiles, table: TableSchema) -> list[Finding]:
    if table.id in files.unread:
        return []
    key = tuple(table.position(name) for name in table.key)
    values = [column.name for column in table.columns]
    shape = Shape(delta_label(table), values, frozenset(), expected_key=key, found_key=key, bounds={}, is_near=False)
    base, delta = files.path("base", table), files.path("delta", table)
    return list(named_once(files.faults(table.delta or 0), compare(shape, base, delta, files.scratch)[1]))


def _report(
    epoch: int,
    verdicts: Sequence[tuple[Case, ViewVerdict]],
    faults: Sequence[Finding],
    left_out: dict[str, LeftOut],
    *,
    is_named: bool,
) -> CheckReport:
    known = {case.view.name: verdict for case, verdict in verdicts if verdict.unknown is None}
    findings = (*(finding for verdict in known.values() for finding in verdict.findings), *faults)
    unknown = {
        case.view.name: LeftOut(verdict.unknown, verdict.way_out, is_wrong=True)
        for case, verdict in verdicts
        if verdict.unknown is not None
    }
    notes = [f"view {name} could not be judged, and may be right: {one}" for name, one in unknown.items()]
    notes += [f"view {name} was not compared: {one}" for name, one in left_out.items() if one.is_wrong]
    notes += [f"view {one.view.name} was checked as a whole: {one.why_whole}" for one, _ in verdicts if one.why_whole]
    if unfilled := [name for name, one in left_out.items() if not one.is_wrong]:
        verb = "is" if len(unfilled) == 1 else "are"
        notes.append(f"{', '.join(unfilled)} {verb} not filled yet, so not compared; a running pipeline fills views")
    missed = [one for one in (unknown | left_out).values() if one.is_wrong or is_named]
    since = {case.view.name: case.since for case, _ in verdicts if case.since is not None and case.view.name in known}
    return CheckReport(
        ok=not findings and not missed and bool(known or not left_out),
        epoch=epoch,
        views=tuple(known),
        records=sum(verdict.records for verdict in known.values()),
        findings=findings,
        notes=tuple(notes),
        since=since,
        outcomes=tuple(
            _outcome(name, known.get(name), (unknown | left_out).get(name))
            for name in [*(case.view.name for case, _ in verdicts), *left_out]
        ),
    )


def _outcome(name: str, verdict: ViewVerdict | None, missed: LeftOut | None) -> ViewOutcome:
    if missed is not None:
        return ViewOutcome(name, "not done", why=missed.why, way_out=missed.way_out)
    if verdict is None or not verdict.findings:
        return ViewOutcome(name, "ok", verdict.records if verdict else 0)
    return ViewOutcome(name, "wrong", len(verdict.findings), way_out=f"viewkeeper repair URL {name}")
