"""A session that starts beside other work: until it is there the driver works, and its failure reaches who asks for it."""

from __future__ import annotations

import contextlib
import os
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace

import pytest

import viewkeeper as vk
from viewkeeper.client.database import Database
from viewkeeper.coordinator.coordinator import Coordinator
from viewkeeper.engine import lazy_session, loop
from viewkeeper.engine.lazy_session import LazySession
from viewkeeper.engine.loop import EpochLoop
from viewkeeper.engine.runner import SparkRunner
from viewkeeper.engine.spark_session import let_others_go_first_here, require_spark
from viewkeeper.errors import Fenced, JavaMissing, StoreError
from viewkeeper.events import Event
from viewkeeper.settings import EngineSettings

ROWS = 300


@pytest.fixture
def may_start(monkeypatch: pytest.MonkeyPatch) -> threading.Event:
    """Until it is set, no session comes up; then the start fails, for there is no JVM here."""
    go_on = threading.Event()

    def start(view_managers: int) -> object:
        go_on.wait(60)
        raise StoreError("no JVM in a unit test")

    monkeypatch.setattr(lazy_session, "require_spark", lambda: None)
    monkeypatch.setattr(lazy_session, "default_session", start)
    return go_on


@contextmanager
def _database(path: Path) -> Iterator[Database]:
    with vk.connect(f"embedded:{path / 'store'}?sync=off") as db:
        db.execute("CREATE TABLE t (k INT PRIMARY KEY, v INT)")
        db.execute("CREATE MATERIALIZED VIEW v AS SELECT COUNT(*) AS n, SUM(v) AS s FROM t")
        db.table("t").put_many([{"k": k, "v": k} for k in range(ROWS)])
        yield db


def _runner(db: Database, session: LazySession, *, meanwhile_work: int) -> SparkRunner:
    return SparkRunner(
        db.store, session, view_managers=2, settings=EngineSettings(small_work_max=0, meanwhile_work=meanwhile_work)
    )


def test_the_driver_does_what_it_can_while_spark_starts(tmp_path: Path, may_start: threading.Event) -> None:
    with _database(tmp_path) as db:
        session = LazySession(None, view_managers=2)
        Coordinator(db.store, _runner(db, session, meanwhile_work=ROWS)).catch_up()

        assert not session.is_ready
        assert db.view("v").get() == {"n": ROWS, "s": sum(range(ROWS))}
        may_start.set()


def test_spark_is_started_when_epochs_come_to_more_than_a_start_is_worth(
    tmp_path: Path, may_start: threading.Event
) -> None:
    may_start.set()
    with _database(tmp_path) as db:
        session = LazySession(None, view_managers=2)
        coordinator = Coordinator(db.store, _runner(db, session, meanwhile_work=ROWS + 10))
        coordinator.catch_up()
        for number in range(10):
            db.table("t").put({"k": ROWS + number, "v": 0})
            coordinator.catch_up()
        assert not session.is_ready
        assert not [thread for thread in threading.enumerate() if thread.name == "viewkeeper-spark-start"]

        db.table("t").put({"k": -1, "v": 0})
        with contextlib.suppress(StoreError):  # its start may have failed before it is looked at
            coordinator.catch_up()
        with pytest.raises(StoreError, match="no JVM in a unit test"):
            session.get()


def test_a_larger_epoch_waits_for_spark(tmp_path: Path, may_start: threading.Event) -> None:
    may_start.set()
    with _database(tmp_path) as db:
        runner = _runner(db, LazySession(None, view_managers=2), meanwhile_work=ROWS - 1)

        with pytest.raises(StoreError, match="no JVM in a unit test"):
            Coordinator(db.store, runner).catch_up()


def test_an_idle_pipeline_is_told_that_another_one_took_over(tmp_path: Path, may_start: threading.Event) -> None:
    with _database(tmp_path) as db, db.pipeline() as pipeline:
        pipeline.start()
        pipeline.wait_for(db.table("t").put({"k": -1, "v": 0}))
        pipeline.raise_failure()

        Coordinator(db.store, _runner(db, LazySession(None, view_managers=2), meanwhile_work=ROWS))
        with pytest.raises(Fenced, match="took this store over"):
            pipeline.raise_failure()
        may_start.set()
        with contextlib.suppress(Fenced, StoreError):  # its thread may have heard of that, too
            pipeline.stop()


@pytest.mark.skipif(sys.platform != "linux", reason="a thread has no priority of its own there")
def test_what_is_done_until_spark_is_there_lets_base_writes_go_first(
    tmp_path: Path, may_start: threading.Event
) -> None:
    here = os.getpriority(os.PRIO_PROCESS, threading.get_native_id())
    with _database(tmp_path) as db:
        began: list[int] = []

        def note(event: Event) -> None:
            began.append(os.getpriority(os.PRIO_PROCESS, threading.get_native_id()))

        with db.pipeline(events=note) as pipeline:
            began.clear()  # taking over is done here
            pipeline.start()
            pipeline.wait_for(db.table("t").put({"k": -1, "v": 0}))
            may_start.set()
            with contextlib.suppress(StoreError):
                pipeline.stop()
    assert set(began) == {max(here, 5)}  # never more than it was given
    assert os.getpriority(os.PRIO_PROCESS, threading.get_native_id()) == here


