"""Scripts and commands whose epochs are jobs of Spark end with their own words, and leave nothing behind."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import viewkeeper as vk

SCRIPT = """
import sys
import viewkeeper as vk
db = vk.connect(sys.argv[1])
db.execute("CREATE TABLE t (k INT PRIMARY KEY, g INT, v INT)")
db.execute("CREATE MATERIALIZED VIEW sums AS SELECT g, SUM(v) AS s, MIN(v) AS low FROM t GROUP BY g")
pipeline = db.pipeline(engine=sys.argv[2], settings=vk.EngineSettings(small_work_max=0, meanwhile_work=0))
token = db.table("t").put_many([{"k": k, "g": k % 3, "v": k} for k in range(300)])
pipeline.start()
pipeline.wait_for(token, 300)
assert db.status().where.engine == "spark"
raise ValueError("mine")
"""


def environment(folder: Path) -> dict[str, str]:
    """That of a process whose temporary files are in a folder of their own."""
    folder.mkdir()
    return os.environ | {"PYTHONPATH": os.pathsep.join(sys.path), "TMPDIR": str(folder)}


@pytest.mark.deep
@pytest.mark.parametrize("engine", ["auto", "spark"])
def test_a_script_that_closes_nothing(tmp_path: Path, engine: str) -> None:
    url = f"embedded:{tmp_path / 's'}?sync=off"
    ended = subprocess.run(
        [sys.executable, "-c", SCRIPT, url, engine],
        capture_output=True,
        text=True,
        timeout=500,
        check=False,
        env=environment(tmp_path / "temporary"),
    )
    assert ended.returncode == 1
    assert ended.stderr.count("Traceback") == 1, ended.stderr
    assert "leaked" not in ended.stderr and ended.stderr.rstrip().endswith("ValueError: mine")
    assert list((tmp_path / "temporary").iterdir()) == []
    with vk.connect(url) as db, db.pipeline() as pipeline:
        assert pipeline.run_available() == []
        assert db.view("sums").get(0) == {"g": 0, "s": 14850, "low": 0}


ENDS_AT_ONCE = """
import sys, time
from pyspark import SparkContext
import viewkeeper as vk
db = vk.connect(sys.argv[1])
db.execute("CREATE TABLE t (k INT PRIMARY KEY)")
db.execute("CREATE MATERIALIZED VIEW n AS SELECT COUNT(*) AS n FROM t")
db.table("t").put(1, {})
pipeline = db.pipeline(engine="auto", settings=vk.EngineSettings(small_work_max=0, meanwhile_work=0))
pipeline.start()
while getattr(SparkContext, sys.argv[2]) is None:
    time.sleep(0.01)
"""


@pytest.mark.deep
@pytest.mark.parametrize("there", ["_gateway", "_active_spark_context"])
def test_a_script_that_ends_while_spark_comes_up(tmp_path: Path, there: str) -> None:
    """Its JVM is there, or its context is; with a JVM that never comes up the same is tried in tests/unit."""
    ended = subprocess.run(
        [sys.executable, "-c", ENDS_AT_ONCE, f"embedded:{tmp_path / 's'}?sync=off", there],
        capture_output=True,
        text=True,
        timeout=500,
        check=False,
        env=environment(tmp_path / "temporary"),
    )
    assert ended.returncode == 0
    assert not any(word in ended.stderr for word in ("Traceback", "Exception", "leaked", "terminate")), ended.stderr
    assert list((tmp_path / "temporary").iterdir()) == []


def children_of(process: int) -> list[int]:
    folders = Path(f"/proc/{process}/task").glob("*/children")
    return [int(child) for folder in folders for child in folder.read_text().split()]


@pytest.mark.deep
@pytest.mark.skipif(sys.platform != "linux", reason="processes are found in /proc")
def test_sigterm_leaves_no_jvm_and_no_temporary_folder(tmp_path: Path) -> None:
    url = f"embedded:{tmp_path / 's'}?sync=off"
    with vk.connect(url) as db:
        db.execute("CREATE TABLE t (k INT PRIMARY KEY)")
        db.execute("CREATE MATERIALIZED VIEW n AS SELECT COUNT(*) AS n FROM t")
        db.table("t").put(1, {})
    command = [sys.executable, "-m", "viewkeeper", "run", url, "--engine", "spark", "--json"]
    running = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment(tmp_path / "temporary")
    )
    assert running.stdout is not None
    line = running.stdout.readline()
    children = children_of(running.pid)
    running.send_signal(signal.SIGTERM)
    told, errors = running.communicate(timeout=300)

    assert json.loads(line)["where"] == {"engine": "spark", "reason": "asked for"}
    assert (running.returncode, told) == (0, "")
    assert errors.splitlines()[-1].startswith("stopped at epoch ")
    assert children
    until = time.monotonic() + 120  # a bound for a broken run: a JVM that is told to end needs a moment
    while any(Path(f"/proc/{child}").exists() for child in children):
        assert time.monotonic() < until
        time.sleep(0.05)
    assert list((tmp_path / "temporary").iterdir()) == []
