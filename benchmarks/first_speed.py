"""First speed: how much faster is an epoch than the papers' per-operation algorithm, on the same log?

In: a workload. Out: seconds of both systems and their ratio. Always: the runs take turns on copies of one prepared
store; the session and its Python workers have run an epoch before; both results are compared with a recomputation; the
pipeline syncs as R10 says, as it does in the product. CPU seconds (Python and JVM together) stand beside wall seconds:
on a shared machine they show what the neighbours did not do.
"""

from __future__ import annotations

import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import viewkeeper as vk
from benchmarks import per_operation
from benchmarks.processes import CpuSeconds, cpu_seconds
from benchmarks.recompute import WrongResult, require_equal
from benchmarks.results import spread, write_result
from benchmarks.workload import Workload, copy_store, prepare
from viewkeeper.engine.session import default_session

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
    store: Path, spark: SparkSession, *, view_managers: int, changes_per_epoch: int | None = None
) -> PipelineRun:
    """`pipeline.run_available()` over all changes that wait in the store."""
    with vk.connect(f"embedded:{store}") as db:
        with db.pipeline(spark=spark, view_managers=view_managers, changes_per_epoch=changes_per_epoch) as pipeline:
            cpu, began = cpu_seconds(), time.perf_counter()
            done = pipeline.run_available()
            wall, cpu = time.perf_counter() - began, cpu_seconds() - cpu
    seconds, changes = sum(epoch.seconds for epoch in done), sum(epoch.changes for epoch in done)
    return PipelineRun(seconds, wall, cpu, len(done), changes)


def measure(
    workload: Workload, *, runs: int = 3, view_managers: int = 2, changes_per_epoch: int | None = None
) -> dict[str, object]:
    """Both systems `runs` times in turn, after a run that only warms up."""
    spark = default_session(view_managers)
    pipeline: list[PipelineRun] = []
    others: dict[str, list[per_operation.Run]] = {variant: [] for variant in per_operation.VARIANTS}
    with tempfile.TemporaryDirectory(prefix="viewkeeper-bench-") as folder:
        root = Path(folder)
        source = root / "prepared"
        prepare(source, workload, spark)
        for turn in range(runs + 1):
            copy = copy_store(source, root / f"copy-{turn}")
            ran = run_pipeline(copy, spark, view_managers=view_managers, changes_per_epoch=changes_per_epoch)
            with vk.connect(f"embedded:{copy}") as db:
                require_equal(copy, db.view("v1").to_arrow(), "pipeline")
            if ran.changes != workload.changes:
                raise WrongResult(f"pipeline: {ran.changes} changes were committed, {workload.changes} written")
            if turn:
                pipeline.append(ran)
                for variant, ran_before in others.items():
                    ran_before.append(_per_operation(source, root / f"{variant}-{turn}", variant))
    return _figures(workload, view_managers, pipeline, others)


def main(workload: Workload, *, runs: int, view_managers: int, changes_per_epoch: int | None) -> None:
    figures = measure(workload, runs=runs, view_managers=view_managers, changes_per_epoch=changes_per_epoch)
    file = write_result("first_speed", figures)
    print(f"V1, {workload.changes:,} changes, {figures['epochs']} epochs, {view_managers} managers, median of {runs}")
    print(f"  {'pipeline':24} {figures['pipeline_seconds']['median']:6.2f} s")
    for variant in per_operation.VARIANTS:
        seconds, ratio = figures[f"per_operation_{variant}_seconds"]["median"], figures[f"ratio_{variant}"]
        print(f"  {'per operation, ' + variant:24} {seconds:6.2f} s   {ratio:.1f}x")
    print(f"  {file}")


def _per_operation(source: Path, target: Path, variant: str) -> per_operation.Run:
    ran = per_operation.run(source, target, variant)
    require_equal(source, per_operation.read_records(target), f"per operation, {variant}")
    return ran


def _figures(
    workload: Workload, view_managers: int, pipeline: list[PipelineRun], others: dict[str, list[per_operation.Run]]
) -> dict[str, object]:
    ours = spread([ran.seconds for ran in pipeline])
    figures: dict[str, object] = {
        **asdict(workload),
        "changes": pipeline[0].changes,
        "view_managers": view_managers,
        "epochs": pipeline[0].epochs,
        "pipeline_seconds": ours,
        "pipeline_wall_seconds": spread([ran.wall_seconds for ran in pipeline]),
        "pipeline_cpu_seconds": spread([ran.cpu.total for ran in pipeline]),
        "pipeline_python_cpu_seconds": spread([ran.cpu.python for ran in pipeline]),
    }
    for variant, runs in others.items():
        theirs = spread([ran.seconds for ran in runs])
        figures[f"per_operation_{variant}_seconds"] = theirs
        figures[f"per_operation_{variant}_cpu_seconds"] = spread([ran.cpu_seconds for ran in runs])
        figures[f"ratio_{variant}"] = round(theirs["median"] / ours["median"], 2)
    return figures
