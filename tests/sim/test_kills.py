"""kill -9 of the pipeline at every named point: what is left equals the run without kills, byte for byte.

Every run kills at each fourth point once, at a hit drawn from a fixed seed; a deep one does so at each point and in more
worlds, and kills, by a seed of its own, at the first hit of each point and at later ones, and then at pairs of points. The
laboratory (`tests/support/kill_lab.py`) runs the schedules in forked children.
"""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path

import pytest

from tests.support import tiers
from tests.support.killing import LAB_POINTS, Laboratory, each_point_once, pairs

HITS, PAIRS, KILLS_MIN = 2, 6, 50
WORLDS = [
    pytest.param(1, "images", "single", marks=pytest.mark.deep),
    pytest.param(2, "plain", "single", marks=pytest.mark.deep),
    pytest.param(3, "images", "joined", marks=pytest.mark.deep),
    (4, "plain", "joined"),
]


@pytest.mark.parametrize(("seed", "log", "views"), WORLDS)
def test_a_kill_at_any_named_point_leaves_the_dump_of_the_run_without_kills(
    tmp_path: Path, seed: int, log: str, views: str
) -> None:
    with Laboratory(tmp_path, seed, log, views) as lab:
        schedules = each_point_once(lab.hits, random.Random(seed))[:: 1 if tiers.is_deep() else 4]
        fired = kill(lab, schedules)

    assert set(lab.hits) == set(LAB_POINTS[views])
    assert set(fired) == {schedule.partition("@")[0] for schedule in schedules}, "each point must have killed it"


def test_a_kill_around_the_abort_of_an_epoch_leaves_the_dump_of_the_run_without_kills(tmp_path: Path) -> None:
    with Laboratory(tmp_path, 6, "images", "stopped") as lab:
        points = ["abort.start@1", "abort.swapped@1", "abort.start@1+abort.swapped@1", "abort.swapped@1+run.fenced@3"]
        fired = kill(lab, points)

    assert set(lab.hits) == set(LAB_POINTS["stopped"])
    assert fired == {"abort.start": 2, "abort.swapped": 3, "run.fenced": 1}


def test_a_kill_within_a_repair_leaves_the_dump_of_the_repair_without_kills(tmp_path: Path) -> None:
    with Laboratory(tmp_path, 5, "images", "repair") as lab:
        fired = kill(
            lab, [f"{point}@{lab.hits[point]}" for point in LAB_POINTS["repair"]]
        )  # the last epoch is the repair

    assert set(fired) == set(LAB_POINTS["repair"])


@pytest.mark.deep
@pytest.mark.parametrize("log", ["images", "plain"])
def test_a_kill_at_any_point_of_a_repair_leaves_the_dump_of_the_repair_without_kills(tmp_path: Path, log: str) -> None:
    with Laboratory(tmp_path, 5, log, "repair") as lab:
        fired = kill(lab, [f"{point}@{count}" for point, count in lab.hits.items()])

    assert set(fired) == set(lab.hits)


@pytest.mark.deep
@pytest.mark.parametrize(("seed", "log", "views"), WORLDS)
def test_kills_again_and_in_pairs_leave_the_dump_of_the_run_without_kills(
    tmp_path: Path, seed: int, log: str, views: str
) -> None:
    source = random.Random(f"{seed} {tiers.seed()}")
    with Laboratory(tmp_path, seed, log, views) as lab:
        again = each_point_again(lab.hits, source, times=HITS)
        fired = kill(lab, again + pairs(lab.hits, source, count=PAIRS))

    assert set(fired) == set(lab.hits)
    assert fired.total() >= KILLS_MIN


def kill(lab: Laboratory, schedules: list[str]) -> Counter[str]:
    """Run all schedules; what is left must be the same after each. Answers how often each point killed."""
    results = list(lab.kill(schedules))
    assert [result["schedule"] for result in results if not result["same"]] == []
    fired = Counter(point for result in results for point in result["fired"])
    print(f"{fired.total()} kills at {len(fired)} points in {len(results)} schedules: {dict(fired)}")
    return fired


def each_point_again(hits: dict[str, int], source: random.Random, *, times: int) -> list[str]:
    """Each point at its first hit and at random later ones."""
    schedules = []
    for point, count in hits.items():
        later = source.sample(range(2, count + 1), min(times - 1, count - 1))
        schedules += [f"{point}@{hit}" for hit in (1, *sorted(later))]
    return schedules
