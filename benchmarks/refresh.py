"""Refresh: after every 10,000 changes, how does the pipeline's refresh compare with a recomputation by Spark?

In: sizes. Out: seconds of each refresh and of each recomputation, and their ratio. Always: both take turns after the same
changes, on one warm session, the second of them first in every other turn; both leave the same records in LMDB, synced,
which is tested each time. The recomputation reads the base inside Spark's tasks and replaces all records in one
transaction.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import lmdb
import pyarrow as pa

import viewkeeper as vk
from benchmarks.options import Options
from benchmarks.pipeline_runs import start_session, take_turns
from benchmarks.recompute import WrongResult
from benchmarks.results import median, spread
from benchmarks.spark_base import base_frame
from benchmarks.views import V1
from benchmarks.workload import PUTS_PER_DELETE, fill_on_spark, prepare, steps, write_step
from viewkeeper.model.keybatches import encode_keys
from viewkeeper.model.rowbatches import encode_rows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from viewkeeper.client.database import Database

_WARM_UPS = 2


class Recomputation:
    """V1 by Spark SQL over all base rows, kept in an environment of its own."""

    def __init__(self, db: Database, spark: SparkSession, target: Path) -> None:
        self._db = db
        self._spark = spark
        self.records = pa.table({})
        self._environment = lmdb.open(str(target), map_size=1 << 32, sync=False, metasync=False)

    def run(self) -> None:
        base_frame(self._spark, self._db, "r").createOrReplaceTempView("r")
        computed = self._spark.sql(V1).toArrow().sort_by("x")
        node = self._db.view("v1").definition.node
        keys, _ = encode_keys(node.key, [computed["x"].combine_chunks()], len(computed))
        values = [computed[name].combine_chunks() for name in ("n", "s")]
        shown = {shown.column.name: shown.column for shown in self._db.view("v1").definition.shown}
        rows = encode_rows((shown["n"], shown["s"]), values, len(computed))
        with self._environment.begin(write=True) as transaction:
            transaction.drop(self._environment.open_db(None, transaction), delete=False)
            transaction.cursor().putmulti(zip(keys.to_pylist(), rows.to_pylist(), strict=True))
        self._environment.sync(True)
        self.records = computed

    def close(self) -> None:
        self._environment.close()


def measure(options: Options) -> dict[str, object]:
    spark = start_session(options.view_managers)
    rounds = _WARM_UPS + options.refreshes
    # twice the changes: the generator's first and second half are of one kind here, and an even number fits both
    workload = replace(options.workload(), changes=2 * rounds * options.changes_per_refresh)
    puts = options.changes_per_refresh * PUTS_PER_DELETE // (PUTS_PER_DELETE + 1)
    seconds: dict[str, list[float]] = {"refresh": [], "recompute": []}
    with tempfile.TemporaryDirectory(prefix="viewkeeper-bench-") as folder:
        url = f"embedded:{Path(folder) / 'store'}"
        prepare(url, workload, [V1], fill_on_spark(spark), changes=False)
        with vk.connect(url) as db, closing(Recomputation(db, spark, Path(folder) / "recomputed")) as recomputation:
            with db.pipeline(spark=spark, view_managers=options.view_managers) as pipeline:
                for turn, step in zip(range(rounds), steps(workload, small_rows=puts, large_rows=puts), strict=False):
                    write_step(db, step)
                    took = take_turns(pipeline.run_available, recomputation.run, refresh_first=turn % 2 == 0)
                    _require_same(db.view("v1").to_arrow().sort_by("x"), recomputation.records)
                    for system in seconds:
                        seconds[system] += [took[system]] if turn >= _WARM_UPS else []
    return {
        "rows": options.rows,
        "changes_per_refresh": options.changes_per_refresh,
        "refreshes": options.refreshes,
        "seed": options.seed,
        "view_managers": options.view_managers,
        "refresh_seconds": spread(seconds["refresh"]),
        "recompute_seconds": spread(seconds["recompute"]),
        "ratio": round(median(seconds["recompute"]) / median(seconds["refresh"]), 2),
    }


def tell(figures: Mapping) -> Iterator[str]:
    yield f"{figures['rows']:,} rows, {figures['refreshes']} refreshes of {figures['changes_per_refresh']:,} changes"
    yield f"  pipeline    {figures['refresh_seconds']['median']:8.3f} s for each refresh"
    yield f"  recompute   {figures['recompute_seconds']['median']:8.3f} s   {figures['ratio']:.1f}x"


def _require_same(ours: pa.Table, theirs: pa.Table) -> None:
    for name in ours.schema.names:
        if ours[name].cast(pa.int64()).to_pylist() != theirs[name].cast(pa.int64()).to_pylist():
            raise WrongResult(f"the refresh and the recomputation differ in {name}")
