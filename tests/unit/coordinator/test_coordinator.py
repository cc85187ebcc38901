"""The coordinator: what it stores before it runs, whom it obeys, and what it leaves to the next one."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

import viewkeeper as vk
from tests.support.dump import dump
from tests.support.running import HereRunner, Interrupted, RunThenDie, keep_up
from tests.support.stores import make_database, rounds, write, wrong_views
from viewkeeper.coordinator.coordinator import Coordinator
from viewkeeper.coordinator.gc import collect_garbage
from viewkeeper.errors import EpochFailed, Fenced, NotReady, ViewFailed
from viewkeeper.events import Aborted, Backfilling, Began, Committed, Event, TookOver
from viewkeeper.model.epochs import Inflight
from viewkeeper.model.work_stats import Counts
from viewkeeper.plan import physical
from viewkeeper.plan.physical import PhysicalPlan
from viewkeeper.settings import EpochLimits


@pytest.fixture
def db(tmp_path: Path) -> vk.Database:
    return make_database(tmp_path / "s", cases=("counted", "totals"))


class Recorder:
    """A runner that remembers the epochs it was given."""

    def __init__(self, store: object) -> None:
        self._here = HereRunner(store)
        self.epochs: list[object] = []

    def run(self, plan: object, epoch: object) -> Counts:
        self.epochs.append(epoch)
        return self._here.run(plan, epoch)


def test_with_nothing_to_do_no_epoch_is_begun(db: vk.Database) -> None:
    coordinator = keep_up(db)
    record = db.store.read_epoch_record()

    assert coordinator.step() is None
    assert coordinator.catch_up() == []
    assert db.store.read_epoch_record() == record


def test_an_epoch_is_in_the_record_with_its_plan_before_it_runs(db: vk.Database) -> None:
    changes = rounds(1, 1)[0]
    write(db, changes)
    runner = Recorder(db.store)
    records = []
    run = runner.run
    runner.run = lambda plan, epoch: (records.append(db.store.read_epoch_record()), run(plan, epoch))[1]
    (done,) = Coordinator(db.store, runner).catch_up()

    assert records[0].inflight == runner.epochs[0]
    assert records[0].inflight.epoch == done.epoch == 1
    assert {db.store.partition(number).fence() for number in range(db.store.partitions)} == {1}
    assert db.store.read_epoch_record().inflight is None


def test_an_epoch_found_in_flight_is_run_unchanged_whatever_was_written_since(db: vk.Database) -> None:
    """R9: neither its range nor its plan is made anew."""
    first, second = rounds(2, 2)
    write(db, first)
    with pytest.raises(Interrupted):
        Coordinator(db.store, RunThenDie(HereRunner(db.store), times=0)).step()
    begun = db.store.read_epoch_record().inflight
    write(db, second)
    db.execute("DROP MATERIALIZED VIEW totals; CREATE INDEX later ON t (x)")
    runner = Recorder(db.store)
    coordinator = Coordinator(db.store, runner, limits=EpochLimits(changes=1))
    coordinator.step()

    assert runner.epochs == [replace(begun, takeovers=1)]
    assert wrong_views(db, first, names=("counted",)) == []
    assert len(coordinator.catch_up()) >= 1
    assert wrong_views(db, first + second, names=("counted",)) == []


@pytest.mark.parametrize("times", [0, 1])
def test_an_epoch_whose_plan_another_release_stored_is_aborted_and_its_changes_follow(
    db: vk.Database, times: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(db, changes := rounds(3, 1)[0])
    with monkeypatch.context() as patch:
        patch.setattr(physical, "FORMAT", 1)
        with pytest.raises(Interrupted):
            Coordinator(db.store, RunThenDie(HereRunner(db.store), times)).step()
    begun = db.store.read_epoch_record().inflight
    keep_up(db)

    record = db.store.read_epoch_record()
    assert record.aborted == (begun.epoch,) and record.stopped == {}
    assert wrong_views(db, changes) == []


def test_a_coordinator_that_was_replaced_stops(db: vk.Database) -> None:
    first = Coordinator(db.store, HereRunner(db.store))
    second = Coordinator(db.store, HereRunner(db.store))
    write(db, changes := rounds(3, 1)[0])

    with pytest.raises(Fenced, match="took this store over"):
        first.step()
    second.catch_up()
    assert wrong_views(db, changes) == []


def test_a_coordinator_that_was_replaced_stops_though_there_is_nothing_to_do(db: vk.Database) -> None:
    first = Coordinator(db.store, HereRunner(db.store))
    first.catch_up()
    Coordinator(db.store, HereRunner(db.store))

    with pytest.raises(Fenced, match="took this store over"):
        first.catch_up()


def test_a_coordinator_replaced_while_it_runs_does_not_commit(db: vk.Database) -> None:
    write(db, changes := rounds(4, 1)[0])
    here = HereRunner(db.store)

    class Replaced:
        def run(self, plan: object, epoch: object) -> Counts:
            done = here.run(plan, epoch)
            self.other = Coordinator(db.store, here)
            return done

    runner = Replaced()
    with pytest.raises(Fenced):
        Coordinator(db.store, runner).step()
    assert db.store.read_epoch_record().committed == 0
    runner.other.catch_up()
    assert wrong_views(db, changes) == []


def test_an_epoch_that_failed_is_taken_up_again_by_the_same_coordinator(db: vk.Database) -> None:
    write(db, changes := rounds(5, 1)[0])

    class FailsOnce:
        attempts = 0

        def run(self, plan: object, epoch: object) -> Counts:
            self.attempts += 1
            done = HereRunner(db.store).run(plan, epoch)
            if self.attempts == 1:
                raise EpochFailed("a worker was lost")
            return done

    runner = FailsOnce()
    Coordinator(db.store, runner).catch_up()

    assert runner.attempts == 2
    assert db.store.read_epoch_record().aborted == ()
    assert wrong_views(db, changes) == []


def test_an_epoch_that_is_too_large_is_given_up_and_its_changes_go_in_smaller_ones(db: vk.Database) -> None:
    changes = [change for part in rounds(6, 60) for change in part]

    class LacksMemory:
        def run(self, plan: object, epoch: object) -> Counts:
            done = HereRunner(db.store).run(plan, epoch)  # what it wrote is nobody's to see
            if epoch.stop.changes > 1_500:
                raise EpochFailed("a worker was killed")
            return done

    told: list[Event] = []
    keep_up(db)
    write(db, changes)
    assert db.store.describe(db.store.read_epoch_record().positions).changes > 1_500
    Coordinator(db.store, LacksMemory(), events=told.append).catch_up()
    record = db.store.read_epoch_record()

    assert [event.epoch for event in told if isinstance(event, Aborted)] == list(record.aborted) != []
    assert wrong_views(db, changes) == []


def test_the_smallest_epoch_that_fails_is_told(db: vk.Database) -> None:
    write(db, rounds(5, 1)[0])

    class Fails:
        def run(self, plan: object, epoch: object) -> Counts:
            raise EpochFailed("no disk")

    with pytest.raises(EpochFailed, match="no disk"):
        Coordinator(db.store, Fails()).catch_up()
    keep_up(db)
    assert db.store.read_epoch_record().aborted == ()


def test_a_view_whose_work_fails_is_stopped_and_the_others_go_on(db: vk.Database) -> None:
    write(db, changes := rounds(5, 1)[0])
    keep_up(db)
    broken = db.catalog().views[0]
    write(db, more := rounds(8, 1)[0])

    class Breaks:
        def run(self, plan: PhysicalPlan, epoch: object) -> Counts:
            done = HereRunner(db.store).run(plan, epoch)
            if any(node.table == broken.node.table for node in plan.nodes):
                raise ViewFailed(broken.node.table, "its sums leave 128 bits")
            return done

    told: list[Event] = []
    Coordinator(db.store, Breaks(), events=told.append).catch_up()
    (status,) = [view for view in db.status().views if view.name == broken.name]

    (reason,) = [event.reason for event in told if isinstance(event, Aborted)]
    assert (
        reason.startswith("view") and f" {broken.name}" in reason and reason.endswith("failed: its sums leave 128 bits")
    )
    assert (status.ready, status.stopped) == (None, "its sums leave 128 bits")
    with pytest.raises(vk.NotReady, match="its sums leave 128 bits; viewkeeper rebuild"):
        list(db.view(broken.name).scan())
    assert any(f"view {broken.name} is stopped" in warning for warning in db.status().warnings)
    db.execute(f"DROP MATERIALIZED VIEW {broken.name}")
    assert wrong_views(db, changes + more) == []
    db.execute(f"CREATE MATERIALIZED VIEW {broken.name} AS {broken.text}")
    keep_up(db)
    assert wrong_views(db, changes + more) == []
    assert db.store.read_epoch_record().stopped == {}


def test_what_fails_though_it_is_stopped_ends_the_run_and_is_not_tried_for_ever(db: vk.Database) -> None:
    write(db, changes := rounds(5, 1)[0])
    delta = next(iter(db.catalog().tables)).id

    class Breaks:
        def run(self, plan: PhysicalPlan, epoch: object) -> Counts:
            raise ViewFailed(delta, "a row does not fit")

    with pytest.raises(EpochFailed, match="^table .*, which every epoch needs, failed again: a row does not fit"):
        Coordinator(db.store, Breaks()).catch_up()
    keep_up(db)
    assert wrong_views(db, changes) == []


def test_events_tell_what_happened_in_order(db: vk.Database) -> None:
    events: list[Event] = []
    write(db, rounds(6, 1)[0])
    Coordinator(db.store, HereRunner(db.store), events=events.append).catch_up()

    assert [type(event) for event in events] == [TookOver, Began, Backfilling, Committed]
    assert events[-1].epoch == 1
    assert events[-1].changes == sum(db.store.ends().values())


def test_epochs_have_about_the_size_asked_for(tmp_path: Path) -> None:
    db = make_database(tmp_path / "s", nodes=2, cases=("counted",))
    keep_up(db)
    for number in range(40):
        db.table("t").put(f"k{number}", {"x": "a"})
    done = Coordinator(db.store, HereRunner(db.store), limits=EpochLimits(changes=10)).catch_up()

    assert sum(epoch.changes for epoch in done) == 40
    assert max(epoch.changes for epoch in done) <= 11


def test_what_was_dropped_is_removed_between_epochs_and_only_that(db: vk.Database) -> None:
    write(db, changes := rounds(7, 1)[0])
    keep_up(db)
    dropped = db.view("totals").definition.node.table
    db.execute("DROP MATERIALIZED VIEW totals")
    assert dropped in {table for table, _, _ in dump(db.store)}
    collect_garbage(db.store)

    assert {table for table, _, _ in dump(db.store)} == {db.view("counted").definition.node.table}
    assert db.catalog().dropped == ()
    assert wrong_views(db, changes) == []


def test_a_view_made_again_under_the_same_name_is_another_one(db: vk.Database) -> None:
    write(db, changes := rounds(8, 1)[0])
    keep_up(db)
    old = db.view("totals")
    db.execute("DROP MATERIALIZED VIEW totals; CREATE MATERIALIZED VIEW totals AS SELECT COUNT(x) AS n FROM t")

    with pytest.raises(vk.UnknownName, match="was dropped"):
        old.get()
    with pytest.raises(NotReady):
        db.view("totals").get()
    keep_up(db)
    collect_garbage(db.store)
    assert wrong_views(db, changes, names=("counted",)) == []
    assert set(db.view("totals").get()) == {"n"}


def test_nothing_is_collected_while_an_epoch_is_in_flight(db: vk.Database) -> None:
    write(db, rounds(9, 1)[0])
    db.execute("DROP MATERIALIZED VIEW totals")
    with pytest.raises(Interrupted):
        Coordinator(db.store, RunThenDie(HereRunner(db.store))).step()
    before, entries = dump(db.store), db.store.facts().log_entries
    collect_garbage(db.store)

    assert dump(db.store) == before
    assert db.store.facts().log_entries == entries
    assert len(db.catalog().dropped) == 2  # the view and its list of degraded groups


def test_an_epoch_in_which_each_pipeline_dies_is_given_up_for_smaller_ones(db: vk.Database) -> None:
    """The system ends a process that takes too much memory: nothing that it could note of it."""
    keep_up(db)
    write(db, changes := [change for part in rounds(4, 10) for change in part])
    limits, sizes, events = EpochLimits(takeovers_max=2, smallest_work=len(changes) // 3), list[int](), list[Event]()

    class Limited(HereRunner):
        def run(self, plan: PhysicalPlan, epoch: Inflight) -> Counts:
            sizes.append(epoch.stop.changes)
            if epoch.stop.changes > limits.smallest_work:
                raise Interrupted
            return super().run(plan, epoch)

    def lives() -> bool:
        try:
            Coordinator(db.store, Limited(db.store), limits=limits, events=events.append).catch_up()
        except Interrupted:
            return False
        return True

    deaths = next(number for number in range(20) if lives())
    reasons = [event.reason for event in events if isinstance(event, Aborted)]
    assert deaths == 3 * len(reasons) > 3 and set(reasons) == {"3 pipelines left it in flight: the next one is smaller"}
    assert sizes[0] > sizes[3] > sizes[6] < limits.smallest_work
    assert wrong_views(db, changes) == []
