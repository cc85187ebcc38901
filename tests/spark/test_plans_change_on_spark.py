"""Views are created, dropped and optimized while every epoch is a Spark job: no other view pauses."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import viewkeeper as vk
from tests.support import tiers
from tests.support.live_views import LIMITS, LiveViews
from viewkeeper.coordinator.coordinator import Coordinator
from viewkeeper.engine.lazy_session import LazySession
from viewkeeper.engine.loop import EpochLoop
from viewkeeper.engine.runner import SparkRunner
from viewkeeper.settings import EngineSettings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

REPLAY = "VIEWKEEPER_SEED={seed} make test-deep ARGS='tests/spark/test_plans_change_on_spark.py -n 0'"


@pytest.mark.deep
def test_views_come_and_go_on_spark_and_the_others_do_not_pause(tmp_path: Path, spark: SparkSession) -> None:
    print(f"the same again: {REPLAY.format(seed=tiers.seed())}")
    with vk.connect(f"embedded:{tmp_path / 'store'}?sync=off") as db:
        session = LazySession(spark, view_managers=2)
        runner = SparkRunner(db.store, session, view_managers=2, settings=EngineSettings(small_work_max=0))
        coordinator = Coordinator(db.store, runner, limits=LIMITS)
        running = EpochLoop(coordinator, db.store)
        try:
            with LiveViews(db, tmp_path, f"spark {tiers.seed()}", running.raise_failure) as live:
                shared = live.come_and_go(creates=50, optimizes=10)
        finally:
            running.stop()
        print(f"{live.samples} samples up to epoch {db.epoch}")

    assert shared >= 10
