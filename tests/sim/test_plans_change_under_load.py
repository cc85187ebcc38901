"""Views are created, dropped and optimized on a live pipeline: no other view pauses, and a kill in mid-change is harmless.

A process of its own writes all the time, another runs epochs (`tests/support/live_views.py`). Pauses are counted in epochs,
never in seconds: in every sampled snapshot each view that is filled equals its recomputation over exactly the rows of the
newest committed epoch, one that was read once can be read until it is dropped, and of the epochs in a row that take in no
change while some wait there are two at most.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import viewkeeper as vk
from tests.support import tiers
from tests.support.live_views import LiveViews, PipelineProcess

REPLAY = "VIEWKEEPER_SEED={seed} make test-deep ARGS='tests/sim/test_plans_change_under_load.py -n 0'"
PAUSE_EPOCHS_MAX = 2
# What every epoch passes, so also one that fills views.
FILLING = (
    "gc.start",
    "begin.swapped",
    "run.fenced",
    "apply.computed",
    "partition.write.before_commit",
    "apply.written",
    "run.receipts",
    "commit.synced",
    "commit.swapped",
    "commit.done",
)
KILLS = {
    "create": ("begin.planned", *FILLING),
    "drop": ("begin.planned", "gc.dropped", *FILLING),
    "optimize": ("begin.planned", "replace.ready", "replace.swapped", *FILLING),
}
# Each kind of change once: a create and a drop while filling, OPTIMIZE VIEWS before it fills, while, and around the swap.
SOME_KILLS = [
    ("create", "apply.written"),
    ("drop", "commit.synced"),
    ("optimize", "begin.planned"),
    ("optimize", "apply.computed"),
    ("optimize", "replace.ready"),
    ("optimize", "replace.swapped"),
]


@contextmanager
def running(folder: Path, seed: str) -> Iterator[tuple[LiveViews, PipelineProcess]]:
    print(f"seed {seed!r}; the same again: {REPLAY.format(seed=tiers.seed())}")
    files = folder / "files"
    files.mkdir()
    with vk.connect(f"embedded:{folder / 'store'}?sync=off") as db:
        pipeline = PipelineProcess(db, files)
        with LiveViews(db, files, seed, pipeline.require_running) as live, pipeline:
            yield live, pipeline
        assert max(pipeline.pauses(), default=0) <= PAUSE_EPOCHS_MAX
        print(f"{live.samples} samples up to epoch {db.epoch}")


@pytest.mark.parametrize(
    ("creates", "optimizes"), [(8, 3), pytest.param(50, 10, marks=pytest.mark.deep)], ids=["some", "many"]
)
def test_views_come_and_go_and_the_others_do_not_pause(tmp_path: Path, creates: int, optimizes: int) -> None:
    with running(tmp_path, f"views {tiers.seed()}") as (live, _):
        shared = live.come_and_go(creates, optimizes)

    assert shared >= optimizes  # so many views were put together, in all


@pytest.mark.parametrize(
    "kills",
    [
        SOME_KILLS,
        pytest.param([(change, at) for change, points in KILLS.items() for at in points], marks=pytest.mark.deep),
    ],
    ids=["some", "all"],
)
def test_a_kill_in_the_middle_of_a_change_is_harmless(tmp_path: Path, kills: list[tuple[str, str]]) -> None:
    with running(tmp_path, f"kills {tiers.seed()}") as (live, pipeline):
        for _ in range(2):
            live.create()
        for number, (change, point) in enumerate(random.Random(tiers.seed()).sample(kills, len(kills))):
            print(f"{change}, killed at {point}")
            made = begin_change(live, pipeline, change, point, number)
            pipeline.wait_for_death()
            live.sample()
            pipeline.start()
            live.watch(epochs=2)
            live.calm_down()
            for name in made:
                live.drop(name)


def begin_change(live: LiveViews, pipeline: PipelineProcess, change: str, point: str, number: int) -> list[str]:
    """Begin a change that needs a backfill, and let the pipeline die in the middle of it; returns the views it made.

    The number makes the texts new, so that nothing there can serve them.
    """
    new = f"y <> {1000 + number}"
    counts, ends = f"SELECT x, COUNT(*) AS n FROM r WHERE {new}", f"SELECT x, MIN(y) AS lo FROM r WHERE y > 5 AND {new}"
    made = [live.create(f"{text} GROUP BY x") for text in (counts, ends)] if change == "optimize" else []
    live.calm_down()  # so that the next backfill is that of the change
    is_held = change == "drop" or point in FILLING
    pipeline.hold() if is_held else pipeline.kill_at(point)
    if change == "optimize":
        assert live.optimize() >= 2
    else:
        made.append(live.create(f"{counts} GROUP BY x"))
    if is_held:
        live.wait_until(lambda: pipeline.is_held)
        live.sample()
        if change == "drop":
            live.drop(made.pop())
        pipeline.kill_at(point)
    return made
