"""Filling a view from rows that are there: in chunks, while everything else goes on, and on from where it was cut (R12)."""

from __future__ import annotations

from pathlib import Path

import pytest

import viewkeeper as vk
from tests.support.dump import dump
from tests.support.oracle import CASES
from tests.support.running import HereRunner, Interrupted, ManagersRunner, RunThenDie, keep_up
from tests.support.stores import NAME, make_database, rounds, write, wrong_views
from viewkeeper.coordinator.coordinator import Coordinator
from viewkeeper.events import Backfilling, Event
from viewkeeper.settings import EpochLimits

LATE = ("summed", "extremes", "double_sums", "totals", "indexed", "shown_groups")


@pytest.fixture(params=[True, False], ids=["before-images", "plain log"])
def db(tmp_path: Path, request: pytest.FixtureRequest) -> vk.Database:
    """A store with rows and one view that is ready; others are to come."""
    db = make_database(tmp_path / "s", nodes=2, cases=("counted",), before_images=request.param)
    return db


def define(db: vk.Database, *names: str) -> None:
    for case in CASES:
        if case.name in names:
            db.execute(case.definition.format(v=case.name, t=NAME, k="k"))


def test_a_view_is_filled_in_bounded_chunks_while_changes_flow(db: vk.Database) -> None:
    first, *later = rounds(1, 8, histories=9)
    write(db, first)
    keep_up(db)
    define(db, *LATE)
    done = list(first)
    coordinator = Coordinator(db.store, HereRunner(db.store), limits=EpochLimits(rows=7))
    chunks = []
    for part in later:
        write(db, part)
        done += part
        assert coordinator.step() is not None
        filling = db.store.read_epoch_record().filling
        chunks.append(len(filling))
        assert wrong_views(db, done, names=("counted",)) == []  # the view that was ready never waits
    coordinator.catch_up()

    assert chunks[0] == len(LATE)
    assert sum(map(bool, chunks)) > 1
    assert wrong_views(db, done) == []


def test_a_view_that_is_being_filled_is_not_readable_and_status_says_how_far_it_is(db: vk.Database) -> None:
    write(db, rounds(2, 3, histories=9)[0])
    keep_up(db)
    define(db, "summed")
    told: list[Event] = []
    Coordinator(db.store, HereRunner(db.store), limits=EpochLimits(rows=6), events=told.append).step()
    (status,) = [view for view in db.status().views if view.name == "summed"]

    rows, total = status.filling
    assert 0 < rows < total
    assert [event for event in told if isinstance(event, Backfilling)] == [
        Backfilling(1, 0, total),  # while its first epoch runs
        Backfilling(1, rows, total),
    ]
    with pytest.raises(vk.NotReady, match="not filled"):
        list(db.view("summed").scan())


def test_a_fill_that_dies_goes_on_behind_its_last_committed_chunk(db: vk.Database) -> None:
    first, second = rounds(3, 2, histories=9)
    write(db, first)
    keep_up(db)
    define(db, *LATE)
    Coordinator(db.store, HereRunner(db.store), limits=EpochLimits(rows=6)).step()
    (before, *_) = db.store.read_epoch_record().filling.values()
    write(db, second)
    with pytest.raises(Interrupted):
        Coordinator(db.store, RunThenDie(HereRunner(db.store)), limits=EpochLimits(rows=6)).step()
    inflight = db.store.read_epoch_record().inflight
    again = Coordinator(db.store, ManagersRunner(db.store, 3), limits=EpochLimits(rows=1_000))
    again.step()

    borders = inflight.chunks[0].borders
    assert {inflight.chunks[0].source: {part: keys[0] for part, keys in borders.items()}} == before.cursors
    assert db.store.read_epoch_record().committed == inflight.epoch
    again.catch_up()
    assert wrong_views(db, first + second) == []


def test_the_same_chunk_run_again_by_anyone_writes_the_same_bytes(db: vk.Database) -> None:
    write(db, rounds(5, 1, histories=9)[0])
    keep_up(db)
    define(db, *LATE)
    write(db, rounds(6, 1, histories=9)[0])
    dumps = []
    for runner in (HereRunner(db.store), ManagersRunner(db.store, 2), ManagersRunner(db.store, 8, seed=3)):
        with pytest.raises(Interrupted):
            Coordinator(db.store, RunThenDie(runner, times=2), limits=EpochLimits(rows=9)).step()
        write(db, rounds(7, 1, histories=2)[0])  # later changes are not its matter
        dumps.append(dump(db.store))

    assert dumps[0] == dumps[1] == dumps[2]


def test_what_small_tables_leave_over_of_an_epoch_is_for_the_larger_ones(tmp_path: Path) -> None:
    with vk.connect(f"embedded:{tmp_path / 'two'}?sync=off") as db:
        for name, rows in (("small", 3), ("large", 90)):
            db.execute(f"CREATE TABLE {name} (k INT PRIMARY KEY)")
            db.table(name).put_many([{"k": number} for number in range(rows)])
        db.execute("CREATE MATERIALIZED VIEW v AS SELECT l.k FROM large l JOIN small s ON l.k = s.k")
        coordinator = Coordinator(db.store, HereRunner(db.store), limits=EpochLimits(rows=100))
        coordinator.step()

        assert not db.store.read_epoch_record().filling
        assert len(list(db.view("v").scan())) == 3