def test_a_start_that_fails_is_told_to_everyone_who_asks(may_start: threading.Event) -> None:
    may_start.set()
    session = LazySession(None, view_managers=1)
    for _ in range(2):
        with pytest.raises(StoreError, match="no JVM in a unit test"):
            session.get()
    assert session.is_ready


@pytest.mark.parametrize(("told", "fact"), [("17.0.9", None), ("21", None), ("16.0.2", "is 16"), ("1.8.0_392", "is 1")])
def test_a_java_that_is_too_old_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, told: str, fact: str | None
) -> None:
    java = tmp_path / "bin" / "java"
    java.parent.mkdir()
    java.write_text(f"#!/bin/sh\necho 'openjdk version \"{told}\" 2023-10-17' >&2\n")
    java.chmod(0o755)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    if fact is None:
        assert require_spark() == str(java)
    else:
        with pytest.raises(JavaMissing, match=f"Spark needs Java 17, .*{fact}"):
            require_spark()


@pytest.mark.parametrize(("nice", "then"), [(-3, 5), (4, 5), (5, 5), (6, 6), (19, 19)])
def test_a_thread_that_lets_others_go_first_is_never_given_more(
    monkeypatch: pytest.MonkeyPatch, nice: int, then: int
) -> None:
    made: list[int] = []
    monkeypatch.setattr(os, "getpriority", lambda which, who: nice)
    monkeypatch.setattr(os, "setpriority", lambda which, who, priority: made.append(priority))
    monkeypatch.setattr(sys, "platform", "linux")
    let_others_go_first_here()

    assert made == [then]


def test_without_java_nothing_is_begun(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VIEWKEEPER_JAVA", "none")
    session = LazySession(None, view_managers=1)

    with pytest.raises(JavaMissing):
        session.begin()
    assert not session.is_ready


class _Query:
    """A query that does nothing; `ends` of itself when it is first looked at, with that problem."""

    def __init__(self, ends: Exception | None = None) -> None:
        self.isActive, self.is_stopped, self._problem = ends is None, False, ends

    def stop(self) -> None:
        self.is_stopped = True

    def exception(self) -> Exception | None:
        return self._problem


def _loop(
    catch_up: Callable[[Callable[[], None]], object],
    written: list[int] | None = None,
    every: float = 0.05,
    spark: object = None,
    **store: Callable[[], object],
) -> EpochLoop:
    coordinator = SimpleNamespace(
        catch_up=lambda gather: catch_up(gather), collect_garbage=lambda: None, require_ownership=lambda: None
    )
    written = [0] if written is None else written
    calls = {"ends": lambda: {"0": written[0]}, "read_frontier": lambda: SimpleNamespace(catalog_version=0)} | store
    capabilities = SimpleNamespace(many_processes=True, epoch_seconds=every)
    return EpochLoop(coordinator, SimpleNamespace(capabilities=capabilities, **calls), spark=spark)


@pytest.fixture
def queries(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., SimpleNamespace]]:
    """Puts queries of a Spark without a JVM in place of real ones: those given one after the other, and then a good one."""
    epoch_query = pytest.importorskip("viewkeeper.engine.epoch_query")
    monkeypatch.setattr(loop, "RETRY_SECONDS", 0.001)

    def follow(*given: _Query) -> SimpleNamespace:
        known = SimpleNamespace(begun=threading.Semaphore(0), all=[], work=None)

        @contextmanager
        def begin(session: object, store: object, work: object, seconds: float) -> Iterator[_Query]:
            query = given[len(known.all)] if len(known.all) < len(given) else _Query()
            known.all.append(query)
            known.work = work
            known.begun.release()
            try:
                yield query
            finally:
                query.stop()

        monkeypatch.setattr(epoch_query, "epoch_query", begin)
        return known

    yield follow


def _session() -> SimpleNamespace:
    """A session that is up."""
    return SimpleNamespace(get=object, require_running=lambda: None, translate_lost=contextlib.nullcontext)


def test_stopping_waits_for_epochs_that_spark_does_not_wait_for(queries: Callable) -> None:
    begun, may_end, ended = threading.Event(), threading.Event(), []

    def catch_up(gather: Callable[[], None]) -> None:
        begun.set()
        may_end.wait(60)
        ended.append(known.all[0].is_stopped)

    known = queries()
    running = _loop(catch_up, spark=_session())
    assert known.begun.acquire(timeout=60)
    handler = threading.Thread(target=known.work, args=(None, 0))
    handler.start()
    assert begun.wait(60)
    threading.Timer(0.3, may_end.set).start()
    running.stop()
    assert ended == [False] and known.all[0].is_stopped
    handler.join()


