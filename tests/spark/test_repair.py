"""Repair, judged by Spark, while writes and epochs go on."""

from __future__ import annotations

import random
import threading
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from typer.testing import CliRunner

import viewkeeper as vk
from tests.support.dump import written_by
from tests.support.planting import chain_of, change_record, view_keys
from tests.support.running import HereRunner, keep_up
from viewkeeper.cli.main import app
from viewkeeper.coordinator.coordinator import Coordinator
from viewkeeper.model.keys import encode_key
from viewkeeper.settings import EpochLimits

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

VIEWS = """
CREATE TABLE t (k STRING PRIMARY KEY, x INT, y BIGINT, f DOUBLE);
CREATE MATERIALIZED VIEW sums AS SELECT x, COUNT(*) AS n, SUM(f) AS s, AVG(y) AS a FROM t GROUP BY x;
CREATE MATERIALIZED VIEW ends AS SELECT x, MIN(y) AS lo, MAX(f) AS hi, COUNT(DISTINCT y) AS n FROM t GROUP BY x;
CREATE MATERIALIZED VIEW shown AS SELECT x, AVG(f) AS a FROM t GROUP BY x HAVING COUNT(*) > 1;
CREATE MATERIALIZED VIEW rows AS SELECT y + 1 AS more, f FROM t WHERE x < 150
"""
STILL = range(100, 150)  # groups that nobody changes meanwhile: a change of a wrong one may stop its view first


@pytest.mark.parametrize("log", ["on", "off"], ids=["before-images", "plain log"])
def test_planted_errors_are_put_right_and_no_others_while_writes_and_epochs_go_on(
    tmp_path: Path, spark: SparkSession, log: str
) -> None:
    db = vk.connect(f"embedded:{tmp_path / 's'}?nodes=2&sync=off&before_images={log}")
    db.execute(VIEWS)
    db.table("t").put_many([{"k": f"k{i}", "x": i % 150, "y": i % 11, "f": i / 7} for i in range(900)])
    claim = db.store.claim(take_over=False)
    coordinator = Coordinator(db.store, HereRunner(db.store), limits=EpochLimits(changes=50, rows=300))
    coordinator.catch_up()
    wrong = plant(db)
    stop, table = threading.Event(), db.table("t")

    def write_and_run() -> None:
        choose = random.Random(1)
        while not stop.is_set():
            key = f"new{choose.randrange(200)}"
            table.delete(key) if choose.random() < 0.3 else table.put(
                key, {"x": choose.randrange(90), "y": 3, "f": 0.5}
            )
            coordinator.step()

    pipeline = threading.Thread(target=write_and_run)
    pipeline.start()
    try:
        report = db.repair(spark=spark)
    finally:
        stop.set()
        pipeline.join()
        claim.release()

    assert {(found.view, found.key) for found in report.before.findings} == wrong
    assert report.ok and report.after.findings == ()
    assert sum(report.records.values()) == len(wrong)
    nodes = {view.name: view.node for view in db.catalog().views}
    own = {(int(nodes[view].table), encode_key(nodes[view].key, key)) for view, key in wrong}
    tables = {int(node.table) for node in nodes.values()}
    assert {(table, key) for table, key, _ in written_by(db.store, report.epoch) if table in tables} <= own


def plant(db: vk.Database) -> set[tuple[str, tuple]]:
    """In each view three missing records, three with the row of another, and three too many."""
    choose, wrong = random.Random(3), set()
    for view in ("sums", "ends", "shown", "rows"):
        still = [key for key in view_keys(db, view) if _number(key[0]) in STILL]
        chosen = choose.sample(still, 9)
        rows = [chain_of(db, view, key) for key in chosen]
        for place, key in enumerate(chosen):
            kept = place // 3
            at = key if kept < 2 else ((key[0] + 1_000,) if view != "rows" else (f"{key[0]}~",))
            change_record(db, view, at, rows[(place + 1) % 9] if kept else None)
            wrong.add((view, at))
    return wrong


def _number(part: object) -> int:
    return part if isinstance(part, int) else int(str(part).removeprefix("k")) % 150


def test_the_command_repairs_and_says_what_it_wrote(tmp_path: Path, spark: SparkSession) -> None:
    url = f"embedded:{tmp_path / 's'}?sync=off"
    with vk.connect(url) as db:
        db.execute("CREATE TABLE t (k STRING PRIMARY KEY, g STRING)")
        db.execute("CREATE MATERIALIZED VIEW v AS SELECT g, COUNT(*) AS n, MIN(k) AS lo FROM t GROUP BY g")
        db.table("t").put_many([{"k": f"k{i}", "g": "abc"[i % 3]} for i in range(30)])
        keep_up(db)
        change_record(db, "v", ("a",), chain_of(db, "v", ("b",)))
        done = CliRunner().invoke(app, ["repair", url, "v"], catch_exceptions=False)
        told = CliRunner().invoke(app, ["status", url], catch_exceptions=False)

        assert db.view("v").get("a") == {"g": "a", "n": 10, "lo": "k0"}
    assert done.exit_code == 0
    assert [line.split() for line in done.stdout.splitlines() if line.startswith("v ")] == [
        "v 1 record and 0 auxiliary records put right".split()
    ]
    assert done.stdout.splitlines()[-1].startswith("ok: v as recomputed, 3 records")
    assert "right at epoch 3" in told.stdout and "1 record repaired by epoch 3" in told.stdout
