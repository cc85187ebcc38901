"""The same epoch again changes nothing: by the same runner, by another number of managers, on the driver or shuffled.

`docs/epochs.md`, section 3: re-runs, on the driver or shuffled, with another manager count or another driver are harmless.
Judged byte for byte: every version of every record, and every remembered tombstone.
"""

from __future__ import annotations

import contextlib
import random
import threading
from pathlib import Path

import pytest

from tests.support.dump import contents, dump, tombstone_index
from tests.support.running import (
    HereRunner,
    Interrupted,
    ManagersRunner,
    RunThenDie,
    apply_inputs,
    begin_epoch,
    commit_epoch,
    inputs_of,
    keep_up,
    plan_of,
)
from tests.support.stores import make_database, rounds, write, wrong_views
from viewkeeper.coordinator.coordinator import Coordinator
from viewkeeper.errors import Fenced, PositionLost, ViewFailed
from viewkeeper.operators.messages import Input

EPOCHS = 3
CASES = ("selected", "indexed", "summed", "by_double", "totals", "decimals")


def stored(db: object) -> tuple[object, ...]:
    return dump(db.store), tombstone_index(db.store)


def everything(db: object) -> tuple[object, ...]:
    return *stored(db), contents(db)


def runner_of(store: object, managers: int, seed: int = 0) -> HereRunner | ManagersRunner:
    return HereRunner(store) if managers == 0 else ManagersRunner(store, managers, seed)


@pytest.mark.parametrize("seed", [1, 2])
def test_the_same_epoch_run_again_by_anyone_writes_the_same_bytes(tmp_path: Path, seed: int) -> None:
    db = make_database(tmp_path / "s", nodes=2, cases=CASES)
    store, choose, done = db.store, random.Random(seed), []
    for part in rounds(seed, EPOCHS):
        write(db, part)
        done += part
        epoch = begin_epoch(store)
        runner_of(store, choose.choice((0, 1, 3))).run(plan_of(db.store, epoch), epoch)
        first = stored(db)
        for managers in choose.sample((0, 1, 2, 3, 5, 8, 11, 40), 2):
            runner_of(store, managers, choose.random()).run(plan_of(db.store, epoch), epoch)
            assert stored(db) == first
        commit_epoch(store, epoch)

        assert wrong_views(db, done) == []


def test_two_stores_with_different_managers_hold_the_same_bytes(tmp_path: Path) -> None:
    """Not only a re-run: the whole life of a store does not depend on who ran its epochs."""
    stores = [make_database(tmp_path / f"s{managers}", nodes=2, cases=CASES) for managers in (0, 3, 20)]
    for part in rounds(5, 3):
        for db, managers in zip(stores, (0, 3, 20), strict=True):
            write(db, part)
            Coordinator(db.store, runner_of(db.store, managers)).catch_up()

    assert everything(stores[0]) == everything(stores[1]) == everything(stores[2])


@pytest.mark.parametrize("times", [1, 2, 3])
def test_a_driver_that_dies_after_its_work_is_followed_by_one_that_ends_the_epoch(tmp_path: Path, times: int) -> None:
    db, quiet = (make_database(tmp_path / name, cases=CASES) for name in ("crashing", "quiet"))
    done = []
    for number, part in enumerate(rounds(11, 3)):
        write(db, part)
        write(quiet, part)
        done += part
        keep_up(quiet)
        with pytest.raises(Interrupted):
            Coordinator(db.store, RunThenDie(runner_of(db.store, number * 2), times)).catch_up()
        assert db.store.read_epoch_record().inflight is not None
        Coordinator(db.store, runner_of(db.store, 3 - number)).catch_up()

    assert wrong_views(db, done) == []
    assert everything(db) == everything(quiet)


@pytest.mark.parametrize("managers", [2, 5])
def test_an_epoch_of_which_only_some_managers_came_through_is_completed(tmp_path: Path, managers: int) -> None:
    db = make_database(tmp_path / "s", cases=CASES)
    write(db, first := rounds(3, 2)[0])
    keep_up(db)
    write(db, second := rounds(3, 2)[1])
    store, epoch = db.store, begin_epoch(db.store)
    plan = plan_of(db.store, epoch)
    inputs = [one for given in inputs_of(store, plan, epoch) for one in given]
    half = frozenset(range(0, store.partitions, managers))
    kept = []
    for node, part, table in inputs:
        partitions = [int(value) % store.partitions for value in table["hash"].to_pylist()]
        kept.append(Input(node, part, table.filter([partition in half for partition in partitions])))
    apply_inputs(store, plan, epoch, kept, half)
    before = contents(db)

    assert wrong_views(db, first) == []  # readers see nothing of the half
    ManagersRunner(store, managers).run(plan, epoch)
    assert contents(db) == before
    commit_epoch(store, epoch)
    assert wrong_views(db, first + second) == []


def test_a_record_that_reaches_a_manager_that_does_not_own_its_partition_stops_the_epoch(tmp_path: Path) -> None:
    db = make_database(tmp_path / "s", cases=("counted",))
    write(db, rounds(3, 1)[0])
    epoch = begin_epoch(db.store)
    plan = plan_of(db.store, epoch)
    inputs = [one for given in inputs_of(db.store, plan, epoch) for one in given]

    with pytest.raises(ViewFailed, match="does not own"):
        apply_inputs(db.store, plan, epoch, inputs, frozenset({0}))
    assert dump(db.store) == []


