"""Hostile statements are refused with an error of ours, or computed without a way out of the store.

The laboratory (`tests/support/attack_lab.py`) runs them in a process of its own that watches what it does.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support import tiers
from tests.support.attack_texts import attacks

ROOT = Path(__file__).parents[3]
COUNT, DEEP_COUNT = 500, 10_000


def attack(folder: Path, seed: int, count: int) -> tuple[list[dict], dict[str, int]]:
    """The faults that the laboratory found, and how statements ended."""
    command = [sys.executable, "-m", "tests.support.attack_lab", str(seed), str(count)]
    paths = os.pathsep.join([str(ROOT), str(ROOT / "src")])
    done = subprocess.run(
        command, cwd=folder, env=os.environ | {"PYTHONPATH": paths}, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-2_000:]
    *faults, last = [json.loads(line) for line in done.stdout.splitlines()]
    return faults, last["ends"]


def test_no_hostile_statement_reaches_anything_but_the_store(tmp_path: Path) -> None:
    faults, ends = attack(tmp_path, 0, COUNT)
    assert faults == []
    assert sum(ends.values()) == COUNT and set(ends) == {"refused", "computed"}
    assert min(ends.values()) >= COUNT // 40, "both kinds of end are tried"


@pytest.mark.deep
def test_no_other_hostile_statement_does_either(tmp_path: Path) -> None:
    faults, ends = attack(tmp_path, tiers.seed() or 1, DEEP_COUNT)
    assert faults == []
    assert sum(ends.values()) == DEEP_COUNT


def test_the_same_seed_draws_the_same_statements() -> None:
    assert list(attacks(3, 700)) == list(attacks(3, 700)) != list(attacks(4, 700))
