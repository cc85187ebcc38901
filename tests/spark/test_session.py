"""The test session is set up as the engine expects: this interpreter, ANSI, UTC, retries."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

import viewkeeper as vk
from viewkeeper.engine import lazy_session
from viewkeeper.engine.lazy_session import LazySession

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_workers_run_the_interpreter_that_runs_the_tests(spark: SparkSession) -> None:
    def describe(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import sys

        import tests.support
        import viewkeeper

        assert viewkeeper.__version__ and tests.support
        for _ in batches:
            yield pa.RecordBatch.from_pydict({"python": [sys.executable]})

    rows = spark.range(4, numPartitions=2).mapInArrow(describe, "python string").collect()

    assert {row.python for row in rows} == {sys.executable}


def test_workers_begin_with_what_tasks_need_and_were_forked_off_a_process_without_threads(spark: SparkSession) -> None:
    def describe(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import os
        import sys
        from pathlib import Path

        known = {"viewkeeper.engine.jobs", "duckdb", "pandas"} <= sys.modules.keys()
        tasks = Path(f"/proc/{os.getppid()}/task")
        for _ in batches:
            yield pa.RecordBatch.from_pydict(
                {"known": [known], "threads": [len(list(tasks.iterdir())) if tasks.exists() else 1]}
            )

    rows = spark.range(4, numPartitions=2).mapInArrow(describe, "known boolean, threads long").collect()

    assert {(row.known, row.threads) for row in rows} == {(True, 1)}


def test_a_failed_task_is_tried_again(spark: SparkSession, tmp_path_factory) -> None:
    witness = tmp_path_factory.mktemp("retry") / "failed-once"

    def fail_once(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        if not witness.exists():
            witness.touch()
            raise RuntimeError("the first attempt fails")
        yield from batches

    frame = spark.range(3, numPartitions=1).mapInArrow(fail_once, "id long")

    assert sorted(row.id for row in frame.collect()) == [0, 1, 2]


def test_sql_is_ansi_and_the_time_zone_is_utc(spark: SparkSession) -> None:
    assert spark.conf.get("spark.sql.ansi.enabled") == "true"
    assert spark.conf.get("spark.sql.session.timeZone") == "UTC"


def test_a_session_that_nobody_waits_for_has_run_a_job_before_it_counts_as_there(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lazy_session, "default_session", lambda managers: spark)
    tracker = spark.sparkContext.statusTracker()

    waited_for = LazySession(None, view_managers=2)
    before = len(tracker.getJobIdsForGroup(None))
    waited_for.get()
    assert len(tracker.getJobIdsForGroup(None)) == before

    session = LazySession(None, view_managers=2)
    session.begin()
    while not session.is_ready:
        time.sleep(0.01)
    assert session.get() is spark
    assert len(tracker.getJobIdsForGroup(None)) == before + 1


def test_workers_are_tried_once_and_must_have_the_same_version(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    jobs = spark.sparkContext.statusTracker()
    monkeypatch.setattr(lazy_session, "_tried", set())
    with monkeypatch.context() as later:
        later.setattr(lazy_session, "VERSION", "9.9")
        with pytest.raises(vk.SparkUnfit, match="has viewkeeper .*, and this process 9.9"):
            lazy_session.require_fit(spark)
    lazy_session.require_fit(spark)
    before = len(jobs.getJobIdsForGroup(None))
    lazy_session.require_fit(spark)
    assert len(jobs.getJobIdsForGroup(None)) == before
