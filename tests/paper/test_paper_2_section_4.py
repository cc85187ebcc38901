"""Paper 2 (components of the VMS), section 4: duplicates, wrong order, moving managers, concurrent commits."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

import viewkeeper as vk
from tests.support.dump import dump
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
from viewkeeper.coordinator.coordinator import Coordinator
from viewkeeper.coordinator.view_managers import owners_of_shards
from viewkeeper.errors import Fenced
from viewkeeper.operators.messages import Input
from viewkeeper.operators.program import split_by_manager
from viewkeeper.settings import EpochLimits

SUM_VIEW = "CREATE MATERIALIZED VIEW d AS SELECT x, SUM(y) AS s FROM r GROUP BY x"
SELECTION = "CREATE MATERIALIZED VIEW s AS SELECT k, y FROM r WHERE y < 300"


def make(path: Path, view: str) -> vk.Database:
    """R(K, X, Y) with (k1, x1, 50), and the view over it."""
    db = vk.connect(f"embedded:{path}?sync=off")
    db.execute(f"CREATE TABLE r (k STRING PRIMARY KEY, x STRING, y BIGINT); {view}")
    db.table("r").put("k1", {"x": "x1", "y": 50})
    keep_up(db)
    return db


def last_first(items: list) -> list:
    return items[::-1]


def test_a_duplicated_insert_is_summed_twice_on_plain_records() -> None:
    """Section 4.2: the hazard: V_f is (x1, 250) where it should be (x1, 150)."""
    view = {"x1": 50}
    for _message in range(2):
        view["x1"] += 100

    assert view == {"x1": 250}


def test_a_log_that_is_replayed_after_a_crash_is_summed_once(tmp_path: Path) -> None:
    """Section 4.2: the manager crashes behind its write, and the write-ahead log is replayed, twice."""
    db = make(tmp_path / "s", SUM_VIEW)
    db.table("r").put("k2", {"x": "x1", "y": 100})
    with pytest.raises(Interrupted):
        Coordinator(db.store, RunThenDie(ManagersRunner(db.store, 2), times=2)).catch_up()
    assert db.view("d").get("x1", read="latest")["s"] == 150
    keep_up(db)

    assert db.view("d").get("x1") == {"x": "x1", "s": 150}


def test_a_message_that_one_manager_gets_after_another_has_applied_it_is_summed_once(tmp_path: Path) -> None:
    """Section 4.2: the same update reaches two managers, because the first was thought dead; the record knows."""
    db = make(tmp_path / "s", SUM_VIEW)
    db.table("r").put("k2", {"x": "x1", "y": 100})
    epoch = begin_epoch(db.store)
    plan, everywhere = plan_of(db.store, epoch), frozenset(range(db.store.partitions))
    (message,) = inputs_of(db.store, plan, epoch)
    written = [apply_inputs(db.store, plan, epoch, message, everywhere) for _manager in range(2)]
    commit_epoch(db.store, epoch)

    assert written == [1, 0]
    assert db.view("d").get("x1") == {"x": "x1", "s": 150}


def test_updates_of_one_row_by_two_managers_end_in_the_wrong_order_on_plain_records() -> None:
    """Section 4.3: the hazard: B_f is (k1, 200), V_f is (k1, 100)."""
    base, view = {}, {}
    for y in (100, 200):
        base["k1"] = y
    for y in (200, 100):  # VM2 delivers faster than VM1
        view["k1"] = y

    assert (base, view) == ({"k1": 200}, {"k1": 100})


@pytest.mark.parametrize("arrange", [list, last_first], ids=["in order", "VM2 first"])
def test_updates_of_one_row_read_by_two_managers_end_in_the_right_order(tmp_path: Path, arrange: object) -> None:
    """Section 4.3: two managers read u1 and u2, the second is faster; the row's timeline is kept by the positions."""
    db = make(tmp_path / "s", SELECTION)
    db.table("r").put("k1", {"y": 100})
    db.table("r").put("k1", {"y": 200})
    Coordinator(db.store, ManagersRunner(db.store, 2, arrange=arrange)).catch_up()

    assert list(db.view("s").scan()) == [{"k": "k1", "y": 200}]


@pytest.mark.parametrize("arrange", [list, last_first], ids=["in order", "delete first"])
def test_a_delete_that_overtakes_its_insert_leaves_nothing(tmp_path: Path, arrange: object) -> None:
    """Section 4.3, second example (there a join view): d2 is delivered before i1, and the row must not come back."""
    db = make(tmp_path / "s", SELECTION)
    db.table("r").put("k9", {"y": 100})  # i1
    db.table("r").delete("k9")  # d2
    Coordinator(db.store, ManagersRunner(db.store, 2, arrange=arrange)).catch_up()

    assert list(db.view("s").scan()) == [{"k": "k1", "y": 50}]


