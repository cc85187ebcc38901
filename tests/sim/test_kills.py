"""kill -9 of the pipeline at every named point: what is left equals the run without kills, byte for byte.

The schedules are drawn once from a fixed seed: every point at its first hits and at random later ones, then pairs of
points. The laboratory (`tests/support/kill_lab.py`) runs them in forked children.
"""

from __future__ import annotations

import json
import random
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SINGLE_HITS = {"single": 4, "joined": 2}
PAIRS = {"single": 12, "joined": 6}
POINTS_MIN, KILLS_MIN = 20, {"single": 100, "joined": 50}
WORLDS = [(1, "images", "single"), (2, "plain", "single"), (3, "images", "joined"), (4, "plain", "joined")]


@pytest.mark.parametrize(("seed", "log", "views"), WORLDS)
def test_a_kill_at_any_named_point_leaves_the_dump_of_the_run_without_kills(
    tmp_path: Path, seed: int, log: str, views: str
) -> None:
    command = [sys.executable, "-m", "tests.support.kill_lab", str(tmp_path), str(seed), log, views]
    lab = subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    hits = json.loads(lab.stdout.readline())["hits"]
    schedules = draw_schedules(hits, random.Random(seed), views)
    answers, _ = lab.communicate("\n".join(schedules))
    assert lab.returncode == 0
    results = [json.loads(line) for line in answers.splitlines()]
    assert [result["schedule"] for result in results] == schedules
    assert [result["schedule"] for result in results if not result["same"]] == []
    fired = Counter(point for result in results for point in result["fired"])
    print(f"seed {seed}: {fired.total()} kills at {len(fired)} points in {len(results)} schedules: {dict(fired)}")
    assert set(fired) == set(hits), "every point that a run passes must have killed it at least once"
    assert len(fired) >= POINTS_MIN and fired.total() >= KILLS_MIN[views]


def draw_schedules(hits: dict[str, int], source: random.Random, views: str) -> list[str]:
    """Each point at its first hit and at random later ones, and pairs of points."""
    schedules = []
    for point, count in hits.items():
        later = source.sample(range(2, count + 1), min(SINGLE_HITS[views] - 1, count - 1)) if count > 1 else []
        schedules += [f"{point}@{hit}" for hit in (1, *sorted(later))]
    for _ in range(PAIRS[views]):
        first, second = source.sample(sorted(hits), 2)
        schedules.append(f"{first}@{source.randint(1, hits[first])}+{second}@{source.randint(1, hits[second])}")
    return schedules
