"""Where epochs run is chosen by the caller, or by what there is to do; whoever looks is told where they ran, and why."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

import viewkeeper as vk
from viewkeeper.client.pipeline import Pipeline
from viewkeeper.engine import lazy_session
from viewkeeper.engine.runner import SparkRunner
from viewkeeper.events import Committed, Event, Where
from viewkeeper.ports.meta import live_holder
from viewkeeper.settings import Engine

SMALL = vk.EngineSettings(small_work_max=2, meanwhile_work=5)


@pytest.fixture
def db(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[vk.Database]:
    monkeypatch.setenv("VIEWKEEPER_JAVA", "none")
    with vk.connect(f"embedded:{tmp_path / 's'}?sync=off") as db:
        db.execute("CREATE TABLE t (k INT PRIMARY KEY)")
        db.execute("CREATE MATERIALIZED VIEW n AS SELECT COUNT(*) AS n FROM t")
        yield db


def put(db: vk.Database, count: int) -> None:
    db.table("t").put_many([{"k": number} for number in range(count)])


def runner(db: vk.Database, engine: Engine, *, is_ready: bool, settings: vk.EngineSettings = SMALL) -> SparkRunner:
    session = SimpleNamespace(is_ready=is_ready, begin=lambda: None, for_epochs=lambda: None)
    return SparkRunner(db.store, session, view_managers=2, engine=engine, settings=settings)


@pytest.mark.parametrize(
    ("engine", "is_ready", "work", "where"),
    [
        ("auto", True, 2, Where("driver", "small")),
        ("auto", False, 5, Where("driver", "not worth a start of Spark")),
        ("auto", False, 6, Where("spark", "large")),
        ("auto", True, 3, Where("spark", "large")),
        ("driver", True, 1 << 40, Where("driver", "asked for")),
        ("spark", True, 1, Where("spark", "asked for")),
    ],
)
def test_the_engine_and_the_work_decide(db: vk.Database, engine: str, is_ready: bool, work: int, where: Where) -> None:
    assert runner(db, Engine(engine), is_ready=is_ready)._choose(work) == where


def test_when_much_was_done_here_spark_is_started_and_that_is_the_reason(db: vk.Database) -> None:
    one = runner(db, Engine.AUTO, is_ready=False)
    assert [one._choose(3).reason for _ in range(2)] == ["not worth a start of Spark", "Spark is starting"]


def test_a_store_of_one_process_leaves_no_choice() -> None:
    with vk.connect("memory:") as db:
        assert runner(db, Engine.AUTO, is_ready=True)._choose(1 << 40) == Where(
            "driver", "no other process reaches the store"
        )
        with pytest.raises(vk.NotOffered, match="in the memory of this process"):
            db.pipeline(engine="spark")


def test_the_driver_needs_no_java_and_everybody_is_told(db: vk.Database, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lazy_session, "default_session", lambda *_, **__: pytest.fail("Spark was started"))
    events: list[Event] = []
    assert db.status().where is None
    settings = vk.EngineSettings(small_work_max=0, meanwhile_work=0)
    with db.pipeline(engine="driver", settings=settings, events=events.append) as pipeline:
        put(db, 10)
        (done,) = pipeline.run_available()
        pipeline.start()
        pipeline.wait_for(db.table("t").put(11, {}), timeout=60)
    asked = Where("driver", "asked for")

    assert done.where == db.status().where == asked
    assert [event.where for event in events if isinstance(event, Committed)] == [asked] * 2
    assert str(asked) == "on the driver (asked for)"


def test_without_java_the_other_engines_are_refused(db: vk.Database) -> None:
    for engine in ("auto", "spark"):
        with pytest.raises(vk.JavaMissing):
            db.pipeline(engine=engine)
    assert live_holder(db.store) is None


WRONG: dict[str, Callable[[vk.Database], Pipeline]] = {
    "engine='flink' is no engine": lambda db: db.pipeline(engine="flink"),
    "engine=None is no engine": lambda db: db.pipeline(engine=None),
    "settings={'small_work_max': 1} are no settings": lambda db: db.pipeline(settings={"small_work_max": 1}),
    "the engine driver uses no Spark session": lambda db: db.pipeline(engine="driver", spark=object()),
}


@pytest.mark.parametrize("fact", WRONG)
def test_what_makes_no_sense_is_refused(db: vk.Database, fact: str) -> None:
    with pytest.raises(vk.InputError, match=fact):
        WRONG[fact](db)
    assert live_holder(db.store) is None


def test_of_where_epochs_ran_a_note_is_kept_when_it_changes(db: vk.Database, monkeypatch: pytest.MonkeyPatch) -> None:
    notes: list[str] = []
    keep = db.store.keep_json
    monkeypatch.setattr(db.store, "keep_json", lambda kind, name, note: notes.append(name) or keep(kind, name, note))
    with db.pipeline(engine="driver") as pipeline:
        for number in range(3):
            put(db, number + 1)
            pipeline.run_available()
    assert notes.count("where") == 1
