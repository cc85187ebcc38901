"""kill -9 of Spark's Python workers in the middle of an epoch: Spark tries the task again, and nothing is lost or doubled."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import viewkeeper as vk
from tests.support import tiers
from tests.support.dump import dump
from tests.support.kill_lab import prepare
from viewkeeper.coordinator.coordinator import Coordinator
from viewkeeper.engine.lazy_session import LazySession
from viewkeeper.engine.runner import SparkRunner
from viewkeeper.engine.spark_session import epoch_session
from viewkeeper.settings import EngineSettings, EpochLimits

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

POINTS = (
    "split.start",
    "split.read",
    "task.read",
    "apply.start",
    "apply.read",
    "apply.computed",
    "partition.write.fenced",
    "partition.write.before_commit",
    "partition.write.committed",
    "apply.written",
    "task.applied",
)
# What a plain log has besides, and what views of several levels have, and more of.
DELTAS = ("stage.applied", "task.applied", "apply.written")
LEVELS = ("stage.applied", "task.applied", "apply.computed")
HITS = (1, 3)
CHANGES_PER_EPOCH = 60


def run_on_spark(path: Path, spark: SparkSession) -> list[tuple[int, bytes, bytes]]:
    with vk.connect(f"embedded:{path}?sync=off") as database:
        session = epoch_session(spark)
        runner = SparkRunner(
            database.store,
            LazySession(session, view_managers=2),
            view_managers=2,
            settings=EngineSettings(small_work_max=0),
        )
        Coordinator(database.store, runner, limits=EpochLimits(changes=CHANGES_PER_EPOCH)).catch_up()
        return dump(database.store)


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory, spark: SparkSession) -> dict[str, tuple[Path, list]]:
    """For each kind of log and of views a store, and what is in it after a run without kills."""
    found = {}
    for world, (log, views) in WORLDS.items():
        path = tmp_path_factory.mktemp("kills") / world
        prepare(path, 3, log, views)
        shutil.copytree(path, path.parent / "reference")
        found[world] = path, run_on_spark(path.parent / "reference", spark)
    return found


WORLDS = {"images": ("images", "single"), "plain": ("plain", "single"), "joined": ("images", "joined")}
CASES = [*(("images", p) for p in POINTS), *(("plain", p) for p in DELTAS), *(("joined", p) for p in LEVELS)]


def hits_of(case: tuple[str, str]) -> tuple[int, ...]:
    """At which time that the point is reached; one of two if not deep, by turns."""
    return HITS if tiers.is_deep() else HITS[CASES.index(case) % 2 :][:1]


@pytest.mark.parametrize(("world", "point"), CASES)
def test_a_killed_worker_changes_nothing(
    prepared: dict[str, tuple[Path, list]],
    spark: SparkSession,
    failpoints: Path,
    tmp_path: Path,
    world: str,
    point: str,
) -> None:
    path, expected = prepared[world]
    for hit in hits_of((world, point)):
        store = tmp_path / f"store-{hit}"
        shutil.copytree(path, store)
        (failpoints / f"{point}.hits").unlink(missing_ok=True)
        (failpoints / f"{point}.armed").write_text(str(hit))
        assert run_on_spark(store, spark) == expected
        assert (failpoints / f"{point}.fired").exists(), f"{point} was never hit {hit} times"
        (failpoints / f"{point}.fired").unlink()
