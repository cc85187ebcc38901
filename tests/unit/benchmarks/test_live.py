"""The live load: every state is known in advance, and what judges it finds what is wrong."""

from __future__ import annotations

import threading
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import viewkeeper as vk
from benchmarks import live_run, live_writer
from benchmarks.live_load import COPY, VIEWS, LiveLoad, Model, prepare
from benchmarks.live_reader import exact, versions
from benchmarks.node_changes import require_chains
from benchmarks.options import Options
from benchmarks.recompute import WrongResult, require_views
from benchmarks.workload import fill_here

LOAD = LiveLoad(rows=400, step_rows=50, seed=7)


class Steps(threading.Event):
    """Over after so many looks."""

    def __init__(self, steps: int) -> None:
        super().__init__()
        self._left = steps

    def is_set(self) -> bool:
        self._left -= 1
        return self._left < 0


@pytest.fixture
def db(tmp_path: Path) -> vk.Database:
    prepare(f"embedded:{tmp_path / 's'}", LOAD, COPY)
    with vk.connect(f"embedded:{tmp_path / 's'}") as db:
        yield db


def write(db: vk.Database, first: int, steps: int) -> int:
    return live_writer.write(db, LOAD, first, 1_000_000, 0.0, Steps(steps))["last"]


@pytest.mark.parametrize("kind", [exact, versions])
def test_a_reader_finds_every_state_right(db: vk.Database, kind: object) -> None:
    judge, last = kind(LOAD), 0
    for steps in (0, 1, 5, 3):
        last = write(db, last + 1, steps)
        fill_here(db)
        with db.snapshot() as snapshot:
            assert judge(snapshot)
    require_views(db.url, (*VIEWS, COPY), "here")


def test_a_reader_finds_a_state_that_no_step_leaves(db: vk.Database) -> None:
    judge = exact(LOAD)
    write(db, 1, 3)
    db.table("r").put(f"k{0:09d}", {"x": 1, "y": 2})  # of no step
    fill_here(db)
    with db.snapshot() as snapshot:
        assert not judge(snapshot)


@pytest.mark.parametrize("kind", [exact, versions])
def test_a_reader_finds_a_state_that_is_older_than_one_before(db: vk.Database, kind: object) -> None:
    judge = kind(LOAD)
    with db.snapshot() as old:
        write(db, 1, 2)
        fill_here(db)
        with db.snapshot() as new:
            assert judge(new)
        assert not judge(old)


def test_a_change_that_is_out_of_order_or_lost_is_found_in_the_log(db: vk.Database) -> None:
    start, model = db.store.ends(), Model(LOAD)
    model.advance(write(db, 1, 4))
    db.execute("ALTER STORE ADD NODE")
    model.advance(write(db, 5, 4))
    require_chains(db, start, model)
    lost = Model(LOAD)
    lost.advance(9)
    with pytest.raises(WrongResult):
        require_chains(db, start, lost)
    db.table("r").put(f"k{LOAD.step(8)[0][0]:09d}", {"y": 3})
    with pytest.raises(WrongResult):
        require_chains(db, start, model)


def test_commits_are_counted_by_the_second_and_the_longest_pause_is_found() -> None:
    moments, changes = [9.0, 10.5, 11.0, 13.0, 13.5], [7, 15, 3, 40, 8]

    assert live_run.by_second(moments, changes, 10.0, 4.0) == [8, 20, 20, 8]
    assert live_run.longest_pause(moments, 10.0, 14.5) == 2.0


def test_epochs_are_no_larger_than_the_table() -> None:
    assert live_run.size_of(Options()) == live_run.CHANGES_PER_EPOCH
    assert live_run.size_of(replace(Options(), live_rows=500)) == 500
    assert live_run.size_of(replace(Options(), changes_per_epoch=7)) == 7
    assert len(np.unique(LOAD.step(1)[0])) == len(LOAD.step(1)[0])
