"""Checking: every view against its recomputation by Spark SQL, as of the committed epoch.

In: a database and the names of views. Out: a report. Always: view records and base rows are those of one epoch, while
writes and the pipeline go on; Spark SQL on the view's original text is the judge. Where DELTA keeps old rows, which the
judge then reads, DELTA is compared with the base.
"""

from __future__ import annotations

import contextlib
import itertools
import logging
import tempfile
import uuid
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa

from viewkeeper.check.compare import FINDINGS_MAX, Shape, compare
from viewkeeper.check.questions import question_for
from viewkeeper.check.report import CheckReport, Finding
from viewkeeper.client.checkfiles import CheckFiles
from viewkeeper.client.connection import Connection
from viewkeeper.client.judging import Case, Progress, TablesRead, Verdict, columns_read, judge
from viewkeeper.client.session import Snapshot
from viewkeeper.client.set_aside import has_exceptions
from viewkeeper.client.sincelast import since_last
from viewkeeper.engine.recompute import FEW_ROWS_JAVA_OPTIONS, SparkRecompute
from viewkeeper.engine.session import default_session
from viewkeeper.errors import InputError, PositionLost, StaleRead
from viewkeeper.model import epochs
from viewkeeper.model.keybatches import decode_keys
from viewkeeper.model.schema import TableSchema
from viewkeeper.model.verdicts import Checked

if TYPE_CHECKING:
    from viewkeeper.engine.session import SparkSession
    from viewkeeper.model.epochs import EpochRecord
    from viewkeeper.ports.store import Store

_RETRIES_MAX = 2
_FEW_ROWS_BYTES = 2 << 30
_LEASE_SECONDS = 900.0  # of a pin: a dead reader does not hold anything back for ever


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
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="viewkeeper-check-"))  # its mode is 0700
        files = CheckFiles(Path(folder), database.store, snapshot)
        cases, deltas = _cases(snapshot, names), _deltas(snapshot, names)
        tables = columns_read(cases)
        if not is_whole:
            cases = _since_last(database.store, snapshot, files, cases, tables)
        verdicts: dict[int, Verdict] = {case.view.id: Verdict() for case in cases if not case.is_touched}
        touched = [case for case in cases if case.is_touched]
        tables = {name: tables[name] for case in touched for name in case.question.tables}
        few_rows = database.store.bytes_used() < _FEW_ROWS_BYTES
        options = FEW_ROWS_JAVA_OPTIONS if few_rows else ""
        session = _prepared(files, touched, tables, deltas, spark, java_options=options)
        if session is not None:
            stack.enter_context(_quiet(session) if spark is None else contextlib.nullcontext())
            recompute = SparkRecompute(session, files.table_bytes)
            verdicts |= judge(touched, tables, snapshot.catalog, recompute, files, progress)
        verdicts |= {case.view.id: _with_columns(database.store, case, verdicts[case.view.id]) for case in touched}
        faults = [finding for table in deltas for finding in _faults_of_delta(files, table)]
        judged = {case.view.name for case in cases}
        unfilled = [] if names else [view.name for view in snapshot.catalog.views if view.name not in judged]
    _remember(database.store, snapshot, [(case, verdicts[case.view.id]) for case in cases], faults)
    wrong = {fault.view for fault in faults}
    database.store.note_as_logged([table.id for table in deltas if delta_label(table) not in wrong], began)
    return _report(snapshot.epoch, [(case, verdicts[case.view.id]) for case in cases], faults, unfilled)


def _since_last(
    store: Store, snapshot: Snapshot, files: CheckFiles, cases: Sequence[Case], tables: TablesRead
) -> list[Case]:
    """The cases, those that can be judged by what changed marked so; and the changes, as files."""
    found, start = since_last(store, snapshot, store.read_epoch_record().checked, cases)
    read = {name for case in found if case.since is not None for name in case.question.tables}
    changes = {name: files.write_changed(*tables[name], start) for name in sorted(read, key=_width)}
    return [
        case if case.since is None else replace(case, is_touched=any(changes[name] for name in case.question.tables))
        for case in found
    ]


def _width(name: str) -> int:
    """Of a table that views of different ages read, the columns of the youngest are written last, and stay."""
    return int(name.rpartition("_")[2])


