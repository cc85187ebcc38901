"""A script whose epochs were jobs of Spark, and that closes nothing: it ends with its own error and leaves nothing behind."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import viewkeeper as vk

SCRIPT = """
import sys
import viewkeeper as vk
from viewkeeper.settings import EngineSettings
db = vk.connect(sys.argv[1])
db.execute("CREATE TABLE t (k INT PRIMARY KEY, g INT, v INT)")
db.execute("CREATE MATERIALIZED VIEW sums AS SELECT g, SUM(v) AS s, MIN(v) AS low FROM t GROUP BY g")
pipeline = db.pipeline()
pipeline._runner.settings = EngineSettings(small_work_max=0, meanwhile_work=0)  # every epoch is a job
token = db.table("t").put_many([{"k": k, "g": k % 3, "v": k} for k in range(300)])
pipeline.start()
pipeline.wait_for(token, 300)
assert pipeline._session.is_up
raise ValueError("mine")
"""


@pytest.mark.deep
def test_a_script_that_closes_nothing(tmp_path: Path) -> None:
    url = f"embedded:{tmp_path / 's'}?sync=off"
    env = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    ended = subprocess.run(
        [sys.executable, "-c", SCRIPT, url], capture_output=True, text=True, timeout=500, check=False, env=env
    )
    assert ended.returncode == 1
    assert "leaked" not in ended.stderr and ended.stderr.rstrip().endswith("ValueError: mine")
    with vk.connect(url) as db, db.pipeline() as pipeline:
        assert pipeline.run_available() == []
        assert db.view("sums").get(0) == {"g": 0, "s": 14850, "low": 0}
