"""Join growth: does a change of a join's tables cost more when the tables are larger?

In: sizes of R. Out: seconds for each change of R, and of S, at each size. Always: a row of S has 100 matches at any size,
for S grows with R; the number of changes is the same at all sizes; every result is compared with a recomputation.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import viewkeeper as vk
from benchmarks.join_workload import prepare_join, side_steps, write_side_step
from benchmarks.options import Options
from benchmarks.pipeline_runs import forget_removed_stores, run_pipeline, start_session
from benchmarks.recompute import require_views
from benchmarks.results import spread
from benchmarks.views import V3
from benchmarks.workload import Workload, copy_store, fill_on_spark, steps, write_step

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from viewkeeper.client.database import Database

MATCHES = 100  # of a row of S
Write = Callable[["Database", Workload], None]


def measure(options: Options) -> dict[str, Any]:
    spark = start_session(options.view_managers)
    found = {str(rows): _at_size(options, rows, spark) for rows in options.sizes}
    first, last = (found[str(rows)] for rows in (min(options.sizes), max(options.sizes)))
    return {
        "changes_of_r": options.changes_per_size,
        "changes_of_s": _side_changes(options),
        "matches": MATCHES,
        "seed": options.seed,
        "view_managers": options.view_managers,
        "runs": options.runs,
        "sizes": found,
        "ratios": {
            kind: round(last[kind]["microseconds_per_change"] / first[kind]["microseconds_per_change"], 2)
            for kind in ("r", "s")
        },
    }


def _side_changes(options: Options) -> int:
    return max(1, options.changes_per_size // MATCHES)  # so that both change as many records


def _at_size(options: Options, rows: int, spark: SparkSession) -> dict[str, Any]:
    workload = Workload(rows, options.changes_per_size, options.seed, x_max=max(1, rows // MATCHES))

    def change_r(db: Database, workload: Workload) -> None:
        for step in steps(workload):
            write_step(db, step)

    def change_s(db: Database, workload: Workload) -> None:
        for step in side_steps(workload, _side_changes(options), [1] * 10):
            write_side_step(db, step)

    with tempfile.TemporaryDirectory(prefix="viewkeeper-bench-") as folder:
        source = Path(folder) / "prepared"
        prepare_join(f"embedded:{source}", workload, 0, V3, fill_on_spark(spark), changes=False)
        return {
            kind: _run(source, workload, write, options, spark) for kind, write in (("r", change_r), ("s", change_s))
        }


def _run(source: Path, workload: Workload, write: Write, options: Options, spark: SparkSession) -> dict[str, Any]:
    seconds = []
    for turn in range(options.runs + 1):
        copy = copy_store(source, source.with_name("copy"))
        url = f"embedded:{copy}"
        with vk.connect(url) as db:
            write(db, workload)
        size = options.changes_per_epoch or 10 * options.changes_per_size  # all in one epoch
        ran = run_pipeline(url, spark, view_managers=options.view_managers, changes_per_epoch=size)
        require_views(url, [V3], f"pipeline, {workload.rows} rows")
        seconds += [ran.seconds] if turn else []  # the first run warms up
        shutil.rmtree(copy)
        forget_removed_stores(spark)
    middle = spread(seconds)["median"]
    return {
        "changes": ran.changes,
        "seconds": spread(seconds),
        "microseconds_per_change": round(middle / ran.changes * 1e6, 2),
    }


def tell(figures: Mapping) -> Iterator[str]:
    yield f"a row of S has {figures['matches']} matches; microseconds for each change"
    yield f"  {'rows of R':>12} {'change of R':>12} {'change of S':>12}"
    for rows, found in figures["sizes"].items():
        r, s = (found[kind]["microseconds_per_change"] for kind in ("r", "s"))
        yield f"  {int(rows):12,} {r:12.1f} {s:12.1f}"
    yield f"  largest / smallest: {figures['ratios']['r']:.2f} for R, {figures['ratios']['s']:.2f} for S"
