"""Spark's settings, events and logs hold nothing of the user's from epochs: no value, key, name or literal.

A check on Spark is SQL over tables of Spark: its events show the view's text, and no value or key of a row.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.source_tree import ROOT

VALUE, NUMBER, KEY = "canary-of-text-7f3a", 7_373_737_373, "canary-of-key-90cd"
NAMES = ("canarytable", "canarycolumn", "canaryview")
LITERAL = "canary-of-literal-33e1"
SCRIPT = """
import sys
import viewkeeper as vk
from pyspark.sql import SparkSession
from viewkeeper.coordinator.coordinator import Coordinator
from viewkeeper.engine.runner import SparkRunner
from viewkeeper.engine.spark_session import default_session
from viewkeeper.engine.lazy_session import LazySession
from viewkeeper.settings import EngineSettings

folder, value, number, key, literal, check = sys.argv[1:]
session = SparkSession.builder.config("spark.eventLog.enabled", "true").config("spark.eventLog.dir", "file://" + folder)
session = session.config("spark.eventLog.compress", "false").config("spark.ui.enabled", "false").master("local[2]")
session = session.getOrCreate()
default_session(2)
session.sparkContext.setLogLevel("INFO")
db = vk.connect(f"embedded:{folder}/../s?sync=off")
db.execute("CREATE TABLE canarytable (k STRING PRIMARY KEY, canarycolumn STRING, n BIGINT)")
db.execute(
    f"CREATE MATERIALIZED VIEW canaryview AS SELECT canarycolumn, '{literal}' AS l, SUM(n) AS s, MAX(k) AS m "
    "FROM canarytable GROUP BY canarycolumn"
)
db.execute("CREATE MATERIALIZED VIEW failing AS SELECT k, CAST(canarycolumn AS INT) AS x FROM canarytable")
db.table("canarytable").put_many([{"k": f"{key}-{i}", "canarycolumn": value, "n": int(number)} for i in range(50)])
settings = EngineSettings(small_work_max=0, meanwhile_work=0)
runner = SparkRunner(db.store, LazySession(session, view_managers=2), view_managers=2, settings=settings)
Coordinator(db.store, runner).catch_up()
assert db.view("canaryview").get(value)["s"] == 50 * int(number)
assert db.status().views[1].set_aside.count == 50
if check == "check":
    assert db.check(spark=session).ok
print("CONF", session.sparkContext.getConf().getAll(), list(session.conf.getAll.items()))
session.stop()
"""


def told(tmp_path: Path, check: str) -> str:
    """All that Spark wrote: its events, its log, and its settings."""
    (tmp_path / "events").mkdir()
    command = [sys.executable, "-c", SCRIPT, str(tmp_path / "events"), VALUE, str(NUMBER), KEY, LITERAL, check]
    environment = os.environ | {"PYTHONPATH": str(ROOT / "src"), "PYSPARK_PYTHON": sys.executable}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stderr[-3000:]
    events = "".join(path.read_text() for path in (tmp_path / "events").rglob("*") if path.is_file())
    conf = done.stdout.partition("CONF")[2]
    assert "SparkListenerJobEnd" in events and "INFO DAGScheduler" in done.stderr and "spark.app.name" in conf
    return events + done.stderr + conf


@pytest.mark.deep
def test_epochs_leave_nothing_of_the_users_in_settings_events_and_logs_of_spark(tmp_path: Path) -> None:
    said = told(tmp_path, "no check")

    assert [canary for canary in (VALUE, str(NUMBER), str(50 * NUMBER), KEY, LITERAL, *NAMES) if canary in said] == []


@pytest.mark.deep
def test_a_check_leaves_no_value_and_no_key_there(tmp_path: Path) -> None:
    said = told(tmp_path, "check")

    assert NAMES[1] in said, "the text of the view is there"
    assert [canary for canary in (VALUE, str(NUMBER), str(50 * NUMBER), KEY) if canary in said] == []
