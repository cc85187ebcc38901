"""TPC-H: ten of its queries as views, refreshed ten times, against a recomputation of all ten by Spark.

In: a scale. Out: seconds of each refresh and of each recomputation, and their ratio. Always: a refresh is 0.1 % new orders
with their lineitems, as many old ones deleted and three customers changed; refresh and recomputation take turns on one warm
session, the second of them first in every other turn. The recomputation reads each base table once, keeps it in memory
for all ten queries and only computes their answers, it writes nothing. In the end the views equal its answers, and DuckDB's.
"""

from __future__ import annotations

import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

import viewkeeper as vk
from benchmarks.options import Options
from benchmarks.pipeline_runs import start_session, take_turns
from benchmarks.recompute import WrongResult
from benchmarks.results import spread
from benchmarks.spark_base import base_frame
from benchmarks.workload import fill_on_spark
from tests.support.tpch import TABLES, TpchModel, create_tables, generate, records
from tests.support.tpch_queries import QUERIES

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from viewkeeper.client.database import Database

KEPT = (1, 3, 4, 5, 6, 10, 12, 14, 18, 19)
SHARE = 0.001  # of the orders come and go with a refresh
_WARM_UPS = 1


class Recomputation:
    """All queries by Spark SQL over all base rows."""

    def __init__(self, db: Database, spark: SparkSession) -> None:
        self._db, self._spark = db, spark
        self.answers: dict[int, pa.Table] = {}

    def run(self) -> None:
        frames = []
        for name in TABLES:
            frame = base_frame(self._spark, self._db, name).cache()
            frame.createOrReplaceTempView(name)
            frames.append(frame)
        self.answers = {query: self._spark.sql(QUERIES[query]).toArrow() for query in KEPT}
        for frame in frames:
            frame.unpersist()


def measure(options: Options) -> dict[str, Any]:
    spark = start_session(options.view_managers)
    seconds: dict[str, list[float]] = {"refresh": [], "recompute": []}
    with tempfile.TemporaryDirectory(prefix="viewkeeper-bench-") as folder:
        model = TpchModel(generate(Path(folder) / "data", options.scale), options.seed)
        with vk.connect(f"embedded:{Path(folder) / 'store'}") as db:
            fill_seconds = _fill(db, model, spark)
            recomputation = Recomputation(db, spark)
            with db.pipeline(spark=spark, view_managers=options.view_managers) as pipeline:
                for turn in range(_WARM_UPS + options.refreshes):
                    changes = model.refresh(db, SHARE)
                    took = take_turns(pipeline.run_available, recomputation.run, refresh_first=turn % 2 == 0)
                    for system in seconds:
                        seconds[system] += [took[system]] if turn >= _WARM_UPS else []
            _verify(db, model, recomputation)
    ours, theirs = spread(seconds["refresh"]), spread(seconds["recompute"])
    return {
        "scale": options.scale,
        "queries": list(KEPT),
        "refreshes": options.refreshes,
        "changes_of_last_refresh": changes,
        "seed": options.seed,
        "view_managers": options.view_managers,
        "fill_seconds": round(fill_seconds, 2),
        "refresh_seconds": ours,
        "recompute_seconds": theirs,
        "ratios": [round(theirs["runs"][i] / ours["runs"][i], 2) for i in range(options.refreshes)],
        "ratio": round(theirs["median"] / ours["median"], 2),
    }


def _fill(db: Database, model: TpchModel, spark: SparkSession) -> float:
    create_tables(db)
    model.load(db)
    for query in KEPT:
        db.execute(f"CREATE MATERIALIZED VIEW q{query} AS {QUERIES[query]}")
    began = time.perf_counter()
    fill_on_spark(spark)(db)
    return time.perf_counter() - began


def _verify(db: Database, model: TpchModel, recomputation: Recomputation) -> None:
    for query in KEPT:
        kept, answer = records(db, f"q{query}"), recomputation.answers[query]
        by_spark = Counter(zip(*(column.to_pylist() for column in answer.columns), strict=True))
        if kept != by_spark:
            raise WrongResult(f"query {query}: the view and Spark's answer differ")
        if kept != model.answer(query):
            raise WrongResult(f"query {query}: the view and DuckDB's answer differ")


def tell(figures: Mapping) -> Iterator[str]:
    yield (
        f"scale {figures['scale']}, {len(figures['queries'])} views, filled in {figures['fill_seconds']:.1f} s; "
        f"{figures['refreshes']} refreshes of about {figures['changes_of_last_refresh']:,} changes"
    )
    yield f"  pipeline    {figures['refresh_seconds']['median']:8.3f} s for each refresh"
    yield f"  recompute   {figures['recompute_seconds']['median']:8.3f} s   {figures['ratio']:.1f}x"
    yield f"  ratio of each refresh: {', '.join(f'{ratio:.1f}' for ratio in figures['ratios'])}"
