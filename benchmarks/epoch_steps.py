"""Epoch steps: where does the time of an epoch go, in one process and on Spark?

In: sizes and view sets. Out: seconds of each step, own time without the steps inside it, and the same in the words of a
profile: log read, decode, expressions, grouping, encode, shuffle, store read, store write, sync, other. Always: CPU seconds
stand beside wall seconds, because on a shared machine only they can be compared.

On Spark the steps of all tasks are added up. What the slowest read task and the slowest apply task do not explain of a
job's wall time is Spark's: planning, starting tasks, the shuffle itself, moving bytes between JVM and Python. Its CPU
seconds are the JVM's.
"""

from __future__ import annotations

import json
import shutil
import tempfile
import uuid
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING
from unittest import mock

import viewkeeper as vk
from benchmarks.clock import JOB_STEPS, SPARK, SPARK_STEPS, STEPS, Clock, clocked, in_words
from benchmarks.options import Options
from benchmarks.views import VIEW_SETS
from benchmarks.workload import HereRunner, copy_store, fill_here, prepare
from viewkeeper.coordinator.coordinator import Coordinator
from viewkeeper.engine.jobs import ExecutorTasks
from viewkeeper.errors import InputError
from viewkeeper.settings import EngineSettings, EpochLimits

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession

_JOB = "Spark job"


@dataclass(frozen=True, slots=True)
class Profile:
    """What one run took, and its clock."""

    seconds: float
    clock: Clock


@dataclass(frozen=True, slots=True)
class TimedTasks(ExecutorTasks):
    """The product's tasks, which leave their steps as files in `folder`."""

    folder: str = ""

    def read(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield from self._timed("read", ExecutorTasks.read(self, batches))

    def apply(self, stage: int, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield from self._timed("apply", ExecutorTasks.apply(self, stage, batches))

    def _timed(self, kind: str, blocks: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        with clocked(STEPS | SPARK_STEPS) as clock:
            yield from blocks
        told = {"kind": kind, "wall": clock.wall, "cpu": clock.cpu}
        (Path(self.folder) / f"{uuid.uuid4().hex}.json").write_text(json.dumps(told))


def profile_here(store: Path, *, changes_per_epoch: int) -> Profile:
    """All waiting changes by one process."""
    with vk.connect(f"embedded:{store}") as db, clocked() as clock:
        coordinator = Coordinator(db.store, HereRunner(db.store), limits=EpochLimits(changes=changes_per_epoch))
        done = coordinator.catch_up()
    return Profile(sum(epoch.seconds for epoch in done), clock)


def profile_on_spark(store: Path, spark: SparkSession, options: Options) -> Profile:
    """All waiting changes by Spark jobs, whatever their size."""
    from benchmarks.processes import cpu_seconds
    from viewkeeper.engine import jobs

    with tempfile.TemporaryDirectory(prefix="viewkeeper-steps-") as folder, vk.connect(f"embedded:{store}") as db:
        timed = partial(TimedTasks, folder=folder)
        size = options.changes_per_epoch
        with db.pipeline(
            spark=spark,
            view_managers=options.view_managers,
            changes_per_epoch=size,
            settings=EngineSettings(small_work_max=0),
        ) as pipeline:
            with mock.patch.object(jobs, "ExecutorTasks", timed), clocked(STEPS | JOB_STEPS) as clock:
                before = cpu_seconds()
                done = pipeline.run_available()
                jvm = (cpu_seconds() - before).jvm
        tasks = [json.loads(file.read_text()) for file in Path(folder).glob("*.json")]
    _add_tasks(clock, tasks, jvm)
    return Profile(sum(epoch.seconds for epoch in done), clock)


def measure(options: Options) -> dict[str, object]:
    from benchmarks.pipeline_runs import forget_removed_stores, start_session

    spark = start_session(options.view_managers)
    cases: dict[str, dict] = {}
    skipped: dict[str, str] = {}
    with tempfile.TemporaryDirectory(prefix="viewkeeper-bench-") as folder:
        for view in options.views:
            source = Path(folder) / view
            try:
                prepare(f"embedded:{source}", options.workload(), VIEW_SETS[view], fill_here)
            except InputError as error:
                skipped[view] = str(error)
                continue
            here: list[Profile] = []
            on_spark: list[Profile] = []
            for turn in range(options.runs + 1):
                copy = copy_store(source, Path(folder) / f"{view}-{turn}-here")
                here.append(profile_here(copy, changes_per_epoch=options.changes_per_epoch or options.changes))
                on_spark.append(profile_on_spark(copy_store(source, copy.with_suffix(".spark")), spark, options))
                shutil.rmtree(copy)
                shutil.rmtree(copy.with_suffix(".spark"))
                forget_removed_stores(spark)
            cases[f"{view}, one process"] = _figures(here[1:])
            cases[f"{view}, Spark"] = _figures(on_spark[1:])
    sizes = {name: getattr(options, name) for name in ("rows", "changes", "seed", "view_managers", "runs")}
    return {**sizes, "cases": cases, "skipped": skipped}


def tell(figures: Mapping) -> Iterator[str]:
    for name, case in figures["cases"].items():
        yield f"{name}: {case['seconds']:.2f} s, {case['cpu_seconds']:.2f} s of CPU"
        for word, spent in case["profile"].items():
            yield f"  {word:12} {spent['wall']:8.3f} s wall {spent['cpu']:8.3f} s CPU"
        for word in ("did_not_run", "not_found"):
            if case[word]:
                yield f"  {word.replace('_', ' ')} where it is wrapped: {', '.join(case[word])}"
    for name, reason in figures["skipped"].items():
        yield f"{name}: not run: {reason}"


def _add_tasks(clock: Clock, tasks: list[dict], jvm_seconds: float) -> None:
    """The steps of all tasks, and in place of the jobs' own time what the slowest tasks leave of it."""
    slowest = {
        kind: max((sum(task["wall"].values()) for task in tasks if task["kind"] == kind), default=0.0)
        for kind in ("read", "apply")
    }
    for task in tasks:
        for step in task["wall"]:
            clock.add(step, task["wall"][step], task["cpu"][step])
    wall = clock.wall.pop(_JOB, 0.0)
    clock.add(SPARK, max(0.0, wall - sum(slowest.values())), jvm_seconds + clock.cpu.pop(_JOB, 0.0))


def _figures(profiles: list[Profile]) -> dict[str, object]:
    """The run that took the least CPU."""
    best = min(profiles, key=lambda profile: sum(profile.clock.cpu.values()))
    clock = best.clock
    wall, cpu = in_words(clock.wall), in_words(clock.cpu)
    return {
        "seconds": round(best.seconds, 3),
        "cpu_seconds": round(sum(clock.cpu.values()), 3),
        "profile": {word: {"wall": round(wall[word], 3), "cpu": round(cpu[word], 3)} for word in wall},
        "steps": {
            step: {"wall": round(clock.wall[step], 3), "cpu": round(clock.cpu[step], 3)} for step in sorted(clock.wall)
        },
        "did_not_run": sorted(STEPS.keys() - clock.wall.keys()),
        "not_found": clock.not_found,
    }
