"""A swap that got no reply may be done later, as HBase allows: the pipeline goes on from what it left (R5)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import viewkeeper as vk
from tests.support.running import HereRunner, keep_up
from tests.support.simulation.processes import calm_database
from tests.support.stores import make_database, make_views, rounds, write, wrong_views
from viewkeeper.coordinator.coordinator import Coordinator
from viewkeeper.errors import EpochTooLarge, Fenced, StoreFull, StoreUnavailable
from viewkeeper.events import Committed
from viewkeeper.model import epochs
from viewkeeper.model.epochs import EpochRecord, Inflight
from viewkeeper.model.work_stats import Counts
from viewkeeper.plan.physical import PhysicalPlan
from viewkeeper.ports.meta import change_epoch_record

BEGIN, COMMIT, ABORT = 1, 2, 2  # the numbers of these swaps: the first one takes over


class Late:
    """A store and its runner: the swap of one number gets no reply, and is done at a place that is reached afterwards."""

    def __init__(self, store: object, number: int, place: str, *, failures: int = 0) -> None:
        self._store, self._left, self._place, self._failures = store, number, place, failures
        self._held: tuple[int, EpochRecord] | None = None
        self._looks = 0
        self.landed: bool | None = None
        self.afterwards: Callable[[], None] = lambda: None

    def __getattr__(self, name: str) -> object:
        return getattr(self._store, name)

    def swap_epoch_record(self, version: int, record: EpochRecord) -> bool:
        self._left -= 1
        if self._left == -1:
            self._held, self._looks = (version, record), 0
            raise StoreUnavailable("no reply")
        return self._store.swap_epoch_record(version, record)

    def read_epoch_record(self) -> EpochRecord:
        self._looks += 1
        if self._looks > 1:  # the first one is of who swapped
            self._land("look")
        return self._store.read_epoch_record()

    def cut(self, *given: object, **limits: object) -> object:
        self._land("cut")
        return self._store.cut(*given, **limits)

    def admit(self, epoch: object) -> None:
        self._land("admit")
        self._store.admit(epoch)

    def sync(self, **given: object) -> None:
        self._land("sync")
        self._store.sync(**given)

    def run(self, plan: object, epoch: object) -> object:
        self._land("run")
        if self._failures:
            self._failures -= 1
            raise EpochTooLarge(plan.nodes[0].table, "too many rows")
        counts = HereRunner(self._store).run(plan, epoch)
        self._land("ran")
        return counts

    def _land(self, place: str) -> None:
        if self._held is not None and place == self._place:
            held, self._held = self._held, None
            self.landed = self._store.swap_epoch_record(*held)
            self.afterwards()


@pytest.fixture(params=["embedded", "hbase"])
def db(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[vk.Database]:
    if request.param == "embedded":
        yield make_database(tmp_path / "s", cases=("counted", "totals"))
        return
    with calm_database() as db:
        make_views(db, cases=("counted", "totals"))
        yield db


def go_on(late: Late) -> list[Committed]:
    """What a pipeline does where the store did not answer: the same coordinator tries again."""
    coordinator = Coordinator(late, late)
    with pytest.raises(StoreUnavailable):
        coordinator.catch_up()
    done = coordinator.catch_up()
    assert late.landed is True
    coordinator.require_ownership()
    return done


def test_an_epoch_whose_begin_is_done_late_is_run(db: vk.Database) -> None:
    write(db, changes := rounds(1, 1)[0])
    done = go_on(Late(db.store, BEGIN, "cut"))

    assert [one.epoch for one in done] == [1]
    assert wrong_views(db, changes) == []


@pytest.mark.parametrize("place", ["admit", "run", "ran", "sync"])
def test_an_epoch_whose_commit_is_done_late_is_committed_once(db: vk.Database, place: str) -> None:
    write(db, changes := rounds(1, 1)[0])
    done = go_on(Late(db.store, COMMIT, place))
    record = db.store.read_epoch_record()

    told = [one.epoch for one in done]
    assert told == [1] or (
        told == [] and place in ("admit", "run")
    )  # over HBase its run is cut short, and counts nothing
    assert (record.committed, record.last, record.inflight) == (1, 1, None)
    assert wrong_views(db, changes) == []


@pytest.mark.parametrize("failures", [1, 2])
def test_an_epoch_whose_abort_is_done_late_is_followed_by_another(db: vk.Database, failures: int) -> None:
    write(db, changes := [change for part in rounds(6, 60) for change in part])
    done = go_on(Late(db.store, ABORT, "run", failures=failures))

    assert done[0].epoch > 1
    assert db.store.read_epoch_record().aborted == (1,)
    assert wrong_views(db, changes) == []


@pytest.mark.parametrize(("number", "place"), [(BEGIN, "cut"), (COMMIT, "run"), (COMMIT, "sync")])
def test_who_was_taken_over_from_meanwhile_is_told_so(db: vk.Database, number: int, place: str) -> None:
    write(db, rounds(1, 1)[0])
    late = Late(db.store, number, place)
    late.afterwards = lambda: change_epoch_record(db.store, lambda record: epochs.take_over(record, "another"))
    coordinator = Coordinator(late, late)
    with pytest.raises(StoreUnavailable):
        coordinator.catch_up()
    with pytest.raises(Fenced, match="another pipeline took this store over"):
        coordinator.catch_up()


@pytest.mark.parametrize("place", ["look", "run"])
def test_a_view_takes_the_place_of_another_whose_last_epoch_is_committed_late(db: vk.Database, place: str) -> None:
    """Whether the late commit is found by the next look, or by the next run of the epoch."""
    keep_up(db)
    db.execute("CREATE OR REPLACE MATERIALIZED VIEW totals AS SELECT COUNT(x) AS other FROM t")
    go_on(Late(db.store, COMMIT, place))

    assert list(db.view("totals").get()) == ["other"]


def test_no_epoch_begins_with_a_plan_that_could_not_be_stored(db: vk.Database, monkeypatch: pytest.MonkeyPatch) -> None:
    """Who finishes the epoch after a death has only what is stored."""
    write(db, changes := rounds(1, 1)[0])
    found, keep, full = list[dict](), db.store.keep_json, iter([StoreFull("the disk is full")])

    def keep_later(kind: str, name: str, value: dict) -> None:
        for error in full if kind == "plan" else ():
            raise error
        keep(kind, name, value)

    class Runner(HereRunner):
        def run(self, plan: PhysicalPlan, epoch: Inflight) -> Counts:
            found.append(db.store.read_json("plan", epoch.plan))
            return super().run(plan, epoch)

    monkeypatch.setattr(db.store, "keep_json", keep_later)
    coordinator = Coordinator(db.store, Runner(db.store))
    with pytest.raises(StoreFull):
        coordinator.catch_up()
    coordinator.catch_up()
    assert len(found) == 1
    assert wrong_views(db, changes) == []
