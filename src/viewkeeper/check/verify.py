"""Verifying: views recomputed by another engine, and compared with its results, as a whole or since their last check.

In: cases, files with the rows of base tables and the records of views, and what the store remembers of earlier checks.
Out: a verdict on each; for a case of which only touched records are to be compared a mark, for the others the reason.
Always: a query that the engine stops at is run once more, error-tolerant; without a result the view is unknown, not
wrong. A check goes back to the last one only if that found nothing, the log holds every change since, and the records are
those that were checked; what is in doubt is checked as a whole.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass, replace
from datetime import datetime

from viewkeeper.catalog.catalog import Catalog, ViewDefinition
from viewkeeper.check.check_files import CheckFiles
from viewkeeper.check.compare import Shape, compare
from viewkeeper.check.oracle_sql import OracleQuery, changed_keys, oracle_query_for, restricted
from viewkeeper.check.query_blocks import changed_name
from viewkeeper.check.report import Finding
from viewkeeper.client.session import Snapshot
from viewkeeper.errors import EpochFailed, PositionLost
from viewkeeper.model.epochs import Checked
from viewkeeper.model.positions import Position, Positions
from viewkeeper.model.schema import Column, TableSchema
from viewkeeper.ports.store import Recompute, Store

Progress = Callable[[int, int], None]
_AT_ONCE = 3  # while Spark plans one query, its tasks run others


@dataclass(frozen=True, slots=True)
class Case:
    """A view to be judged. `has_troubles`: it has rows set aside or groups degraded, so its query is error-tolerant.

    `since`: only the records are compared that changes after that epoch can have touched, and `affected` is SQL for
    their keys; `is_touched`: there are such changes. `why_whole`: why that was asked for and is not done.
    """

    view: ViewDefinition
    question: OracleQuery
    has_troubles: bool
    since: int | None = None
    affected: str = ""
    is_touched: bool = True
    why_whole: str | None = None


@dataclass(frozen=True, slots=True)
class ViewVerdict:
    """How many records a view should have and what is wrong with those it has, or why it is unknown, and what helps."""

    records: int = 0
    findings: tuple[Finding, ...] = ()
    unknown: str | None = None
    way_out: str | None = None


TablesRead = Mapping[str, tuple[TableSchema, list[Column]]]  # tables by their names in queries


def columns_read(cases: Sequence[Case]) -> TablesRead:
    """The tables of all queries by their names there, with the columns that any of them refers to."""
    tables = {name: table for case in cases for name, table in case.question.tables.items()}
    named: dict[int, set[str]] = {table.id: {table.key[0]} for table in tables.values()}  # not empty: rows are counted
    for case in cases:
        for name, columns in case.question.columns.items():
            named[tables[name].id] |= {column.name for column in columns}
    return {
        name: (table, [column for column in table.columns if column.name in named[table.id]])
        for name, table in tables.items()
    }


def judge(
    cases: Sequence[Case],
    tables: TablesRead,
    catalog: Catalog,
    recompute: Recompute,
    files: CheckFiles,
    progress: Progress | None,
) -> dict[int, ViewVerdict]:
    """The verdicts by view; a result is compared, and deleted, while the next ones are computed."""
    changed = {name for case in cases if case.since is not None for name in case.question.tables}
    for name, (table, columns) in tables.items():
        recompute.register(name, columns, files.path("table", table))
        if name in changed:
            recompute.register(changed_name(table), columns, files.path("changed", table))
    verdicts: dict[int, ViewVerdict] = {}
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        answers = {pool.submit(_answer, case, catalog, recompute, files): case for case in cases}
        try:
            for answer in as_completed(answers):
                case, view = answers[answer], answers[answer].view
                try:
                    verdicts[view.id] = _verdict(case, answer.result(), files)
                except EpochFailed as error:
                    verdicts[view.id] = ViewVerdict(unknown=error.fact)
                if progress is not None:
                    progress(len(verdicts), len(cases))
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            recompute.cancel()
            raise
    return verdicts


def _answer(case: Case, catalog: Catalog, recompute: Recompute, files: CheckFiles) -> OracleQuery:
    """Run the query; returns the one that succeeded."""
    target, touched = files.path("expected", case.view), f"touched_{case.view.id}"
    if case.since is not None:
        recompute.answer(case.affected, files.path("touched", case.view), touched)

    def sql(question: OracleQuery) -> str:
        return question.sql if case.since is None else restricted(question, touched)

    if not case.has_troubles:
        try:
            recompute.answer(sql(case.question), target)
            return case.question
        except EpochFailed:
            pass  # Spark evaluates what a view does not, and intermediate sums of integers may leave 64 bits
    error_tolerant = oracle_query_for(catalog, case.view, error_tolerant=True)
    recompute.answer(sql(error_tolerant), target)
    return error_tolerant


def _verdict(case: Case, question: OracleQuery, files: CheckFiles) -> ViewVerdict:
    view, width = case.view, len(case.view.shown)
    shape = Shape(
        view=view.name,
        values=[item.column.name for item in view.shown],
        doubles=frozenset(i for i, item in enumerate(view.shown) if item.column.type.kind == "DOUBLE"),
        expected_key=question.key,
        found_key=tuple(range(width, width + len(view.node.key))),
        bounds=question.bounds,
        is_near=question.is_near,
    )
    expected, found = files.path("expected", view), files.path("found", view)
    touched = None if case.since is None else files.path("touched", view)
    records, findings = compare(shape, expected, found, files.scratch, touched)
    if findings and question.doubt is not None:
        raise EpochFailed(question.doubt)
    for path in filter(None, (expected, found, touched)):
        shutil.rmtree(path)
    return ViewVerdict(records, named_once(files.faults(view.id), findings))


def named_once(faults: Sequence[Finding], findings: Sequence[Finding]) -> tuple[Finding, ...]:
    """Records that cannot be read, or not where they are, and those that differ; one that is both is named once."""
    missing = {_hashable(one.key): one for one in findings if one.kind == "missing"}
    both = missing.keys() & {_hashable(fault.key) for fault in faults}
    named = [
        replace(fault, expected=missing[key].expected) if (key := _hashable(fault.key)) in both else fault
        for fault in faults
    ]
    return (*named, *(one for one in findings if one.kind != "missing" or _hashable(one.key) not in both))


def _hashable(key: tuple[object, ...]) -> tuple[object, ...]:
    """A key with instants as the judge has them, without a zone."""
    return tuple(part.replace(tzinfo=None) if isinstance(part, datetime) else part for part in key)


def since_last(
    store: Store, snapshot: Snapshot, files: CheckFiles, cases: Sequence[Case], tables: TablesRead
) -> list[Case]:
    """The cases, those marked that can be judged by what changed since their last check; the changes go to files."""
    checked, stop = store.read_epoch_record().checked, snapshot.frontier.positions
    known = [last for case in cases if (last := checked.get(case.view.node.table)) is not None]
    starts = {last.epoch: last.positions for last in known}
    logged = frozenset(epoch for epoch, start in starts.items() if _is_logged(store, start, stop))
    found = []
    for case in cases:
        last, (affected, why_not) = checked.get(case.view.node.table), changed_keys(snapshot.catalog, case.view)
        why = _why_whole(snapshot, last, case, logged) or why_not
        if last is None or why is not None or case.question.key is None:
            found.append(replace(case, why_whole=why or "its text does not tell the key of its records"))
        else:
            found.append(replace(case, since=last.epoch, affected=affected))
    used = [starts[case.since] for case in found if case.since is not None]
    start = {stream: min((one.get(stream, Position(0)) for one in used), default=stop[stream]) for stream in stop}
    read = {name for case in found if case.since is not None for name in case.question.tables}
    # of a table that views of different ages read, the columns of the youngest are written last, and stay
    by_width = sorted(read, key=lambda name: int(name.rpartition("_")[2]))
    changes = {name: files.write_changed(*tables[name], start) for name in by_width}
    return [
        case if case.since is None else replace(case, is_touched=any(changes[name] for name in case.question.tables))
        for case in found
    ]


def _why_whole(snapshot: Snapshot, last: Checked | None, case: Case, logged: frozenset[int]) -> str | None:
    """Why the last check cannot be built upon; the log holds all changes after the epochs that are `logged`."""
    if last is None or not last.whole:
        return "it has no earlier check to build on"
    if last.findings:
        return f"the check as of epoch {last.epoch} found it wrong"
    if snapshot.frontier.filled.get(case.view.node.backfill, 0) > last.epoch:
        return f"it was filled anew after epoch {last.epoch}"
    if last.epoch > snapshot.epoch:
        return f"another check ended meanwhile, as of epoch {last.epoch}"
    if any(table.delta is not None for table in case.question.tables.values()):
        return "the log does not hold rows as they were before a change"
    return None if last.epoch in logged else f"the log no longer holds all changes after epoch {last.epoch}"


def _is_logged(store: Store, start: Positions, stop: Positions) -> bool:
    if not start.keys() <= store.ends().keys():  # a node was removed, with its log
        return False
    try:
        for stream, end in stop.items():
            next(store.read_log(stream, start.get(stream, Position(0)), end), None)
    except PositionLost:
        return False
    return True
