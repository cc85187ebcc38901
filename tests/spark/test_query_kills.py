"""The streaming query that carries epochs: what it shows of them, and what follows when somebody else ends it."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import viewkeeper as vk
from viewkeeper.events import Committed, Event, Where

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

SECONDS_MAX = 120  # a bound for a broken run, not a measure
ASKED = Where("spark", "asked for")


def wait_until(is_there: Callable[[], object]) -> object:
    until = time.monotonic() + SECONDS_MAX
    while not (found := is_there()):
        assert time.monotonic() < until
        time.sleep(0.02)
    return found


@pytest.fixture
def db(tmp_path: Path) -> Iterator[vk.Database]:
    with vk.connect(f"embedded:{tmp_path / 's'}?sync=off") as db:
        db.execute("CREATE TABLE t (k INT PRIMARY KEY)")
        db.execute("CREATE MATERIALIZED VIEW n AS SELECT COUNT(*) AS n FROM t")
        yield db


def query_of(spark: SparkSession, db: vk.Database) -> StreamingQuery | None:
    return next((query for query in spark.streams.active if query.name == f"viewkeeper {db.url}"), None)


def descriptions(spark: SparkSession) -> list[str]:
    """Of all jobs so far, as Spark's UI shows them."""
    jobs = spark.sparkContext._jsc.sc().statusStore().jobsList(None)
    found = [jobs.apply(number).description() for number in range(jobs.size())]
    return [one.get() for one in found if one.isDefined()]


def test_another_query_follows_one_that_was_ended(db: vk.Database, spark: SparkSession) -> None:
    with db.pipeline(spark=spark, engine="spark") as pipeline:
        pipeline.start()
        query = wait_until(lambda: query_of(spark, db))
        query.stop()
        pipeline.wait_for(db.table("t").put(1, {}), timeout=SECONDS_MAX)
        assert db.view("n").get() == {"n": 1}
        assert query_of(spark, db).id != query.id
        pipeline.raise_failure()
    assert query_of(spark, db) is None


def test_offsets_of_the_query_are_positions_of_the_log_and_jobs_have_the_names_of_epochs(
    db: vk.Database, spark: SparkSession
) -> None:
    events: list[Event] = []
    with db.pipeline(spark=spark, engine="spark", events=events.append) as pipeline:
        db.table("t").put(0, {})
        (first,) = pipeline.run_available()
        assert query_of(spark, db) is None
        pipeline.start()
        query = wait_until(lambda: query_of(spark, db))
        ends = []
        for number in range(1, 4):
            pipeline.wait_for(db.table("t").put(number, {}), timeout=SECONDS_MAX)
            ends.append(dict(db.store.read_epoch_record().positions))
            wait_until(lambda: query.lastProgress and json.loads(end_of(query))["positions"] == ends[-1])
        assert db.status().where == ASKED
    done = [event for event in events if isinstance(event, Committed)]

    assert first == done[0] and {event.where for event in done} == {ASKED}
    assert [event.changes for event in done] == [1] * 4
    names = descriptions(spark)
    for event in done:
        assert any(name.startswith(f"epoch {event.epoch}: 1 change") for name in names)
    assert spark.sparkContext.getLocalProperty("spark.job.description") is None


def end_of(query: StreamingQuery) -> str:
    (source,) = query.lastProgress["sources"]
    return source["endOffset"] if isinstance(source["endOffset"], str) else json.dumps(source["endOffset"])
