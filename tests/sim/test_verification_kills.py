"""kill -9 within `check`, `repair` and `rebuild`: run again, each leaves what it leaves without a kill, by the judgement of
an independent reader of the records."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.source_tree import ROOT

DAMAGED = ["DELTA(w)", "pairs", "plain", "sums"]
ARMED = {
    "check": ("check.started", "check.judged", "check.remembered"),
    "repair": ("repair.checked", "repair.logged", "repair.rebuilt", "repair.repaired"),
    "rebuild": ("twins.requested", "replace.ready"),
}


class Laboratory:
    """`tests/support/verify_lab.py` as a process."""

    def __init__(self, folder: Path) -> None:
        command = [sys.executable, "-m", "tests.support.verify_lab", str(folder)]
        (folder / "temporary").mkdir()
        environment = os.environ | {"TMPDIR": str(folder / "temporary")}
        self._process = subprocess.Popen(
            command, cwd=ROOT, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def close(self) -> None:
        self._process.kill()
        self._process.communicate()

    def run(self, line: str) -> dict:
        self._process.stdin.write(f"{line}\n")
        self._process.stdin.flush()
        answer = self._process.stdout.readline()
        assert answer, f"the laboratory ended at {line}"
        return json.loads(answer)


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[Laboratory]:
    lab = Laboratory(tmp_path)
    yield lab
    lab.close()


def require_right(command: str, told: dict) -> None:
    """A check leaves the damage where it was, and the next one names all of it; after the others there is none."""
    assert told["folders"] == 0, "copies of rows, of a check that was killed"
    if command == "check":
        assert told["named"] == DAMAGED
    elif command == "repair":
        assert (told["left"], told["named"], told["later"], told["twins"]) == ([], [], [], 0)
    else:
        assert (told["left"], told["named"], told["twins"]) == ([], ["DELTA(w)"], 0)


def test_a_command_that_is_killed_again_and_again_leaves_a_store_that_its_next_run_puts_right(lab: Laboratory) -> None:
    for command, points in ARMED.items():
        told = lab.run(f"{command} {'+'.join(f'{point}@1' for point in points)}")
        assert told["fired"] == sorted(points)
        require_right(command, told)


@pytest.mark.deep
@pytest.mark.parametrize("command", ARMED)
def test_kills_at_any_point_of_a_command_at_its_first_and_last_hit(lab: Laboratory, command: str) -> None:
    hits = lab.run(command)["hits"]
    assert set(ARMED[command]) <= hits.keys()
    for point, count in hits.items():
        for hit in {1, count}:
            told = lab.run(f"{command} {point}@{hit}")
            assert told["fired"] == [point]
            require_right(command, told)
