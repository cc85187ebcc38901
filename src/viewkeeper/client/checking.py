"""Checking: every view against its recomputation by Spark SQL, as of the committed epoch.

In: a database and the names of views. Out: a report. Always: view records and base rows are those of one epoch, while
writes and the pipeline go on; Spark SQL on the view's original text is the judge.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import pyarrow as pa

from viewkeeper.check.compare import compare
from viewkeeper.check.questions import names_of_keys, question_for
from viewkeeper.check.report import CheckReport, Finding
from viewkeeper.engine.recompute import SparkRecompute
from viewkeeper.engine.session import default_session, epoch_session
from viewkeeper.errors import EpochFailed, PositionLost
from viewkeeper.model.schema import Column
from viewkeeper.plan.physical import Shown

if TYPE_CHECKING:
    from viewkeeper.client.database import Database
    from viewkeeper.engine.session import SparkSession

_ATTEMPTS_MAX = 3


def check_views(database: Database, names: Sequence[str] | None, spark: SparkSession | None) -> CheckReport:
    """The report on the named views, or on all that are filled."""
    catalog = database.catalog()
    for name in names or ():
        catalog.view(name)
    session = spark or default_session(view_managers=2)
    for attempt in range(1, _ATTEMPTS_MAX + 1):
        try:
            return _check_once(database, names, session)
        except PositionLost:  # the log was truncated under a long check: judge a later epoch
            if attempt == _ATTEMPTS_MAX:
                raise
    raise AssertionError


def _check_once(database: Database, names: Sequence[str] | None, spark: SparkSession) -> CheckReport:
    catalog = database.catalog()
    findings: list[Finding] = []
    with database.snapshot() as snapshot:
        filled = snapshot.horizon.filled
        chosen = (
            [catalog.view(name) for name in names] if names else [v for v in catalog.views if v.node.table in filled]
        )
        recompute = SparkRecompute(database.url, epoch_session(spark))
        records = 0
        for definition in chosen:
            table = catalog.table_by_id(definition.source)
            question = question_for(definition, table)
            try:
                answer = recompute.run(question, table, snapshot.horizon.positions)
            except EpochFailed as error:
                raise EpochFailed(
                    f"view {definition.name} cannot be judged: {error.fact}",
                    "a row on which the view's expression fails is set aside by the view and stops Spark; "
                    "name the other views to check them",
                ) from error
            found = snapshot.view(definition.name).keys_and_values()
            keys = names_of_keys(definition)
            values = [f"__value_{i}" for i in range(len(definition.shown))]
            columns = [*definition.node.key, *(item.column for item in definition.shown)]
            expected = _fit(answer, [*keys, *values], columns)
            findings += _named(compare(definition.name, keys, values, expected, found), definition.shown)
            records += len(expected)
    return CheckReport(not findings, snapshot.epoch, tuple(v.name for v in chosen), records, tuple(findings))


def _fit(answer: pa.Table, names: Sequence[str], columns: Sequence[Column]) -> pa.Table:
    arrays = []
    for i, column in enumerate(columns):
        array = answer.column(i)
        if pa.types.is_timestamp(array.type) and array.type.tz:
            array = array.cast(pa.timestamp("us"))
        arrays.append(array.cast(column.type.arrow))
    return pa.table(arrays, names=list(names))


def _named(findings: Sequence[Finding], shown: Sequence[Shown]) -> list[Finding]:
    names = {f"__value_{i}": item.column.name for i, item in enumerate(shown)}

    def rename(side: dict[str, object] | None) -> dict[str, object] | None:
        return None if side is None else {names[name]: value for name, value in side.items()}

    return [Finding(f.view, f.key, f.kind, rename(f.expected), rename(f.found)) for f in findings]
