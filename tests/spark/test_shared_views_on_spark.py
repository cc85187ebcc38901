"""Sets of views that share a γ or a copy, as Spark jobs: a tenth of those that run without Spark."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import viewkeeper as vk
from tests.support.shared_views import run_set
from tests.support.tiers import examples
from viewkeeper.coordinator.coordinator import Coordinator
from viewkeeper.engine.lazy_session import LazySession
from viewkeeper.engine.runner import SparkRunner
from viewkeeper.engine.spark_session import epoch_session
from viewkeeper.settings import EngineSettings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.mark.parametrize("seed", range(0, examples(8, deep=20), 10))
def test_optimized_views_hold_what_is_computed_anew(seed: int, tmp_path: Path, spark: SparkSession) -> None:
    session = LazySession(epoch_session(spark), view_managers=2)

    def keep_up(db: vk.Database) -> None:
        settings = EngineSettings(small_work_max=0, meanwhile_work=0)
        Coordinator(db.store, SparkRunner(db.store, session, view_managers=2, settings=settings)).catch_up()

    with vk.connect(f"embedded:{tmp_path / 's'}?sync=off") as db:
        run_set(db, seed, keep_up)
