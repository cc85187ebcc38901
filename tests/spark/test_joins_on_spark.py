"""Views of several levels as Spark jobs: the bytes of the driver, and what Spark SQL says of their text."""

from __future__ import annotations

import random
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import viewkeeper as vk
from tests.support.dump import dump
from tests.support.planting import chain_of, change_record, view_keys
from tests.support.running import HereRunner
from viewkeeper.coordinator.coordinator import Coordinator
from viewkeeper.engine.lazy_session import LazySession
from viewkeeper.engine.runner import SparkRunner
from viewkeeper.engine.spark_session import epoch_session
from viewkeeper.settings import EngineSettings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

VIEWS = {
    "pairs": "SELECT r.k, s.k AS sk, r.y, s.z FROM r JOIN s ON r.x = s.x",
    "kept": "SELECT r.k, s.z FROM r LEFT JOIN s ON r.x = s.x AND s.z > r.y",
    "sums": "SELECT s.z, COUNT(*) AS n, AVG(r.f) AS a FROM r FULL OUTER JOIN s USING (x) GROUP BY s.z",
    "lone": "SELECT k FROM r WHERE x NOT IN (SELECT x FROM s WHERE z > 1)",
    "both": "SELECT x FROM r INTERSECT SELECT x FROM s",
    "best": "SELECT x, n FROM (SELECT x, COUNT(*) AS n FROM r GROUP BY x) ORDER BY n DESC, x LIMIT 2",
    "over": "SELECT p.sk, COUNT(*) AS n FROM pairs p JOIN lone l ON p.k = l.k GROUP BY p.sk",
}


def make(folder: Path, *, before_images: bool) -> vk.Database:
    db = vk.connect(f"embedded:{folder}?sync=off&before_images={'on' if before_images else 'off'}")
    db.execute("CREATE TABLE r (k STRING PRIMARY KEY, x INT, y INT, f DOUBLE)")
    db.execute("CREATE TABLE s (k STRING PRIMARY KEY, x INT, z INT)")
    for name, sql in VIEWS.items():
        db.execute(f"CREATE MATERIALIZED VIEW {name} AS {sql}")
    return db


def change(db: vk.Database, seed: int) -> None:
    choose = random.Random(seed)
    for _ in range(60):
        table, column = choose.choice((("r", "y"), ("s", "z")))
        key = f"k{choose.randrange(12)}"
        if choose.random() < 0.2:
            db.table(table).delete(key)
        else:
            row = {"x": choose.choice((None, 0, 1, 2)), column: choose.choice((None, 0, 1, 2, 3))}
            db.table(table).put(key, row | ({"f": choose.random()} if table == "r" else {}))


@pytest.mark.parametrize("before_images", [True, False], ids=["before-images", "plain log"])
def test_levels_by_jobs_write_the_bytes_of_the_driver_and_check_agrees(
    tmp_path: Path, spark: SparkSession, before_images: bool
) -> None:
    session = epoch_session(spark)
    with (
        make(tmp_path / "jobs", before_images=before_images) as db,
        make(tmp_path / "driver", before_images=before_images) as other,
    ):
        for seed in range(3):
            change(db, seed)
            change(other, seed)
            runner = SparkRunner(
                db.store,
                LazySession(session, view_managers=2),
                view_managers=1 + seed,
                settings=EngineSettings(small_work_max=0),
            )
            Coordinator(db.store, runner).catch_up()
            Coordinator(other.store, HereRunner(other.store)).catch_up()
        assert dump(db.store) == dump(other.store)
        report = db.check(spark=spark)

        assert (report.ok, report.notes, report.findings) == (True, (), ())
        assert sorted(report.views) == sorted(VIEWS)


def test_check_finds_a_record_of_a_join_that_is_not_there_and_one_too_many(tmp_path: Path, spark: SparkSession) -> None:
    with make(tmp_path / "s", before_images=True) as db:
        change(db, 1)
        Coordinator(db.store, HereRunner(db.store)).catch_up()
        lost, like = view_keys(db, "pairs")[:2]
        more = (like[0], "nobody")
        change_record(db, "pairs", lost, None)
        change_record(db, "pairs", more, chain_of(db, "pairs", like))
        report = db.check(["pairs"], spark=spark)

        assert sorted((finding.kind, finding.key[:2]) for finding in report.findings) == [
            ("extra", more),
            ("missing", lost),
        ]
