"""On Spark too, a hot first key part is shared out among managers once an epoch has shown it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import viewkeeper as vk
from viewkeeper.coordinator.coordinator import Coordinator
from viewkeeper.engine.lazy_session import LazySession
from viewkeeper.engine.runner import SparkRunner
from viewkeeper.engine.spark_session import epoch_session
from viewkeeper.operators.program import EpochProgram
from viewkeeper.settings import Engine

if TYPE_CHECKING:
    import pytest
    from pyspark.sql import SparkSession

MANAGERS, HOT = 3, 7


def test_the_epoch_after_a_skewed_one_has_its_hot_shard_divided(
    tmp_path: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    divided, make = [], EpochProgram.of

    def of(*parts: object, **options: object) -> EpochProgram:
        divided.append(options["divided"])
        return make(*parts, **options)

    monkeypatch.setattr(EpochProgram, "of", of)
    with vk.connect(f"embedded:{tmp_path / 's'}?sync=off") as db:
        db.execute("CREATE TABLE t (a INT, b INT, y INT, PRIMARY KEY (a, b))")
        db.execute("CREATE MATERIALIZED VIEW v AS SELECT a, b, y FROM t")
        starting = LazySession(epoch_session(spark), view_managers=MANAGERS)
        runner = SparkRunner(db.store, starting, view_managers=MANAGERS, engine=Engine.SPARK)
        coordinator = Coordinator(db.store, runner)
        for epoch in range(2):
            rows = [{"a": HOT if b % 5 else b % 97, "b": b, "y": b + epoch} for b in range(2_000)]
            db.table("t").put_many(rows)
            coordinator.catch_up()
            assert sorted(db.view("v").scan(), key=lambda row: row["b"]) == rows
    assert len(divided[0]) == 0
    assert len(divided[-1]) == 1
