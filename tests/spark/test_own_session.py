"""A session that we start ourselves, in a process of its own: where its rows lie, and what happens when its JVM is gone."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.source_tree import ROOT

SCRIPT = """
import json, pathlib, stat, sys
import viewkeeper as vk
from viewkeeper.settings import EngineSettings
from viewkeeper.engine.runner import SparkRunner
from viewkeeper.engine.lazy_session import LazySession
from viewkeeper.coordinator.coordinator import Coordinator

db = vk.connect(f"embedded:{sys.argv[1]}?sync=off")
db.execute("CREATE TABLE t (k INT PRIMARY KEY, v INT)")
db.execute("CREATE MATERIALIZED VIEW n AS SELECT v, COUNT(*) AS n FROM t GROUP BY v")
db.table("t").put_many([{"k": number, "v": number % 7} for number in range(1000)])
session = LazySession(None, view_managers=2)
runner = SparkRunner(db.store, session, view_managers=2, settings=EngineSettings(small_work_max=0, meanwhile_work=0))
coordinator = Coordinator(db.store, runner)
coordinator.catch_up()
context = session.get().sparkContext
folder = pathlib.Path(context.getConf().get("spark.local.dir"))
told = {"folder": str(folder), "mode": stat.S_IMODE(folder.stat().st_mode)}
told["files"] = sum(path.is_file() for path in folder.rglob("*"))
told["right"] = [row["n"] for row in db.view("n").scan()] == [143] * 6 + [142]
db.table("t").put_many([{"k": number, "v": 1} for number in range(1000)])
context._gateway.proc.kill()
context._gateway.proc.wait()
told["lost"] = []
for work in (coordinator.catch_up, db.check):
    try:
        work()
    except vk.ViewKeeperError as error:
        told["lost"].append(type(error).__name__)
told["inflight"] = db.store.read_epoch_record().inflight is not None
print(json.dumps(told), flush=True)
"""


@pytest.mark.deep
def test_rows_that_spark_keeps_are_private_and_a_jvm_that_is_gone_loses_nothing(tmp_path: Path) -> None:
    (tmp_path / "temporary").mkdir()
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, str(tmp_path / "s")],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT / "src"), "TMPDIR": str(tmp_path / "temporary")},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    told = json.loads(done.stdout.splitlines()[-1])

    assert told["mode"] == 0o700
    assert told["files"] > 0
    assert told["right"]
    assert told["lost"] == ["SparkLost", "SparkLost"]
    assert told["inflight"]
    assert not Path(told["folder"]).exists()