def test_a_batch_runs_epochs_and_nothing_else_does(queries: Callable) -> None:
    known, calls, written = queries(), [], [0]
    running = _loop(lambda gather: calls.append(written[0]), written, every=0.001, spark=_session())
    assert known.begun.acquire(timeout=60)
    written[0] = 7
    known.work(None, 1)
    assert calls == [7]
    running.stop()
    known.work(None, 2)  # too late
    assert calls == [7]


def test_changes_are_noticed_and_an_idle_look_runs_nothing() -> None:
    calls, looks, written = [], threading.Semaphore(0), [0]
    look = lambda: looks.release() or SimpleNamespace(catalog_version=0)  # noqa: E731
    running = _loop(lambda gather: calls.append(written[0]), written, read_frontier=look)
    for _ in range(6):
        assert looks.acquire(timeout=60)
    assert calls == [0]  # what was there before
    written[0] = 7
    for _ in range(3):
        assert looks.acquire(timeout=60)
    assert calls == [0, 7]
    running.stop()


def test_epochs_one_after_the_other_leave_time_for_changes_to_gather() -> None:
    waits: list[float] = []
    running = _loop(lambda gather: None, every=1_000.0)
    running.stop()
    assert not running._gather()
    running._begun = -1_000.0
    running._stopping = SimpleNamespace(wait=waits.append, is_set=lambda: False)
    assert running._gather() and running._gather() and running._gather()
    assert [bool(seconds) for seconds in waits] == [False, True, True]


@pytest.mark.parametrize("reason", ["Python worker failed to connect back.", "Python worker exited unexpectedly"])
def test_a_query_that_has_ended_is_followed_by_another_and_is_no_failure(queries: Callable, reason: str) -> None:
    known = queries(_Query(RuntimeError(reason)), _Query(RuntimeError(reason)))
    running = _loop(lambda gather: None, spark=_session())
    for _ in range(3):
        assert known.begun.acquire(timeout=60)
        running.raise_failure()
    assert known.all[2].isActive
    running.stop()
    assert len(known.all) == 3 and all(query.is_stopped for query in known.all)


def test_workers_that_lack_what_the_query_needs_end_the_loop(queries: Callable) -> None:
    known = queries(_Query(RuntimeError("ModuleNotFoundError: No module named 'viewkeeper'")))
    running = _loop(lambda gather: None, spark=_session())
    running._thread.join(60)
    with pytest.raises(vk.SparkUnfit, match="no module viewkeeper"):
        running.raise_failure()
    assert len(known.all) == 1


@pytest.mark.parametrize("error", [vk.EpochFailed("epoch 1 failed"), KeyError("epoch 1 failed")])
def test_whatever_fails_in_a_batch_ends_the_query(queries: Callable, error: Exception) -> None:
    def fail(gather: Callable[[], None]) -> None:
        raise error

    known = queries()
    running = _loop(fail, spark=_session())
    assert known.begun.acquire(timeout=60)
    known.work(None, 0)
    with pytest.raises(vk.EpochFailed, match="epoch 1 failed"):
        running.raise_failure()
    running._thread.join(60)
    assert known.all[0].is_stopped


def test_whatever_ends_the_thread_is_raised() -> None:
    def fail(gather: Callable[[], None]) -> None:
        raise KeyError("a bug")

    running = _loop(fail)
    running._thread.join(60)
    with pytest.raises(vk.EpochFailed, match="stopped because of an unexpected error: 'a bug'"):
        running.raise_failure()


def test_a_pipeline_that_is_closed_waits_for_no_spark(tmp_path: Path, may_start: threading.Event) -> None:
    with _database(tmp_path) as db:
        settings = EngineSettings(small_work_max=0, meanwhile_work=0)
        pipeline = db.pipeline(settings=settings)
        pipeline.start()
        while db.store.read_epoch_record().inflight is None:
            pipeline.raise_failure()
        pipeline.close()
        assert not may_start.is_set()
        assert db.store.read_epoch_record().inflight is not None  # for the next one
    may_start.set()


def test_who_waits_for_a_pipeline_that_has_ended_is_told_why(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(**options: object) -> None:
        raise vk.EpochFailed("epoch 1 failed")

    with vk.connect("memory:") as db:
        db.execute("CREATE TABLE t (k INT PRIMARY KEY)")
        pipeline = db.pipeline()
        monkeypatch.setattr(pipeline._coordinator, "catch_up", fail)
        token = db.table("t").put(1, {})
        monkeypatch.setattr(EpochLoop, "raise_failure", lambda loop: None)  # it ends after that was asked
        pipeline.start()
        with pytest.raises(vk.EpochFailed, match="epoch 1 failed"):
            pipeline.wait_for(token, timeout=20)
        with pytest.raises(vk.EpochFailed, match="epoch 1 failed"):
            pipeline.close()