def test_a_manager_that_joins_moves_rows_and_breaks_their_timeline_on_plain_queues() -> None:
    """Section 4.3: the hazard: VM1 has queued u1, the newcomer VM2 takes u2 of the same key and is faster."""
    queues, view = {"VM1": [("k1", 100)], "VM2": [("k1", 200)]}, {}
    for manager in ("VM2", "VM1"):
        view |= dict(queues[manager])

    assert view == {"k1": 100}


def test_a_manager_that_joins_finds_no_update_of_its_rows_under_way(tmp_path: Path) -> None:
    """Section 4.3: the epoch's end is the marker: nobody starts u2 before u1 is committed, whoever owns the partition
    then.
    """
    db = make(tmp_path / "s", SELECTION)
    keys = [f"k{number}" for number in range(40)]
    moved = [a != b for a, b in zip(owners_of_shards(8, 1), owners_of_shards(8, 2), strict=True)]
    assert sum(moved) == 4  # half of the partitions get another owner
    for managers, y in ((1, 100), (2, 200), (1, 150)):
        for key in keys:
            db.table("r").put(key, {"y": y})
        Coordinator(db.store, ManagersRunner(db.store, managers)).catch_up()

        assert list(db.view("s").scan()) == [{"k": key, "y": y} for key in sorted(keys)]


def test_a_manager_that_was_withdrawn_and_still_holds_an_update_is_refused(tmp_path: Path) -> None:
    """Section 4.3: VM1's u1 was given to others; it wakes up when VM2 has done u2, and must not bring u1 back."""
    db = make(tmp_path / "s", SELECTION)
    db.table("r").put("k1", {"y": 100})  # u1
    held = begin_epoch(db.store)
    plan, owners = plan_of(db.store, held), owners_of_shards(db.store.partitions, 1)
    queue = [
        Input(one.table, one.channel, piece)
        for given in inputs_of(db.store, plan, held)
        for one in given
        for _, piece in split_by_manager(one.rows, owners)
    ]
    keep_up(db)  # another driver ends the epoch
    db.table("r").put("k1", {"y": 200})  # u2
    Coordinator(db.store, ManagersRunner(db.store, 2)).catch_up()
    before = dump(db.store)

    with pytest.raises(Fenced):
        apply_inputs(db.store, plan, held, queue, frozenset(range(db.store.partitions)))
    assert dump(db.store) == before
    assert list(db.view("s").scan()) == [{"k": "k1", "y": 200}]


def test_two_managers_that_write_one_record_lose_an_insert_on_plain_records() -> None:
    """Section 4.4: the hazard: both read (x1, 50), and one insert is lost."""
    view = {"x1": 50}
    read_by_1, read_by_2 = view["x1"], view["x1"]
    view["x1"] = read_by_2 + 200
    view["x1"] = read_by_1 + 100

    assert view == {"x1": 150}


def test_inserts_of_two_managers_into_one_group_are_both_counted(tmp_path: Path) -> None:
    """Section 4.4: the record has one owner, and the parts of both managers are added before it is read."""
    db = make(tmp_path / "s", SUM_VIEW)
    db.table("r").put("k2", {"x": "x1", "y": 100})  # i1, the part of one manager
    db.table("r").put("k3", {"x": "x1", "y": 200})  # i2, the part of the other
    epoch = begin_epoch(db.store)
    plan = plan_of(db.store, epoch)
    parts = inputs_of(db.store, plan, epoch, pieces=2)
    assert [[one.rows["s2"].to_pylist() for one in part] for part in parts] == [[[100]], [[200]]]
    ManagersRunner(db.store, 2).run(plan, epoch)
    commit_epoch(db.store, epoch)

    assert db.view("d").get("x1") == {"x": "x1", "s": 350}


def test_two_drivers_that_commit_at_once_commit_once(tmp_path: Path) -> None:
    """Section 4.4, for the epoch record: two coordinators run the same store at once; one is fenced, nothing is lost."""
    db = make(tmp_path / "s", SUM_VIEW)
    table, fenced, start = db.table("r"), [], threading.Barrier(2)
    for number in range(20):
        table.put(f"n{number}", {"x": "x1", "y": 10})

    def drive() -> None:
        start.wait()
        try:
            Coordinator(db.store, HereRunner(db.store), limits=EpochLimits(changes=4)).catch_up()
        except Fenced as error:
            fenced.append(error)

    drivers = [threading.Thread(target=drive) for _ in range(2)]
    for driver in drivers:
        driver.start()
    for driver in drivers:
        driver.join()
    keep_up(db)

    assert len(fenced) <= 1
    assert db.view("d").get("x1") == {"x": "x1", "s": 250}
