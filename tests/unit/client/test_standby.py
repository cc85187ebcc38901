"""Standing by: who may run the pipeline next, and when."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

import viewkeeper as vk
from tests.support.running import begin_epoch, commit_epoch
from viewkeeper.client import pipeline as finishing
from viewkeeper.client import status
from viewkeeper.client.pipeline import Pipeline
from viewkeeper.coordinator.standby import Heartbeats, Patience, claim_in_turn, own_in_turn
from viewkeeper.errors import Fenced, PipelineRunning, StaleRead, StoreBusy, StoreFull, StoreUnavailable
from viewkeeper.events import Event, StandingBy, TookOver, Waiting
from viewkeeper.model import epochs
from viewkeeper.ports.meta import Holder

TABLES = """
CREATE TABLE t (k INT PRIMARY KEY, v INT);
CREATE MATERIALIZED VIEW sums AS SELECT v, COUNT(*) AS n FROM t GROUP BY v
"""


class Enough(Exception):
    """The standby has waited for long enough."""


@pytest.fixture(params=["embedded", "memory"])
def db(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[vk.Database]:
    place = f"embedded:{tmp_path / 's'}?sync=off" if request.param == "embedded" else "memory:"
    with vk.connect(place) as database:
        database.execute(TABLES)
        yield database


class Time:
    """A clock that a standby moves on by its waits; `then` is what happens at some of them."""

    def __init__(self, then: dict[int, object]) -> None:
        self.now, self._waits, self._then = 0.0, 0, then

    def wait(self, seconds: float) -> None:
        self.now += seconds
        self._waits += 1
        happens = self._then.get(self._waits)
        if happens is not None:
            happens()


def claim(
    db: vk.Database, then: dict[int, object], looks_max: int = 200, hang_seconds: float | None = None
) -> tuple[object, list[Event]]:
    """The claim that a standby with a patience of 10 seconds gets, and what it told until then."""
    told: list[Event] = []

    def tell(event: Event) -> None:
        told.append(event)
        if len(told) > looks_max:
            raise Enough

    time = Time(then)
    patience = Patience(10, hang_seconds)
    found = claim_in_turn(db.store, patience=patience, tell=tell, clock=lambda: time.now, wait=time.wait)
    return found, told


def test_a_store_that_nobody_runs_is_claimed_at_once(db: vk.Database) -> None:
    found, told = claim(db, {})
    assert found.is_held and told == []


def test_one_that_ends_is_followed_with_the_next_look(db: vk.Database) -> None:
    first = db.store.claim(take_over=False)
    _, told = claim(db, {3: first.release})
    assert [event.silent_seconds for event in told] == [0, 0.25, 0.5]


def test_one_that_is_silent_for_ten_seconds_is_taken_over_and_notices(db: vk.Database) -> None:
    first = db.store.claim(take_over=False)
    found, told = claim(db, {})
    assert told[-1].silent_seconds == 9.75 and {type(event) for event in told} == {StandingBy}
    with pytest.raises(Fenced):
        first.beat()
    first.release()
    found.beat()
    with pytest.raises(PipelineRunning):
        db.store.claim(take_over=False)


def test_one_that_shows_signs_of_life_is_never_taken_over(db: vk.Database) -> None:
    first = db.store.claim(take_over=False)
    with pytest.raises(Enough):
        claim(db, dict.fromkeys(range(30, 300, 30), first.beat))
    first.beat()


BEATS = range(4, 300, 4)  # looks at which a holder beats: once a second


def test_one_that_beats_and_does_not_get_on_is_taken_over_if_the_standby_was_told_so(db: vk.Database) -> None:
    first = db.store.claim(take_over=False)
    begin_epoch(db.store)
    with pytest.raises(Enough):
        claim(db, dict.fromkeys(BEATS, first.beat))
    found, told = claim(db, dict.fromkeys(BEATS, first.beat), hang_seconds=20)
    assert len(told) == pytest.approx(20 / 0.25, abs=2)
    with pytest.raises(Fenced):
        first.beat()
    found.beat()


def test_one_that_gets_on_is_not_taken_over_however_long_it_is_busy(db: vk.Database) -> None:
    first = db.store.claim(take_over=False)

    def next_epoch() -> None:
        first.beat()
        if (inflight := db.store.read_epoch_record().inflight) is not None:
            commit_epoch(db.store, inflight)
        db.table("t").put(1, {"v": 1})
        begin_epoch(db.store)

    with pytest.raises(Enough):
        claim(db, dict.fromkeys(BEATS, next_epoch), hang_seconds=5)


@pytest.mark.parametrize("given", [(10, 0), (10, -1), (-1, None), (float("nan"), None), (10, float("nan"))])
def test_a_patience_that_means_nothing_is_refused(given: tuple[float, float | None]) -> None:
    with pytest.raises(vk.InputError, match="seconds"):
        Patience(*given)


def test_one_that_has_nothing_to_do_does_not_hang(db: vk.Database) -> None:
    first = db.store.claim(take_over=False)
    with pytest.raises(Enough):
        claim(db, dict.fromkeys(BEATS, first.beat), hang_seconds=5)


def test_who_has_just_taken_an_epoch_over_has_its_own_time_for_it(db: vk.Database) -> None:
    first = db.store.claim(take_over=False)
    begin_epoch(db.store)

    def change_owner() -> None:
        first.beat()
        record = epochs.take_over(db.store.read_epoch_record(), "another")
        assert db.store.swap_epoch_record(record.version - 1, record)

    _, told = claim(db, dict.fromkeys(BEATS, first.beat) | {40: change_owner}, hang_seconds=20)
    assert len(told) == pytest.approx(10 / 0.25 + 20 / 0.25, abs=2)


def test_of_two_who_take_over_at_once_the_second_goes_on_waiting(db: vk.Database) -> None:
    db.store.claim(take_over=False)
    silent = db.store.holder()
    db.store.claim(take_over=True, instead_of=silent).beat()
    with pytest.raises(PipelineRunning):
        db.store.claim(take_over=True, instead_of=silent)


def test_a_store_that_cannot_be_written_is_tried_again(db: vk.Database) -> None:
    told, waited = list[Event](), list[float]()
    tries = iter([StoreBusy("busy"), Fenced("late"), StoreUnavailable("silent")])

    def own(claim: object) -> str:
        for error in tries:
            raise error
        return "mine"

    found, owned = own_in_turn(db.store, own, Patience(), told.append, wait=waited.append)
    assert owned == "mine" and found.is_held and len(waited) == 3
    assert told == [Waiting("busy"), Waiting("late"), Waiting("silent")]


def test_a_store_that_does_not_answer_ends_nobody_who_stands_by(
    db: vk.Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    told, holder, silent = list[Event](), db.store.holder, iter([StoreUnavailable("no reply"), StoreFull("full")])

    def ask() -> Holder | None:
        for error in silent:
            raise error
        return holder()

    monkeypatch.setattr(db.store, "holder", ask)
    found, _ = own_in_turn(db.store, lambda claim: None, Patience(), told.append, wait=lambda seconds: None)
    assert found.is_held and told == [Waiting("no reply"), Waiting("full")]


def test_beats_go_on_until_they_are_stopped_or_the_claim_is_lost(db: vk.Database) -> None:
    first = db.store.claim(take_over=False)
    heartbeats, seen = Heartbeats(first, seconds=0.001), set()
    while len(seen) < 3:
        seen.add(db.store.holder())
    second = db.store.claim(take_over=True)
    heartbeats._thread.join()
    heartbeats.close()
    second.beat()


def pipeline_of(db: vk.Database, **options: object) -> Pipeline:
    given = {"view_managers": 2, "spark": None, "take_over": False, "changes_per_epoch": None}
    return Pipeline(db, **(given | options))


def test_a_pipeline_that_stands_by_takes_over_and_goes_on_with_the_managers_asked_for(db: vk.Database) -> None:
    first, told = pipeline_of(db), list[Event]()
    first.scale(view_managers=5)
    db.table("t").put(1, {"v": 1})

    def tell(event: Event) -> None:
        if isinstance(event, StandingBy) and not told:
            first.close()
        told.append(event)

    with vk.connect(db.url) as other, pipeline_of(other, standby=True, events=tell) as second:
        second.run_available()
        assert second.view_managers == 5
        assert db.view("sums").get(1) == {"v": 1, "n": 1}
    assert [type(event) for event in told[:2]] == [StandingBy, TookOver]


def test_a_pipeline_that_lost_its_claim_says_so_and_writes_nothing(db: vk.Database) -> None:
    with vk.connect(db.url) as other, pipeline_of(db) as first:
        with pipeline_of(other, take_over=True) as second:
            db.table("t").put(1, {"v": 1})
            with pytest.raises(Fenced):
                first.run_available()
            assert db.epoch == 0
            second.run_available()


def test_an_epoch_that_hangs_is_done_by_a_standby_and_changes_nothing_when_it_goes_on(
    db: vk.Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run that ends only when it is told to cannot be produced otherwise."""
    hanging, told_to_go_on, ended = threading.Event(), threading.Event(), []
    with pipeline_of(db) as first, vk.connect(db.url) as other:
        run = first._runner.run

        def hang(*parts: object) -> object:
            hanging.set()
            told_to_go_on.wait()
            return run(*parts)

        def work() -> None:
            try:
                first.run_available()
            except Fenced as error:
                ended.append(error)

        monkeypatch.setattr(first._runner, "run", hang)
        db.table("t").put(1, {"v": 1})
        thread = threading.Thread(target=work)
        thread.start()
        hanging.wait()
        with pipeline_of(other, standby=True, patience=Patience(1e9, hang_seconds=0.5)) as second:
            second.run_available()
            assert db.view("sums").get(1) == {"v": 1, "n": 1}
            told_to_go_on.set()
            thread.join()
            db.table("t").put(2, {"v": 1})
            second.run_available()
    assert len(ended) == 1
    assert db.view("sums").get(1) == {"v": 1, "n": 2}


