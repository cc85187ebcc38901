"""A Spark session outlives stores: its workers work on the store that is there, whatever stood under the path before."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import viewkeeper as vk

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROWS = 200_000


def make(path: Path, rows: int) -> vk.Database:
    db = vk.connect(f"embedded:{path}?sync=off")
    db.execute("CREATE TABLE t (k INT PRIMARY KEY, v INT)")
    db.execute("CREATE MATERIALIZED VIEW w AS SELECT v, COUNT(*) AS n, SUM(k) AS s FROM t GROUP BY v")
    db.table("t").put_many({"k": i, "v": i % 2} for i in range(rows))
    return db


def expected(rows: int) -> list[dict]:
    return [{"v": v, "n": len(range(v, rows, 2)), "s": sum(range(v, rows, 2))} for v in (0, 1)]


def refreshed(db: vk.Database, spark: SparkSession) -> list[dict]:
    with db.pipeline(view_managers=2, spark=spark) as pipeline:
        pipeline.run_available()
    return list(db.view("w").scan())


@pytest.mark.deep
def test_stores_come_and_go_under_one_path_while_the_session_lives(tmp_path: Path, spark: SparkSession) -> None:
    path = tmp_path / "s"
    with make(path, ROWS) as first:
        assert refreshed(first, spark) == expected(ROWS)
        first.backup(tmp_path / "b")
    shutil.rmtree(path)
    with make(path, ROWS // 2 + 30_000) as second:  # made anew
        assert refreshed(second, spark) == expected(ROWS // 2 + 30_000)
        assert second.check(spark=spark).ok
    path.rename(tmp_path / "aside")
    with vk.restore(tmp_path / "b", f"embedded:{path}") as third:  # restored; the one before was moved away
        assert refreshed(third, spark) == expected(ROWS)
        third.table("t").put_many({"k": i, "v": i % 2} for i in range(ROWS, 2 * ROWS))
        assert refreshed(third, spark) == expected(2 * ROWS)


def test_a_pipeline_whose_store_is_replaced_stops_and_the_new_store_stays_as_it_is(
    tmp_path: Path, spark: SparkSession
) -> None:
    path = tmp_path / "s"
    old = make(path, 100)
    pipeline = old.pipeline(view_managers=2, spark=spark)
    pipeline.start()
    pipeline.wait_for(old.table("t").put(100, {"v": 0}), timeout=120)
    path.rename(tmp_path / "aside")
    with make(path, 10) as new:
        with pytest.raises(vk.StoreReplaced):
            while True:
                pipeline.raise_failure()
        with pytest.raises(vk.StoreReplaced):
            old.table("t").put(101, {"v": 0})
        with pytest.raises(vk.StoreReplaced):
            pipeline.close()
        old.close()
        assert refreshed(new, spark) == expected(10)
