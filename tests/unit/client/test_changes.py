"""Changes of a view: each committed epoch told once, whole, in order, or not at all."""

from __future__ import annotations

import pickle
import threading
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import viewkeeper as vk
from tests.support.running import HereRunner, Interrupted, RunThenDie, keep_up
from viewkeeper.client.views import _to_change
from viewkeeper.coordinator.coordinator import Coordinator
from viewkeeper.model import epochs
from viewkeeper.stores.version_chains import collect_steps

if TYPE_CHECKING:
    from collections.abc import Callable

    from viewkeeper.client.database import Database
    from viewkeeper.client.views import View
    from viewkeeper.model.read_frontier import RecordChange


@pytest.fixture
def db(tmp_path: Path) -> Database:
    db = vk.connect(f"embedded:{tmp_path / 's'}?sync=off")
    db.execute("CREATE TABLE t (k INT PRIMARY KEY, x STRING, y BIGINT)")
    db.execute("CREATE MATERIALIZED VIEW sums AS SELECT x, SUM(y) AS s FROM t GROUP BY x")
    db.execute("CREATE INDEX by_x ON t (x)")
    return db


def put(db: Database, k: int, x: str | None, y: int | None) -> int:
    db.table("t").put(k, {"x": x, "y": y})
    keep_up(db)
    return db.epoch


def told(changes: vk.Changes) -> list[tuple]:
    return [(c.epoch, c.key, c.before and c.before["s"], c.after and c.after["s"]) for c in changes]


def test_each_epoch_is_told_in_the_order_of_epoch_and_key(db: Database) -> None:
    first = put(db, 1, "b", 1)
    db.table("t").put(2, {"x": None, "y": 5})
    second = put(db, 1, "a", 2)
    third = put(db, 3, "a", 10)
    changes = db.view("sums").changes(since=first)

    assert (changes.since, changes.epoch) == (first, third)
    expected = [
        (second, (None,), None, 5),
        (second, ("a",), None, 2),
        (second, ("b",), 1, None),
        (third, ("a",), 2, 12),
    ]
    assert told(changes) == told(changes) == expected
    assert told(db.view("sums").changes(since=second)) == expected[3:]
    assert told(db.view("sums").changes(since=third)) == []
    for change in changes:
        now = db.view("sums").get(*change.key)
        assert change.epoch < third or now == change.after


def test_a_consumer_that_polls_holds_what_the_view_holds(db: Database) -> None:
    put(db, 0, "a", 1)
    with db.snapshot() as snapshot:
        copy = {row["x"]: row for row in snapshot.view("sums").scan()}
        epoch = snapshot.epoch
    for number in range(1, 12):
        db.table("t").delete(number - 2)
        put(db, number, "abc"[number % 3], number)
        if number % 2:
            continue  # two epochs at a time
        changes = db.view("sums").changes(since=epoch)
        for change in changes:
            assert copy.get(change.key[0]) == change.before
            if change.after is None:
                del copy[change.key[0]]
            else:
                copy[change.key[0]] = change.after
        epoch = changes.epoch
        assert copy == {row["x"]: row for row in db.view("sums").scan()}


def test_what_is_no_longer_kept_is_refused_with_the_oldest_epoch(db: Database) -> None:
    numbers = [put(db, number, "a", number) for number in range(5)]
    view = db.view("sums")

    with pytest.raises(vk.ChangesLost, match=f"scan the view instead; .* since epoch {numbers[2]}$") as caught:
        view.changes(since=numbers[1])
    assert [change.epoch for change in view.changes(since=numbers[2])] == numbers[3:]
    assert isinstance(pickle.loads(pickle.dumps(caught.value)), vk.ChangesLost)


