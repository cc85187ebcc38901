"""The streaming query is ended by somebody else: views are kept fresh, and another query is started."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import viewkeeper as vk

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SECONDS_MAX = 120  # a bound for a broken run, not a measure


def wait_until(is_there: Callable[[], object]) -> None:
    until = time.monotonic() + SECONDS_MAX
    while not is_there():
        assert time.monotonic() < until
        time.sleep(0.02)


def test_views_stay_fresh_when_the_query_ends_and_another_one_follows(tmp_path: Path, spark: SparkSession) -> None:
    with vk.connect(f"embedded:{tmp_path / 's'}?sync=off") as db:
        db.execute("CREATE TABLE t (k INT PRIMARY KEY)")
        db.execute("CREATE MATERIALIZED VIEW n AS SELECT COUNT(*) AS n FROM t")
        with db.pipeline(spark=spark) as pipeline:
            pipeline.start()
            loop = pipeline._loop
            wait_until(lambda: loop._query is not None)
            query = loop._query
            query.stop()
            pipeline.wait_for(db.table("t").put(1, {}), timeout=SECONDS_MAX)
            assert db.view("n").get() == {"n": 1}
            wait_until(lambda: loop._query is not query)
            pipeline.raise_failure()
            assert loop._query.isActive
