"""kill -9 of Spark's Python workers in the middle of an epoch: Spark tries the task again, and nothing is lost or doubled."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import viewkeeper as vk
from tests.support.dump import dump
from tests.support.kill_lab import prepare
from viewkeeper.engine.runner import SparkRunner
from viewkeeper.engine.session import epoch_session
from viewkeeper.flow.coordinator import Coordinator

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

POINTS = (
    "unit.start",
    "unit.read",
    "task.read",
    "settle.start",
    "settle.purged",
    "settle.read",
    "settle.computed",
    "place.write.fenced",
    "place.write.before_commit",
    "place.write.committed",
    "settle.written",
    "task.applied",
)
DELTAS = ("deltas.settled", "task.deltas", "settle.written")  # what a plain log has besides, and more of
HITS = (1, 3)
CHANGES_PER_EPOCH = 60


def run_on_spark(path: Path, spark: SparkSession) -> list[tuple[int, bytes, bytes]]:
    with vk.connect(f"embedded:{path}?sync=off") as database:
        session = epoch_session(spark)
        runner = SparkRunner(database.store, lambda: session, view_managers=2, small_work=0)
        Coordinator(database.store, runner, changes_max=CHANGES_PER_EPOCH).catch_up()
        return dump(database.store)


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory, spark: SparkSession) -> dict[str, tuple[Path, list]]:
    """For each kind of log a store, and what is in it after a run without kills."""
    found = {}
    for log in ("images", "plain"):
        path = tmp_path_factory.mktemp("kills") / log
        prepare(path, 3, log)
        shutil.copytree(path, path.parent / "reference")
        found[log] = path, run_on_spark(path.parent / "reference", spark)
    return found


@pytest.mark.parametrize(("log", "point"), [("images", point) for point in POINTS] + [("plain", p) for p in DELTAS])
def test_a_killed_worker_changes_nothing(
    prepared: dict[str, tuple[Path, list]], spark: SparkSession, failpoints: Path, tmp_path: Path, log: str, point: str
) -> None:
    path, expected = prepared[log]
    for hit in HITS:
        store = tmp_path / f"store-{hit}"
        shutil.copytree(path, store)
        (failpoints / f"{point}.hits").unlink(missing_ok=True)
        (failpoints / f"{point}.armed").write_text(str(hit))
        assert run_on_spark(store, spark) == expected
        assert (failpoints / f"{point}.fired").exists(), f"{point} was never hit {hit} times"
        (failpoints / f"{point}.fired").unlink()