def _remember(
    store: Store, snapshot: Snapshot, verdicts: Sequence[tuple[Case, Verdict]], faults: Sequence[Finding]
) -> None:
    """Keep in the store what was found, for `status`; a store that cannot be written keeps nothing.

    Rows that a DELTA has wrong count for each view over its table: it was computed and judged with them.
    """
    now, epoch, positions = store.now(), snapshot.epoch, snapshot.horizon.positions
    wrong = Counter(fault.view for fault in faults)
    tables = {table.id: wrong[delta_label(table)] for table in snapshot.catalog.tables}
    below = {case.view.id: sum(tables[base] for base in snapshot.catalog.bases_of(case.view)) for case, _ in verdicts}
    known = [
        (case, len(verdict.findings) + below[case.view.id]) for case, verdict in verdicts if verdict.unknown is None
    ]

    def remember(record: EpochRecord) -> EpochRecord:
        checked = {}
        for case, findings in known:
            table = int(case.view.node.table)
            before = record.checked.get(table)
            whole = epoch if case.since is None else before.whole if before is not None else 0
            checked[table] = Checked(epoch, now, findings, positions, whole)
        return epochs.check(record, checked)

    if known and store.is_writable:
        store.change_epoch_record(remember)


@contextlib.contextmanager
def _pinned(store: Store, epoch: int) -> Iterator[None]:
    """Within the block `epoch` stays readable (R4): for reads of versions in the store, not of held ones."""
    if not store.is_writable:  # then nothing can change
        yield
        return
    name = uuid.uuid4().hex
    until = store.now() + int(_LEASE_SECONDS * 1e9)
    store.change_epoch_record(lambda record: epochs.pin(record, name, epoch, until))
    try:
        yield
    finally:
        store.change_epoch_record(lambda record: epochs.unpin(record, name))
    if store.read_horizon().floor > epoch:
        raise StaleRead(f"epoch {epoch} was dropped while it was read", "run it again")


def _cases(snapshot: Snapshot, names: Sequence[str] | None) -> list[Case]:
    catalog, filled = snapshot.catalog, snapshot.horizon.filled
    chosen = [catalog.view(name) for name in dict.fromkeys(names)] if names else catalog.views
    cases = []
    for view in [view for view in chosen if names or view.node.backfill in filled]:
        cases.append(Case(view, question_for(catalog, view, careful=False), has_exceptions(snapshot, view)))
    return cases


def _deltas(snapshot: Snapshot, names: Sequence[str] | None) -> list[TableSchema]:
    """The tables with a DELTA; where views are named, those that they read."""
    read = {source for name in names or () for source in snapshot.catalog.bases_of(snapshot.catalog.view(name))}
    tables = snapshot.catalog.tables
    return [table for table in tables if table.delta is not None and (not names or table.id in read)]


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
    views = [case.view for case in cases]
    with ThreadPoolExecutor(1) as pool:
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


def delta_label(table: TableSchema) -> str:
    """What findings call the DELTA of a table."""
    return f"DELTA({table.name})"


def _with_columns(store: Store, case: Case, verdict: Verdict) -> Verdict:
    """The verdict on a view, and where its columns show something else than its records; not of a part of it."""
    wrong = store.wrong_columns(case.view.node.table) if case.since is None and verdict.unknown is None else iter(())
    found = tuple(
        Finding(case.view.name, _decoded(case, key), "wrong", expected, shown)
        for key, expected, shown in itertools.islice(wrong, FINDINGS_MAX)
    )
    return replace(verdict, findings=(*verdict.findings, *found)) if found else verdict


def _decoded(case: Case, key: bytes) -> tuple[object, ...]:
    return tuple(array[0].as_py() for array in decode_keys(case.view.node.key, pa.array([key], pa.binary())))


def _faults_of_delta(files: CheckFiles, table: TableSchema) -> list[Finding]:
    key = tuple(table.position(name) for name in table.key)
    shape = Shape(
        view=delta_label(table),
        values=[column.name for column in table.columns],
        doubles=frozenset(),
        expected_key=key,
        found_key=key,
        bounds={},
        is_near=False,
    )
    base, delta = files.sides_of_delta(table)
    return compare(shape, base, delta, files.scratch)[1]


def _report(
    epoch: int, verdicts: Sequence[tuple[Case, Verdict]], faults: Sequence[Finding], unfilled: Sequence[str]
) -> CheckReport:
    known = {case.view.name: verdict for case, verdict in verdicts if verdict.unknown is None}
    notes = [
        f"view {case.view.name} could not be judged, which says nothing against it: {verdict.unknown}"
        for case, verdict in verdicts
        if verdict.unknown is not None
    ]
    findings = (*(finding for verdict in known.values() for finding in verdict.findings), *faults)
    is_ok = not findings and not notes and bool(known or not unfilled)
    notes += [
        f"view {case.view.name} was checked as a whole: {case.why_whole}" for case, _ in verdicts if case.why_whole
    ]
    if unfilled:
        verb = "is" if len(unfilled) == 1 else "are"
        notes.append(f"{', '.join(unfilled)} {verb} not filled yet, so not compared; a running pipeline fills views")
    since = {case.view.name: case.since for case, _ in verdicts if case.since is not None and case.view.name in known}
    records = sum(verdict.records for verdict in known.values())
    return CheckReport(is_ok, epoch, tuple(known), records, findings, tuple(notes), since)