def test_what_is_asked_for_is_kept_and_found_by_its_epoch(db: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    put(db, 0, "a", 0)
    db.keep_changes(epochs=4)
    numbers = []
    for number in range(12):  # "a" changes in every third epoch, others come and go
        db.table("t").delete(number - 3)
        numbers.append(put(db, number, "abc"[number % 3] if number < 9 else f"{number}", number))
    view = db.view("sums")

    with pytest.raises(vk.ChangesLost, match=f"since epoch {numbers[-6]}$"):
        view.changes(since=numbers[-7])
    scanned = {since: told(vk.Changes(since, 0, *steps_of(view, since))) for since in numbers[-6:]}
    assert all(scanned[since] for since in numbers[-6:-1])
    monkeypatch.setattr(
        "viewkeeper.stores.local.partition.LocalSnapshot.scan", None
    )  # costs what changed, not what there is
    for since in numbers[-6:]:
        assert told(view.changes(since)) == scanned[since]


def steps_of(view: View, since: int) -> tuple[list[RecordChange], Callable[[RecordChange], vk.Change]]:
    """What `changes` tells, by a pass over all records."""
    with view._database.snapshot() as snapshot:
        moment, partitions = snapshot._moment, range(view._database.store.partitions)
        pairs = list(snapshot._held._chains.scan(partitions, view.definition.node.table, b"", None))
    return collect_steps(pairs, since, moment), lambda step: _to_change(view.definition, step)


def test_what_was_kept_before_it_was_asked_for_is_found_too_and_goes_when_it_is_not(db: Database) -> None:
    first = put(db, 1, "a", 1)
    db.keep_changes(epochs=50)
    for number in range(2, 6):
        put(db, number, "a", number)
    assert [c.epoch for c in db.view("sums").changes(since=first)] == list(range(first + 1, db.epoch + 1))
    other = vk.connect(db.url)
    other.keep_changes()
    for number in range(6, 9):
        put(db, number, "a", number)
    with pytest.raises(vk.ChangesLost):
        db.view("sums").changes(since=first)
    assert [c.epoch for c in db.view("sums").changes(since=db.epoch - 2)] == [db.epoch - 1, db.epoch]
    for number in range(db.store.partitions):
        with db.store.partition(number).kernel.read("written") as written:
            assert len(written) == 0


def test_an_epoch_that_is_run_again_is_found_by_its_number_once(db: Database) -> None:
    db.keep_changes(seconds=3600)
    first = put(db, 1, "a", 1)
    db.table("t").put(2, {"x": "a", "y": 10})
    with pytest.raises(Interrupted):
        Coordinator(db.store, RunThenDie(HereRunner(db.store), times=2)).catch_up()
    assert list(db.view("sums").changes(since=first)) == []
    keep_up(db)
    assert told(db.view("sums").changes(since=first)) == [(first + 1, ("a",), 1, 11)]


@pytest.mark.parametrize(
    "wrong", [{"epochs": -1}, {"epochs": 1.5}, {"seconds": "x"}, {"seconds": float("inf")}, {"epochs": True}]
)
def test_what_is_not_an_amount_is_not_kept(db: Database, wrong: dict) -> None:
    with pytest.raises(vk.InputError, match="must be a (whole )?number, 0 or more"):
        db.keep_changes(**wrong)


def test_the_epoch_that_filled_a_view_is_no_change_of_its_records(db: Database) -> None:
    """A view that was filled anew says nothing of the records that a reader saw before."""
    before = put(db, 1, "a", 1)
    db.execute("CREATE MATERIALIZED VIEW late AS SELECT k, y FROM t")
    with pytest.raises(vk.NotReady):
        db.view("late").changes(since=before)
    filled = put(db, 2, "a", 2)

    with pytest.raises(vk.ChangesLost, match=f"since epoch {filled}$"):
        db.view("late").changes(since=before)
    assert list(db.view("late").changes(since=filled)) == []


def test_an_epoch_in_flight_or_aborted_is_not_told(db: Database) -> None:
    first = put(db, 1, "a", 1)
    db.table("t").put(2, {"x": "a", "y": 10})
    db.table("t").put(4, {"x": "new", "y": 10})
    with pytest.raises(Interrupted):
        Coordinator(db.store, RunThenDie(HereRunner(db.store))).step()
    assert told(db.view("sums").changes(since=first)) == []

    record = db.store.read_epoch_record()
    assert db.store.swap_epoch_record(record.version, epochs.abort(record, record.owner))
    assert told(db.view("sums").changes(since=first)) == []
    last = put(db, 3, "a", 100)
    assert told(db.view("sums").changes(since=first)) == [(last, ("a",), 1, 111), (last, ("new",), None, 10)]


def test_what_shows_nothing_new_is_no_change(db: Database) -> None:
    put(db, 1, "a", 5)
    first = put(db, 2, "a", 7)
    db.table("t").put(1, {"y": 7})
    put(db, 2, "a", 5)  # the sum is the same
    put(db, 3, "a", 0)  # the count that the view keeps beside it is not
    changes = db.view("sums").changes(since=first)

    assert (list(changes), changes.epoch) == ([], db.epoch)


def test_a_snapshot_tells_the_changes_up_to_its_epoch(db: Database) -> None:
    first = put(db, 1, "a", 1)
    second = put(db, 2, "a", 2)
    with db.snapshot() as snapshot:
        for number in range(3, 9):
            put(db, number, "a", number)
        changes = snapshot.view("sums").changes(since=first)
        assert (told(changes), changes.epoch) == ([(second, ("a",), 1, 3)], second)
    with pytest.raises(vk.ChangesLost):
        db.view("sums").changes(since=first)


def test_a_snapshot_taken_while_an_epoch_is_under_way_knows_what_that_epoch_let_go(db: Database) -> None:
    numbers = [put(db, number, "a", number) for number in range(3)]
    db.table("t").put(9, {"x": "a", "y": 9})
    with pytest.raises(Interrupted):
        Coordinator(db.store, RunThenDie(HereRunner(db.store))).step()
    with db.snapshot() as snapshot:
        for view in (snapshot.view("sums"), db.view("sums")):
            with pytest.raises(vk.ChangesLost):
                view.changes(since=numbers[0])
            assert told(view.changes(since=numbers[1])) == [(numbers[2], ("a",), 1, 3)]


def test_a_session_and_a_token_wait_and_latest_is_refused(db: Database) -> None:
    first = put(db, 1, "a", 1)
    with db.session() as session:
        session.table("t").put(2, {"x": "a", "y": 2})
        with pytest.raises(vk.StaleRead):
            session.view("sums").changes(since=first, timeout=0)
        keep_up(db)
        assert len(list(session.view("sums").changes(since=first))) == 1
    with pytest.raises(vk.InputError, match="committed epochs"):
        db.view("sums").changes(since=first, read="latest")


@pytest.mark.parametrize("since", [None, "1", 1.0, True, -1, 99])
def test_what_is_not_an_epoch_is_refused(db: Database, since: object) -> None:
    put(db, 1, "a", 1)
    with pytest.raises(vk.InputError):
        db.view("sums").changes(since=since)


def test_the_key_of_a_change_is_whole_and_reads_the_record(db: Database) -> None:
    first = put(db, 1, "a", 1)
    put(db, 2, None, 1)
    (change,) = db.view("by_x").changes(since=first)

    assert change.key == (None, 2)
    assert change.before is None
    assert db.view("by_x").get(*change.key) == change.after


def test_a_view_that_was_filled_anew_is_to_be_scanned(db: Database) -> None:
    first = put(db, 1, "a", 1)
    record = db.store.read_epoch_record()
    assert db.store.swap_epoch_record(record.version, epochs.forget_views(record, {}))
    with pytest.raises(vk.NotReady):
        db.view("sums").changes(since=first)
    put(db, 2, "a", 2)

    with pytest.raises(vk.ChangesLost):
        db.view("sums").changes(since=first)


def test_a_consumer_beside_a_running_pipeline_misses_nothing_and_sees_nothing_twice(db: Database) -> None:
    put(db, 0, "a", 0)
    done = threading.Event()

    def write() -> None:
        other = vk.connect(db.url)
        for number in range(1, 60):
            put(other, number, "abcde"[number % 5], number)
            if number % 7 == 0:
                other.table("t").delete_many(range(number - 6, number))
        done.set()

    writer = threading.Thread(target=write)
    writer.start()
    copy, epoch, polls = {}, -1, 0
    while not done.is_set() or epoch < db.epoch:
        try:
            changes = db.view("sums").changes(since=max(epoch, 0))
        except vk.ChangesLost:
            with db.snapshot() as snapshot:
                copy, epoch = {row["x"]: row for row in snapshot.view("sums").scan()}, snapshot.epoch
            continue
        for change in changes:
            assert copy.get(change.key[0]) == change.before
            assert epoch < change.epoch <= changes.epoch
            copy[change.key[0]] = change.after
        copy = {key: row for key, row in copy.items() if row is not None}
        epoch, polls = changes.epoch, polls + 1
        done.wait(0.002)  # let the writer in
    writer.join()

    assert polls and copy == {row["x"]: row for row in db.view("sums").scan()}
