"""Pipeline runs: the product at work, timed.

In: a store's URL and a warm Spark session. Out: seconds, CPU seconds, epochs. Always: the pipeline is the product's own,
with all the syncs of R10; workers can import this package, and let go of stores that were removed when they are told.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa

import viewkeeper as vk
from benchmarks.processes import CpuSeconds, cpu_seconds
from benchmarks.results import ROOT
from viewkeeper.engine.spark_session import default_session
from viewkeeper.stores.open import close_replaced

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass(frozen=True, slots=True)
class PipelineRun:
    """`seconds`: from the first read of the log to the last commit; `wall_seconds`: the whole call, with tidying."""

    seconds: float
    wall_seconds: float
    cpu: CpuSeconds
    epochs: int
    changes: int


def run_pipeline(
    url: str, spark: SparkSession, *, view_managers: int, changes_per_epoch: int | None = None
) -> PipelineRun:
    """`pipeline.run_available()` over all changes that wait in the store."""
    with vk.connect(url) as db:
        with db.pipeline(spark=spark, view_managers=view_managers, changes_per_epoch=changes_per_epoch) as pipeline:
            cpu, began = cpu_seconds(), time.perf_counter()
            done = pipeline.run_available()
            wall, cpu = time.perf_counter() - began, cpu_seconds() - cpu
    seconds, changes = sum(epoch.seconds for epoch in done), sum(epoch.changes for epoch in done)
    return PipelineRun(seconds, wall, cpu, len(done), changes)


def start_session(view_managers: int) -> SparkSession:
    """The product's own session, whose workers find this package."""
    known = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    os.environ["PYTHONPATH"] = os.pathsep.join(dict.fromkeys([*filter(None, known), str(ROOT / "src"), str(ROOT)]))
    return default_session(view_managers)


def forget_removed_stores(spark: SparkSession) -> None:
    """Have the workers close stores that were removed: an open one holds 3 TiB of addresses, and disk space."""
    slots = spark.sparkContext.defaultParallelism
    spark.range(0, slots, 1, slots).mapInArrow(_close_removed, "id bigint").collect()


def _close_removed(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    close_replaced()
    yield from batches


def take_turns(
    refresh: Callable[[], object], recompute: Callable[[], object], *, refresh_first: bool
) -> dict[str, float]:
    """Seconds of a refresh and of a recomputation, by their names; who is first is the caller's choice."""
    systems = [("refresh", refresh), ("recompute", recompute)]
    took = {}
    for name, run in systems if refresh_first else systems[::-1]:
        began = time.perf_counter()
        run()
        took[name] = time.perf_counter() - began
    return took
