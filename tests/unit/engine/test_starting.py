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
from viewkeeper.engine import lazy_session, streaming
from viewkeeper.engine.lazy_session import LazySession
from viewkeeper.engine.runner import SparkRunner
from viewkeeper.engine.spark_session import let_others_go_first_here, require_spark
from viewkeeper.engine.streaming import StreamingLoop
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
        session.wait()
        assert not session.is_ready

        db.table("t").put({"k": -1, "v": 0})
        with contextlib.suppress(StoreError):  # its start may have failed before it is looked at
            coordinator.catch_up()
        session.wait()
        assert session.is_ready


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
    """A query that does nothing; it stops at once, as Spark's does while a handler runs in Python."""

    isActive = True

    def stop(self) -> None:
        pass

    def exception(self) -> None:
        return None


def _loop(
    monkeypatch: pytest.MonkeyPatch,
    catch_up: Callable[[Callable[[], None]], object],
    written: list[int] | None = None,
    start: Callable[[StreamingLoop], _Query] = lambda loop: _Query(),
    every: float = 0.05,
) -> StreamingLoop:
    monkeypatch.setattr(StreamingLoop, "_start_query", start)
    coordinator = SimpleNamespace(
        catch_up=lambda gather: catch_up(gather), collect_garbage=lambda: None, require_ownership=lambda: None
    )
    written = [0] if written is None else written
    store = SimpleNamespace(
        capabilities=SimpleNamespace(many_processes=True, epoch_seconds=every),
        ends=lambda: {"0": written[0]},
        read_horizon=lambda: SimpleNamespace(catalog_version=0),
    )
    return StreamingLoop(LazySession(object(), view_managers=1), coordinator, store)


def test_stopping_waits_for_an_epoch_that_spark_does_not_wait_for(monkeypatch: pytest.MonkeyPatch) -> None:
    begun, may_end, ended = threading.Event(), threading.Event(), threading.Event()

    def catch_up(gather: Callable[[], None]) -> None:
        begun.set()
        may_end.wait(60)
        ended.set()

    loop = _loop(monkeypatch, catch_up)
    handler = threading.Thread(target=loop._wake, args=(None, 0))
    handler.start()
    assert begun.wait(60)
    threading.Timer(0.3, may_end.set).start()
    loop.stop()
    assert ended.is_set()
    handler.join()


def test_no_view_waits_for_the_first_batches_of_the_query(monkeypatch: pytest.MonkeyPatch) -> None:
    caught_up, written = threading.Semaphore(0), [0]
    loop = _loop(monkeypatch, lambda gather: caught_up.release(), written)
    for _ in range(3):
        assert caught_up.acquire(timeout=60)
        written[0] += 1
    loop.stop()


def test_changes_are_noticed_beside_the_query_and_an_idle_look_runs_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    calls, looks, written = [], threading.Semaphore(0), [0]
    loop = _loop(monkeypatch, lambda gather: calls.append(written[0]), written)
    loop._store.read_horizon = lambda: looks.release() or SimpleNamespace(catalog_version=0)
    loop._wake(None, 1)
    for _ in range(3):  # the first looks find something
        assert looks.acquire(timeout=60)
    idle = len(calls)
    for _ in range(3):
        assert looks.acquire(timeout=60)
    assert len(calls) == idle
    written[0] = 7
    for _ in range(3):
        assert looks.acquire(timeout=60)
    assert calls[idle:] == [7]
    loop.stop()


def test_epochs_one_after_the_other_leave_time_for_changes_to_gather(monkeypatch: pytest.MonkeyPatch) -> None:
    waits: list[float] = []
    loop = _loop(monkeypatch, lambda gather: None, every=1_000.0)
    loop.stop()
    assert not loop._gather()
    loop._begun = -1_000.0
    loop._stopping = SimpleNamespace(wait=waits.append, is_set=lambda: False)
    assert loop._gather() and loop._gather() and loop._gather()
    assert [bool(seconds) for seconds in waits] == [False, True, True]


@pytest.mark.parametrize("reason", ["Python worker failed to connect back.", "Python worker exited unexpectedly"])
def test_a_query_that_has_ended_is_started_again_and_is_no_failure(
    monkeypatch: pytest.MonkeyPatch, reason: str
) -> None:
    class Ended(_Query):
        isActive = False

        def exception(self) -> Exception:
            return RuntimeError(reason)

    looks, queries = threading.Semaphore(0), [Ended(), Ended(), _Query()]
    started = []
    monkeypatch.setattr(streaming, "_LOOKS_AT_QUERY", 2)
    loop = _loop(
        monkeypatch, lambda gather: None, start=lambda loop: started.append(queries[len(started)]) or started[-1]
    )
    loop._store.read_horizon = lambda: looks.release() or SimpleNamespace(catalog_version=0)
    loop._wake(None, 1)
    for _ in range(10):
        assert looks.acquire(timeout=60)
        loop.raise_failure()
    loop.stop()
    assert started == queries


def test_a_worker_that_is_late_for_ever_is_asked_for_less_and_less_often(monkeypatch: pytest.MonkeyPatch) -> None:
    class Ended(_Query):
        isActive = False

        def exception(self) -> Exception:
            return RuntimeError("Python worker failed to connect back.")

    looks, started = threading.Semaphore(0), []
    monkeypatch.setattr(streaming, "_LOOKS_AT_QUERY", 1)
    loop = _loop(monkeypatch, lambda gather: None, start=lambda loop: started.append(1) or Ended(), every=0.001)
    loop._store.read_horizon = lambda: looks.release() or SimpleNamespace(catalog_version=0)
    for _ in range(70):
        assert looks.acquire(timeout=60)
    loop.stop()
    assert 6 <= len(started) <= 9


def test_whatever_ends_the_thread_is_raised(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(gather: Callable[[], None]) -> None:
        raise KeyError("a bug")

    loop = _loop(monkeypatch, fail)
    loop._opening.join(60)
    with pytest.raises(vk.EpochFailed, match="the pipeline's thread ended: 'a bug'"):
        loop.raise_failure()


def test_who_waits_for_a_pipeline_that_has_ended_is_told_why(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(**options: object) -> None:
        raise vk.EpochFailed("epoch 1 failed")

    with vk.connect("memory:") as db:
        db.execute("CREATE TABLE t (k INT PRIMARY KEY)")
        pipeline = db.pipeline()
        monkeypatch.setattr(pipeline._coordinator, "catch_up", fail)
        token = db.table("t").put(1, {})
        monkeypatch.setattr(StreamingLoop, "raise_failure", lambda loop: None)  # it ends after that was asked
        pipeline.start()
        with pytest.raises(vk.EpochFailed, match="epoch 1 failed"):
            pipeline.wait_for(token, timeout=20)
        with pytest.raises(vk.EpochFailed, match="epoch 1 failed"):
            pipeline.close()