def test_a_claim_that_comes_too_late_does_not_own_the_epoch_record(db: vk.Database) -> None:
    """Stopped between its claim and its swap of the record, and taken over meanwhile: it must not get the record back."""
    from tests.support.running import HereRunner
    from viewkeeper.coordinator.coordinator import Coordinator

    late = db.store.claim(take_over=False)
    with vk.connect(db.url) as other, pipeline_of(other, take_over=True) as second:
        with pytest.raises(Fenced):
            Coordinator(db.store, HereRunner(db.store), claim=late)
        second.run_available()


def test_a_wait_is_ended_by_what_listens(db: vk.Database) -> None:
    stop = threading.Event()
    stop.set()

    def tell(event: Event) -> None:
        if stop.is_set():
            raise Enough

    with pipeline_of(db) as first, vk.connect(db.url) as other:
        with pytest.raises(Enough):
            pipeline_of(other, standby=True, events=tell)
        first.run_available()


def test_a_standby_that_takes_over_at_once_is_refused(db: vk.Database) -> None:
    with pytest.raises(vk.InputError, match="a standby waits"):
        pipeline_of(db, standby=True, take_over=True)


@pytest.mark.parametrize("lag", [1, 3, 4])
def test_a_pipeline_that_is_far_behind_is_warned_of(db: vk.Database, monkeypatch: pytest.MonkeyPatch, lag: int) -> None:
    monkeypatch.setattr(status, "LAG_WARNING_CHANGES", 4)
    with Pipeline(db, view_managers=1, spark=None, take_over=False, changes_per_epoch=None) as pipeline:
        pipeline.run_available()
        db.table("t").put_many([{"k": number, "v": 1} for number in range(lag)])
        told = db.status()

    assert told.lag_changes == lag
    warning = "the pipeline is 4 changes behind: the log grows; viewkeeper scale URL N sets its view managers"
    assert (warning in told.warnings) is (lag == 4)
    assert not any("no pipeline" in warning for warning in told.warnings)


@pytest.mark.parametrize("is_stuck", [False, True])
def test_a_pipeline_elsewhere_that_makes_no_step_for_five_minutes_is_told_of(
    db: vk.Database, monkeypatch: pytest.MonkeyPatch, is_stuck: bool
) -> None:
    record, now = db.store.read_epoch_record(), 0.0
    pauses = iter([(300.0, False), (1.0, not is_stuck), (300.0, False)])
    left = iter([True, True, True, False])

    def sleep(seconds: float) -> None:
        nonlocal record, now
        pause, is_step = next(pauses)
        now += pause
        record = replace(record, last=record.last + is_step)

    monkeypatch.setattr(finishing, "time", SimpleNamespace(monotonic=lambda: now, sleep=sleep))
    monkeypatch.setattr(db.store, "holder", lambda: Holder(7, 1))
    monkeypatch.setattr(db.store, "read_epoch_record", lambda: record)
    if is_stuck:
        with pytest.raises(StaleRead, match="the pipeline made no step for 300 s"):
            finishing.await_request(db, lambda: next(left), None)
    else:
        finishing.await_request(db, lambda: next(left), None)
    assert now == (301 if is_stuck else 601)
