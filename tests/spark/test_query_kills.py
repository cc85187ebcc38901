"""The streaming query is killed for real: views are kept fresh, and another query is started."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import viewkeeper as vk

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SECONDS_MAX = 120  # a bound for a broken run, not a measure
RUNNER = b"python_streaming_source_runner"


def wait_until(is_there: Callable[[], object]) -> None:
    until = time.monotonic() + SECONDS_MAX
    while not is_there():
        assert time.monotonic() < until
        time.sleep(0.02)


def readers_of(java: int) -> list[int]:
    """The Python processes of a JVM in which sources of streaming queries look for offsets."""
    tasks = Path(f"/proc/{java}/task").glob("*/children")
    children = [int(child) for task in tasks for child in task.read_text(encoding="ascii").split()]
    return [child for child in children if RUNNER in Path(f"/proc/{child}/cmdline").read_bytes()]


def test_views_stay_fresh_when_the_query_dies_and_another_one_follows(tmp_path: Path, spark: SparkSession) -> None:
    java = int(spark._jvm.java.lang.ProcessHandle.current().pid())
    with vk.connect(f"embedded:{tmp_path / 's'}?sync=off") as db:
        db.execute("CREATE TABLE t (k INT PRIMARY KEY)")
        db.execute("CREATE MATERIALIZED VIEW n AS SELECT COUNT(*) AS n FROM t")
        with db.pipeline(spark=spark) as pipeline:
            pipeline.start()
            loop = pipeline._loop
            wait_until(lambda: loop._query is not None and readers_of(java))
            query = loop._query
            for reader in readers_of(java):
                os.kill(reader, signal.SIGKILL)
            wait_until(lambda: query.exception() is not None)
            pipeline.wait_for(db.table("t").put(1, {}), timeout=SECONDS_MAX)
            assert db.view("n").get() == {"n": 1}
            wait_until(lambda: loop._query is not query)
            pipeline.wait_for(db.table("t").put(2, {}), timeout=SECONDS_MAX)
            pipeline.raise_failure()
        assert db.view("n").get() == {"n": 2}