def test_an_epoch_that_computes_another_row_than_it_wrote_before_is_stopped(tmp_path: Path) -> None:
    """R7's belt: a view program that is no function of its inputs must not be believed."""
    db = make_database(tmp_path / "s", cases=("counted",))
    changes = rounds(3, 1)[0]
    write(db, changes)
    epoch = begin_epoch(db.store)
    plan = plan_of(db.store, epoch)
    inputs = [one for given in inputs_of(db.store, plan, epoch) for one in given]
    everywhere = frozenset(range(db.store.partitions))
    apply_inputs(db.store, plan, epoch, inputs, everywhere)
    wrote = dump(db.store)

    with pytest.raises(ViewFailed, match="computed another row"):
        apply_inputs(db.store, plan, epoch, inputs + inputs, everywhere)
    assert dump(db.store) == wrote


def test_a_driver_that_wakes_up_in_a_later_epoch_changes_nothing(tmp_path: Path) -> None:
    """R1a, R3: its epoch is over; while the next one runs and after it ran, nothing of the late one reaches the store."""
    db = make_database(tmp_path / "s", cases=CASES)
    first, second = rounds(7, 2)
    write(db, first)
    late = begin_epoch(db.store)
    HereRunner(db.store).run(plan_of(db.store, late), late)
    commit_epoch(db.store, late)
    write(db, second)
    current = begin_epoch(db.store)
    before = everything(db)
    run_late(db.store, late)
    assert everything(db) == before

    HereRunner(db.store).run(plan_of(db.store, current), current)
    after = everything(db)
    with pytest.raises(Fenced):  # it meets records of the later epoch (R3)
        ManagersRunner(db.store, 3).run(plan_of(db.store, late), late)
    assert everything(db) == after
    commit_epoch(db.store, current)
    assert wrong_views(db, first + second) == []


def run_late(store: object, epoch: object) -> None:
    """A driver that finds all its work done writes nothing, and then need not notice that its time is over."""
    with contextlib.suppress(Fenced):
        HereRunner(store).run(plan_of(store, epoch), epoch)


@pytest.mark.parametrize("case", ["selected", "indexed", "counted", "totals"])
def test_a_driver_that_wakes_up_when_its_records_are_purged_is_fenced(tmp_path: Path, case: str) -> None:
    """R1a: a signature that has been deleted protects nothing; only the fence inside the write does."""
    db = make_database(tmp_path / "s", cases=(case,))
    table = db.table("t")
    table.put("other", {"x": "b", "y": 2})
    keep_up(db)
    table.put("k", {"x": "a", "y": 1})
    late = begin_epoch(db.store)
    HereRunner(db.store).run(plan_of(db.store, late), late)
    commit_epoch(db.store, late)
    table.delete("k")
    for number in range(4):  # the tombstone is purged once the floor passed it, in whichever partition it is
        keep_up(db)
        for other in range(40):
            table.put(f"o{other}", {"x": f"g{other}", "y": number})
    keep_up(db)
    assert tombstone_index(db.store) == []
    before = everything(db)

    with pytest.raises(Fenced):
        HereRunner(db.store).run(plan_of(db.store, late), late)
    assert everything(db) == before


@pytest.mark.parametrize("managers", [0, 2])
def test_a_driver_that_wakes_up_when_its_log_was_truncated_writes_nothing(tmp_path: Path, managers: int) -> None:
    """The epoch is committed and no other has begun, so the fence lets the late driver pass; but its input is a part only.

    What cancelled out in the whole (and so left no signature on the record) does not cancel in the part.
    """
    db = make_database(tmp_path / "s", cases=("counted", "selected"))
    table = db.table("t")
    table.put("k", {"x": "a", "y": 1})
    keep_up(db)
    table.put("l", {"x": "a", "y": 1})
    table.delete("l")
    late = begin_epoch(db.store)
    HereRunner(db.store).run(plan_of(db.store, late), late)
    commit_epoch(db.store, late)
    assert db.store.truncate_log(late.stop.positions, older_than_seconds=0, entries_max=5_000)
    before = everything(db)

    with pytest.raises(PositionLost, match="no longer holds"):
        runner_of(db.store, managers).run(plan_of(db.store, late), late)
    assert everything(db) == before


def test_two_drivers_that_run_the_same_epoch_at_once_do_no_harm(tmp_path: Path) -> None:
    db, quiet = (make_database(tmp_path / name, cases=CASES) for name in ("two", "one"))
    done = []
    for number, part in enumerate(rounds(13, 3)):
        write(db, part)
        write(quiet, part)
        done += part
        keep_up(quiet)
        epoch = begin_epoch(db.store)
        start, failures = threading.Barrier(2), []

        def drive(managers: int, epoch: object = epoch, start: object = start, failures: list = failures) -> None:
            try:
                start.wait()
                runner_of(db.store, managers).run(plan_of(db.store, epoch), epoch)
            except Exception as error:
                failures.append(error)

        drivers = [threading.Thread(target=drive, args=(managers,)) for managers in (0, number + 1)]
        for driver in drivers:
            driver.start()
        for driver in drivers:
            driver.join()
        assert failures == []
        commit_epoch(db.store, epoch)

    assert wrong_views(db, done) == []
    assert everything(db) == everything(quiet)
