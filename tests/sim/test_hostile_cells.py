"""Views over cells without transactions equal their recomputation, whatever befalls requests, pipelines and their tasks.

`docs/epochs.md`, section 4: requests are lost, late and repeated, answers of swaps get lost, pipelines die with a part of
their writes done, and those that were taken over from go on. That the schedules can see a defect is shown by planting each
one.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable
from contextlib import AbstractContextManager

import pytest

from tests.support import tiers
from tests.support.hostile import Schedule, Wrong
from tests.support.hostile_defects import DEFECTS
from tests.support.hostile_views import KINDS

ONE = os.environ.get("VIEWKEEPER_SCHEDULE")  # what a schedule that failed asks for
SCHEDULES = int(os.environ.get("VIEWKEEPER_SCHEDULES", "100"))
SCHEDULES_DEEP = int(os.environ.get("VIEWKEEPER_SCHEDULES", "2000"))
SCHEDULES_PER_DEFECT = 250
PARTS = 20  # of the deep schedules, each a test
HAPPENS = (
    "lost",
    "late",
    "twice",
    "silent",
    "doubled",
    "crash",
    "zombie",
    "zombies told",
    "copy",
    "drops",
    "views replaced",
    "groupings shared",
    "purges",
    "void epochs",
    "versions purged",
    "records purged",
    "states compared",
    "ended by StoreUnavailable",
    "pipelines of 0 managers",
    "pipelines of 1 managers",
    "pipelines of 3 managers",
)


def run(first: int, count: int) -> Counter[str]:
    """Schedules of seeds in a row; what happened in them is told where pytest shows output."""
    counts: Counter[str] = Counter()
    for seed in range(first, first + count):
        counts += Schedule(seed).run()
    print(f"seeds from {first}: {dict(sorted(counts.items()))}")
    return counts


def test_views_equal_their_recomputation_over_hostile_cells() -> None:
    counts = run(int(ONE), 1) if ONE else run(0, SCHEDULES)

    if counts["schedules"] >= 100:
        assert [event for event in HAPPENS if not counts[event]] == []
        assert [name for name in KINDS if not counts[f"view {name}"]] == []


@pytest.mark.deep
@pytest.mark.parametrize("part", range(PARTS))
def test_views_equal_their_recomputation_over_hostile_cells_of_new_seeds(part: int) -> None:
    count = SCHEDULES_DEEP // PARTS
    counts = run(tiers.seed() * 1_000_000 + part * count, count)

    assert counts["schedules"] == count


def test_a_schedule_is_the_same_each_time() -> None:
    for seed in (3, 4):
        assert Schedule(seed).run() == Schedule(seed).run()


@pytest.mark.parametrize("defect", DEFECTS, ids=lambda defect: defect.__name__)
def test_a_defect_is_found(defect: Callable[[], AbstractContextManager[None]]) -> None:
    with defect():
        assert any(is_wrong(seed) for seed in range(SCHEDULES_PER_DEFECT))


def is_wrong(seed: int) -> bool:
    try:
        Schedule(seed).run()
    except Wrong:
        return True
    return False
