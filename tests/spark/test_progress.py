"""How many of a job's tasks are done, told while it runs."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa

from viewkeeper.engine.runner import job_watched

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_the_tasks_of_a_job_are_counted_while_it_runs(spark: SparkSession, tmp_path: Path) -> None:
    may_end, told = tmp_path / "may-end", []

    def wait(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            while batch.column(0)[0].as_py() > 0 and not may_end.exists():
                time.sleep(0.01)
            yield batch

    def tell(done: int, tasks: int) -> None:
        told.append((done, tasks))
        if done == 1:
            may_end.touch()

    with job_watched(spark, "a name", tell, look_seconds=0.01):
        spark.range(0, 2, 1, 2).mapInArrow(wait, "id long").collect()

    assert (1, 2) in told
    assert told == sorted(told)
