"""Views equal their recomputation, whatever befalls pipelines, tasks, requests and clocks, over every kind of store.

A schedule is drawn wholly from its seed (`tests/support/simulation`): who writes, which views come and go, which epochs run,
who crashes, is lost, wakes up late or is answered late. `make sim` runs more of them, `make soak` for as long as asked. That
schedules can see a defect is shown by planting each one.
"""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from tests.support import tiers
from tests.support.simulation import hbase_defects  # its defects are in the list too
from tests.support.simulation.defects import DEFECTS, SCHEDULES_MAX, Defect
from tests.support.simulation.inhbase import FAULTS
from tests.support.simulation.run import simulate
from tests.support.simulation.schedule import Schedule
from tests.support.simulation.summary import ENOUGH, OTHER_LANES, all_points, own_points
from tests.support.simulation.world import HBASE, Wrong
from tests.support.source_tree import ROOT

SLICES, SCHEDULES_EACH, IN_HBASE_EACH = 4, 20, 10
SLICES_DEEP = 2
FAILED_ONCE = {
    2153: "a view of a snapshot that was dropped before it was filled",
    2239: "the same",
    500_021: "a repair by more managers than there are partitions",
}
SEEDS_EACH = 1_000_000  # of a deep run


@pytest.mark.parametrize("part", range(SLICES))
def test_views_equal_their_recomputation(part: int) -> None:
    require_valid(part * SCHEDULES_EACH, SCHEDULES_EACH)


@pytest.mark.deep
@pytest.mark.parametrize("part", range(SLICES_DEEP))
def test_views_equal_their_recomputation_in_schedules_of_new_seeds(part: int) -> None:
    """So many that every fault, view and failpoint must occur."""
    require_valid(tiers.seed() * SEEDS_EACH + part * ENOUGH, ENOUGH)


@pytest.mark.parametrize("part", range(SLICES))
def test_views_in_hbase_equal_their_recomputation(part: int) -> None:
    """By the adapter that users run, in several processes, over a small HBase behind a hostile network."""
    require_right(part * IN_HBASE_EACH, IN_HBASE_EACH)


@pytest.mark.deep
@pytest.mark.parametrize("part", range(SLICES_DEEP))
def test_views_in_hbase_equal_their_recomputation_in_schedules_of_new_seeds(part: int) -> None:
    require_right(tiers.seed() * SEEDS_EACH + part * ENOUGH, ENOUGH)


@pytest.mark.parametrize("seed", FAILED_ONCE)
def test_a_schedule_that_failed_once_does_not_fail_again(seed: int) -> None:
    require_valid(seed, 1)


def require_valid(first: int, count: int) -> None:
    summary = simulate(first, count)
    print(f"seeds from {first} on\n{summary.text()}")
    assert summary.verdict == "valid", summary.text()
    assert summary.schedules.total() == count


def require_right(first: int, count: int) -> None:
    """Over HBase failpoints of other stores are not passed, so that no verdict is `valid`."""
    summary = simulate(first, count, HBASE)
    print(f"seeds from {first} on\n{summary.text()}")
    assert not summary.violations and not summary.unforeseen, summary.text()
    assert summary.schedules == {HBASE: count}
    assert count < ENOUGH or not set(FAULTS) - summary.counts.keys()


def test_a_schedule_is_the_same_each_time_whatever_the_order_of_sets() -> None:
    seeds = (3, 4, 5)
    script = f"from {Schedule.__module__} import Schedule\nprint([Schedule(seed).run().history for seed in {seeds}])"
    told = {
        subprocess.run(
            [sys.executable, "-c", script],
            cwd=ROOT,
            env=os.environ | {"PYTHONHASHSEED": hash_seed, "PYTHONPATH": str(ROOT)},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for hash_seed in ("1", "2")
    }
    assert told == {f"{[Schedule(seed).run().history for seed in seeds]}\n"}


def test_other_seeds_have_other_histories() -> None:
    assert len({Schedule(seed).run().history for seed in (3, 6, 9)}) == 3


def test_points_that_schedules_do_not_pass_have_a_lane() -> None:
    assert len(own_points()) > 30
    assert all((ROOT / lane).exists() for lane in OTHER_LANES.values())
    assert all(any(point.startswith(prefix) for point in all_points()) for prefix in OTHER_LANES)


def test_there_are_enough_defects() -> None:
    assert len({defect.name for defect in DEFECTS}) == len(DEFECTS) >= 25


@pytest.mark.parametrize(
    "defect",
    [
        pytest.param(one, id=one.name, marks=[pytest.mark.deep] if one.name in hbase_defects.SLOW else [])
        for one in DEFECTS
    ],
)
def test_a_defect_is_found(defect: Defect) -> None:
    """Every run begins where the defect shows soon."""
    with defect.plant():
        number = next((n for n, seed in enumerate(defect.seeds(), 1) if is_wrong(seed, defect.store)), None)
    print(f"{defect.name}: found by schedule {number} of at most {SCHEDULES_MAX}")
    assert number is not None


def is_wrong(seed: int, store: str) -> bool:
    try:
        Schedule(seed, store if store == HBASE else "").run()
    except Wrong:
        return True
    return False
