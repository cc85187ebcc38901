"""kill -9 of a whole executor in the middle of an epoch: its managers' work is done by others, with the same bytes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.source_tree import ROOT

SECONDS_MAX = 1_200  # a bound for a broken run, not a measure
KILLS = ("task.read@1", "apply.computed@3", "partition.write.committed@2", "stage.applied@2")


def kill_executors(root: Path, tries: int, *kills: str) -> list[dict]:
    done = subprocess.run(
        [sys.executable, "-m", "tests.support.executor_lab", str(root), str(tries), *kills],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT}"},
        capture_output=True,
        text=True,
        timeout=SECONDS_MAX,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3_000:]
    return [json.loads(line) for line in done.stdout.splitlines()]


@pytest.mark.deep
def test_a_killed_executor_is_replaced_and_the_epoch_finishes_with_the_same_bytes(tmp_path: Path) -> None:
    """Spark makes what was lost again, shuffles included: the stages that had written run once more."""
    assert kill_executors(tmp_path, 4, *KILLS) == [
        {"kill": kill, "fired": True, "again": 0, "same": True} for kill in KILLS
    ]


@pytest.mark.deep
def test_where_spark_gives_up_the_coordinator_runs_the_epoch_again(tmp_path: Path) -> None:
    (told,) = kill_executors(tmp_path, 1, "partition.write.committed@2")
    assert told == {"kill": "partition.write.committed@2", "fired": True, "again": 1, "same": True}
