"""The executor laboratory: a Spark cluster in miniature whose executors are killed in the middle of an epoch.

Run as a program, because it needs a Spark of its own. In: a directory, how often Spark tries a task, and `point@hit` for each
kill; `VIEWKEEPER_LAB_SEED` is another seed of the store. Out: a JSON line for each: whether it was killed, how often
the coordinator ran an epoch again, and whether the bytes are those of the driver.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import viewkeeper as vk
from tests.support.dump import dump
from tests.support.kill_lab import HereRunner, prepare
from viewkeeper.coordinator.coordinator import Coordinator
from viewkeeper.engine.lazy_session import LazySession
from viewkeeper.engine.runner import SparkRunner
from viewkeeper.engine.spark_session import epoch_session
from viewkeeper.model.epochs import Inflight
from viewkeeper.model.work_stats import Counts
from viewkeeper.plan.physical import PhysicalPlan
from viewkeeper.settings import EngineSettings, EpochLimits

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

CLUSTER = "local-cluster[2,1,1024]"  # two executors with a core and 1 GiB each
LIMITS = EpochLimits(changes=30, rows=30)


class CountedRuns(SparkRunner):
    """Every epoch as a job; counts the runs of each."""

    runs: dict[int, int]

    def run(self, plan: PhysicalPlan, epoch: Inflight) -> Counts:
        self.runs[epoch.epoch] = self.runs.get(epoch.epoch, 0) + 1
        return super().run(plan, epoch)


def start_cluster(points: Path, tries: str) -> SparkSession:
    from pyspark.sql import SparkSession

    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    session = (
        SparkSession.builder.master(CLUSTER)
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.task.maxFailures", tries)
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.executor.memory", "512m")
        .config("spark.executorEnv.PYTHONPATH", os.environ["PYTHONPATH"])
        .config("spark.executorEnv.VIEWKEEPER_FAILPOINT_DIR", str(points))
        .config("spark.python.daemon.module", "tests.support.executor_daemon")
        .getOrCreate()
    )
    session.sparkContext.setLogLevel("OFF")
    return session


def run_on(path: Path, session: SparkSession) -> tuple[list, int]:
    """The bytes after all epochs, and how many runs of an epoch were not the first."""
    with vk.connect(f"embedded:{path}?sync=off") as db:
        starting = LazySession(epoch_session(session), view_managers=3)
        runner = CountedRuns(db.store, starting, view_managers=3, settings=EngineSettings(small_work_max=0))
        runner.runs = {}
        Coordinator(db.store, runner, limits=LIMITS).catch_up()
        return dump(db.store), sum(runner.runs.values()) - len(runner.runs)


def main(root: Path, tries: str, kills: list[str], seed: int) -> None:
    prepared, points = root / "prepared", root / "points"
    points.mkdir()
    prepare(prepared, seed, "images", "joined")
    shutil.copytree(prepared, root / "driver")
    with vk.connect(f"embedded:{root / 'driver'}?sync=off") as db:
        Coordinator(db.store, HereRunner(db.store), limits=LIMITS).catch_up()
        expected = dump(db.store)
    session = start_cluster(points, tries)
    for number, kill in enumerate(kills):
        point, hit = kill.split("@")
        store = root / f"store-{number}"
        shutil.copytree(prepared, store)
        (points / f"{point}.hits").unlink(missing_ok=True)
        (points / f"{point}.armed").write_text(hit)
        found, again = run_on(store, session)
        fired = (points / f"{point}.fired").exists()
        print(json.dumps({"kill": kill, "fired": fired, "again": again, "same": found == expected}), flush=True)
    session.stop()


@contextmanager
def without_leftovers() -> Iterator[None]:
    """Spark's workers write where PySpark is installed, and nowhere else can be named."""
    import pyspark

    folder = Path(pyspark.__file__).parent / "work"
    try:
        yield
    finally:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    with without_leftovers():
        main(Path(sys.argv[1]), sys.argv[2], sys.argv[3:], int(os.environ.get("VIEWKEEPER_LAB_SEED", "3")))
