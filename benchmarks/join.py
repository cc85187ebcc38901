"""Join: how fast is the pipeline over V3, a join of which both tables change, against the papers' per-operation algorithm?

In: sizes. Out: seconds of every system, and ratios. Always: as in `single_table`: the systems take turns on the same log, the
pipeline on copies of the store, in one epoch, with all syncs of R10, after a run that only warms up; every result is
compared with a recomputation.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks import per_operation
from benchmarks.join_program import JoinProgram
from benchmarks.join_workload import first_side_rows, prepare_join
from benchmarks.options import Options
from benchmarks.pipeline_runs import PipelineRun, forget_removed_stores, run_pipeline, start_session
from benchmarks.recompute import WrongResult, base_rows, require_equal, require_views
from benchmarks.results import spread
from benchmarks.views import V3
from benchmarks.workload import Workload, copy_store, fill_on_spark, first_rows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

VARIANTS = ("each", "batched")
_CHANGES_PER_SIDE_CHANGE = 100  # of R for each of S


def measure(options: Options) -> dict[str, Any]:
    spark, workload = start_session(options.view_managers), options.workload()
    side_changes = options.changes // _CHANGES_PER_SIDE_CHANGE
    ours: list[PipelineRun] = []
    theirs: dict[str, list[per_operation.Run]] = {} if options.pipeline_alone else {variant: [] for variant in VARIANTS}
    with tempfile.TemporaryDirectory(prefix="viewkeeper-bench-") as folder:
        source = Path(folder) / "prepared"
        waiting = prepare_join(f"embedded:{source}", workload, side_changes, V3, fill_on_spark(spark))
        for _ in range(options.runs):
            _run_pipeline(source, waiting, options, spark)
            ours.append(_run_pipeline(source, waiting, options, spark))
            _run_others(source, workload, theirs)
    seconds = spread([ran.seconds for ran in ours])
    return {
        "rows": options.rows,
        "changes": options.changes,
        "side_rows": workload.x_max,
        "side_changes": side_changes,
        "seed": options.seed,
        "view_managers": options.view_managers,
        "runs": options.runs,
        "epochs": ours[0].epochs,
        "pipeline_seconds": seconds,
        "pipeline_cpu_seconds": spread([ran.cpu.total for ran in ours]),
        "pipeline_python_cpu_seconds": spread([ran.cpu.python for ran in ours]),
        **{f"per_operation_{name}_seconds": spread([ran.seconds for ran in runs]) for name, runs in theirs.items()},
        **{f"per_operation_{name}_cpu_seconds": spread([r.cpu_seconds for r in runs]) for name, runs in theirs.items()},
        **{
            f"ratio_{name}": round(spread([ran.seconds for ran in runs])["median"] / seconds["median"], 2)
            for name, runs in theirs.items()
        },
    }


def _run_pipeline(source: Path, waiting: int, options: Options, spark: SparkSession) -> PipelineRun:
    copy = copy_store(source, source.with_name("pipeline"))
    url, managers = f"embedded:{copy}", options.view_managers
    size = options.changes_per_epoch or waiting  # all in one epoch
    ran = run_pipeline(url, spark, view_managers=managers, changes_per_epoch=size)
    require_views(url, [V3], "pipeline, V3")
    if ran.changes != waiting:
        raise WrongResult(f"pipeline: {ran.changes} changes were committed, {waiting} written")
    shutil.rmtree(copy)
    forget_removed_stores(spark)
    return ran


def _run_others(source: Path, workload: Workload, runs: dict[str, list[per_operation.Run]]) -> None:
    """The papers' algorithm on the prepared store itself: it is only read."""
    url = f"embedded:{source}"
    if not runs:
        return
    first, base = {"r": first_rows(workload), "s": first_side_rows(workload)}, base_rows(url)
    for variant in runs:
        target = source.with_name(f"per-operation-{variant}")
        ran = per_operation.run(url, target, first, JoinProgram, variant)
        require_equal(base, V3, ran.records, f"per operation, {variant}, V3")
        runs[variant].append(ran)
        shutil.rmtree(target)


def tell(figures: Mapping) -> Iterator[str]:
    changes = figures["changes"] + figures["side_changes"]
    yield (
        f"{figures['rows']:,} rows joined with {figures['side_rows']:,}, {figures['changes']:,} changes and "
        f"{figures['side_changes']:,} of the other table, {figures['view_managers']} managers"
    )
    ours = figures["pipeline_seconds"]["median"]
    yield f"  {'pipeline':24} {ours:9.2f} s {changes / ours:11,.0f} changes/s"
    for variant in (name for name in VARIANTS if f"ratio_{name}" in figures):
        seconds = figures[f"per_operation_{variant}_seconds"]["median"]
        told = f"{seconds:9.2f} s {changes / seconds:11,.0f} changes/s {figures[f'ratio_{variant}']:6.1f}x"
        yield f"  {'per operation, ' + variant:24} {told}"
