"""Kills at named points: which points each lane kills at, the laboratory's process, and a command line that is killed.

In: schedules of kills. Out: what the laboratory (`tests/support/kill_lab.py`) says of each. Always: SIGKILL, by the process
that passes the point, to itself.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from tests.support.source_tree import ROOT

_EPOCH = (
    *("begin.cut", "begin.planned", "begin.swapped", "run.synced", "run.fenced", "run.receipts"),
    *("split.start", "split.read", "task.read", "task.applied", "stage.applied"),
    *("apply.start", "apply.read", "apply.computed", "apply.written"),
    *("partition.fence.raised", "partition.write.fenced", "partition.write.before_commit", "partition.write.committed"),
    *("commit.synced", "commit.swapped", "commit.done", "gc.start", "gc.truncated", "gc.dropped"),
)
# What a run of the laboratory passes, by its views: every one of these kills in every run of the tests.
LAB_POINTS = {
    "single": (*_EPOCH, "partition.purge.before_commit", "partition.purge.committed"),
    "joined": (*_EPOCH, "replace.ready", "replace.swapped"),
    "stopped": (*_EPOCH, "abort.start", "abort.swapped"),
    "repair": ("repair.due", "begin.swapped", "run.fenced", "apply.written", "commit.synced", "replace.ready"),
}


class Laboratory:
    """The laboratory's process; `hits` says how often the run without kills passes each point."""

    def __init__(self, folder: Path, seed: int, log: str, views: str) -> None:
        command = [sys.executable, "-m", "tests.support.kill_lab", str(folder), str(seed), log, views]
        self._process = subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.hits: dict[str, int] = json.loads(self._process.stdout.readline())["hits"]

    def __enter__(self) -> Laboratory:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.communicate()

    def kill(self, schedules: list[str]) -> Iterator[dict]:
        """What is left after each schedule."""
        for schedule in schedules:
            self._process.stdin.write(f"{schedule}\n")
            self._process.stdin.flush()
            answer = self._process.stdout.readline()
            assert answer, f"the laboratory ended at {schedule}"
            yield json.loads(answer)


def each_point_once(hits: dict[str, int], source: random.Random) -> list[str]:
    return [f"{point}@{source.randint(1, count)}" for point, count in hits.items()]


def pairs(hits: dict[str, int], source: random.Random, *, count: int) -> list[str]:
    schedules = []
    for _ in range(count):
        first, second = source.sample(sorted(hits), 2)
        schedules.append(f"{first}@{source.randint(1, hits[first])}+{second}@{source.randint(1, hits[second])}")
    return schedules


def kill_at(point: str, folder: Path, *command: str) -> None:
    """Run the command line until it is killed at a point's hit (`point@hit`)."""
    folder.mkdir()
    name, hit = point.split("@")
    (folder / f"{name}.armed").write_text(hit)
    killed = subprocess.run(
        [sys.executable, "-m", "viewkeeper", *command],
        cwd=ROOT,
        env=os.environ | {"VIEWKEEPER_FAILPOINT_DIR": str(folder)},
        check=False,
    )
    assert killed.returncode == -signal.SIGKILL
