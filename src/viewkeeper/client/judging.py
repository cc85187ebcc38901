"""Judging: views recomputed by another engine, and compared with its results.

In: cases, and files with the rows of base tables and the records of views. Out: a verdict on each. Always: a query that
the engine stops at is run once more, with care; one without a result is reported as such, which does not count against
the view.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass, replace
from datetime import datetime
from typing import TYPE_CHECKING

from viewkeeper.catalog.catalog import Catalog, ViewDefinition
from viewkeeper.check.affected import restricted
from viewkeeper.check.compare import Shape, compare
from viewkeeper.check.expansion import changed_name
from viewkeeper.check.questions import Question, question_for
from viewkeeper.check.report import Finding
from viewkeeper.errors import EpochFailed
from viewkeeper.model.schema import Column, TableSchema
from viewkeeper.ports.recompute import Recompute

if TYPE_CHECKING:
    from viewkeeper.client.checkfiles import CheckFiles

Progress = Callable[[int, int], None]
_AT_ONCE = 3  # while Spark plans one query, its tasks run others


@dataclass(frozen=True, slots=True)
class Case:
    """A view to be judged. `has_troubles`: it has rows set aside or groups degraded, so it is queried with care.

    `since`: only the records are compared that changes after that epoch can have touched, and `affected` is SQL for
    their keys; `is_touched`: there are such changes. `why_whole`: why that was asked for and is not done.
    """

    view: ViewDefinition
    question: Question
    has_troubles: bool
    since: int | None = None
    affected: str = ""
    is_touched: bool = True
    why_whole: str | None = None


@dataclass(frozen=True, slots=True)
class Verdict:
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
) -> dict[int, Verdict]:
    """The verdicts by view; a result is compared, and deleted, while the next ones are computed."""
    changed = {name for case in cases if case.since is not None for name in case.question.tables}
    for name, (table, columns) in tables.items():
        recompute.register(name, columns, files.table(table))
        if name in changed:
            recompute.register(changed_name(table), columns, files.changed(table))
    verdicts: dict[int, Verdict] = {}
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        answers = {pool.submit(_answer, case, catalog, recompute, files): case for case in cases}
        try:
            for answer in as_completed(answers):
                case, view = answers[answer], answers[answer].view
                try:
                    verdicts[view.id] = _verdict(case, answer.result(), files)
                except EpochFailed as error:
                    verdicts[view.id] = Verdict(unknown=error.fact)
                if progress is not None:
                    progress(len(verdicts), len(cases))
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            recompute.cancel()
            raise
    return verdicts


def _answer(case: Case, catalog: Catalog, recompute: Recompute, files: CheckFiles) -> Question:
    """Run the query; returns the one that succeeded."""
    target, touched = files.expected(case.view), f"touched_{case.view.id}"
    if case.since is not None:
        recompute.answer(case.affected, files.touched(case.view), touched)

    def sql(question: Question) -> str:
        return question.sql if case.since is None else restricted(question, touched)

    if not case.has_troubles:
        try:
            recompute.answer(sql(case.question), target)
            return case.question
        except EpochFailed:
            pass  # Spark evaluates what a view does not, and intermediate sums of integers may leave 64 bits
    careful = question_for(catalog, case.view, careful=True)
    recompute.answer(sql(careful), target)
    return careful


def _verdict(case: Case, question: Question, files: CheckFiles) -> Verdict:
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
    touched = None if case.since is None else files.touched(view)
    records, findings = compare(shape, files.expected(view), files.found(view), files.scratch, touched)
    if findings and question.doubt is not None:
        raise EpochFailed(question.doubt)
    for path in (files.expected(view), files.found(view), *([touched] if touched else [])):
        shutil.rmtree(path)
    return Verdict(records, named_once(files.faults(view.id), findings))


def named_once(faults: Sequence[Finding], findings: Sequence[Finding]) -> tuple[Finding, ...]:
    """Records that cannot be read, or not where they are, and those that differ; one that is both is named once."""
    missing = {_hashable(one.key): one for one in findings if one.kind == "missing"}
    named, both = list[Finding](), set[object]()
    for fault in faults:
        one = missing.get(_hashable(fault.key))
        named.append(fault if one is None else replace(fault, expected=one.expected))
        both |= set() if one is None else {_hashable(fault.key)}
    return (*named, *(one for one in findings if one.kind != "missing" or _hashable(one.key) not in both))


def _hashable(key: tuple[object, ...]) -> tuple[object, ...]:
    """A key with instants as the judge has them, without a zone."""
    return tuple(part.replace(tzinfo=None) if isinstance(part, datetime) else part for part in key)
