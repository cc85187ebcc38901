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
HITS = (1, 3)
CHANGES_PER_EPOCH = 125


def run_on_spark(path: Path, spark: SparkSession) -> list[tuple[int, bytes, bytes]]:
    with vk.connect(f"embedded:{path}?sync=off") as database:
        session = epoch_session(spark)
        runner = SparkRunner(database.store, lambda: session, view_managers=2, small_work=0)
        Coordinator(database.store, runner, changes_max=CHANGES_PER_EPOCH).catch_up()
        return dump(database.store)


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("kills") / "prepared"
    prepare(path, seed=3)
    return path


@pytest.fixture(scope="module")
def expected(prepared: Path, spark: SparkSession) -> list[tuple[int, bytes, bytes]]:
    shutil.copytree(prepared, prepared.parent / "reference")
    return run_on_spark(prepared.parent / "reference", spark)


@pytest.mark.parametrize("point", POINTS)
def test_a_killed_worker_changes_nothing(
    prepared: Path,
    expected: list[tuple[int, bytes, bytes]],
    spark: SparkSession,
    failpoints: Path,
    tmp_path: Path,
    point: str,
) -> None:
    for hit in HITS:
        store = tmp_path / f"store-{hit}"
        shutil.copytree(prepared, store)
        (failpoints / f"{point}.hits").unlink(missing_ok=True)
        (failpoints / f"{point}.armed").write_text(str(hit))
        assert run_on_spark(store, spark) == expected
        assert (failpoints / f"{point}.fired").exists(), f"{point} was never hit {hit} times"
        (failpoints / f"{point}.fired").unlink()
