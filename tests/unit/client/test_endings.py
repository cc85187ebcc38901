"""Endings: what belongs to a database ends with it, however it ends."""

from __future__ import annotations

import gc
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

import viewkeeper as vk
from viewkeeper.client.pipeline import Pipeline

TABLES = """
CREATE TABLE t (k INT PRIMARY KEY, v INT);
CREATE MATERIALIZED VIEW sums AS SELECT v, COUNT(*) AS n FROM t GROUP BY v
"""


@pytest.fixture(params=["embedded", "memory"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """A store with a view; one in memory lives while it is open."""
    place = f"embedded:{tmp_path / 's'}?sync=off" if request.param == "embedded" else f"memory:{tmp_path.name}"
    made = vk.connect(place)
    made.execute(TABLES)
    if request.param == "embedded":
        made.close()
    yield place
    made.close()


def require_free(url: str) -> None:
    """Raise unless a pipeline can be opened and run."""
    with vk.connect(url) as db, db.pipeline() as pipeline:
        pipeline.run_available()


@pytest.fixture(autouse=True)
def earlier() -> set[threading.Thread]:
    """The threads that other tests left."""
    return set(threading.enumerate())


def ours(earlier: set[threading.Thread]) -> list[threading.Thread]:
    """The threads that this test has started and that have not ended."""
    return [one for one in threading.enumerate() if one not in earlier and one.name.startswith("viewkeeper-")]


def test_close_ends_the_pipeline_that_was_opened_from_it(url: str, earlier: set[threading.Thread]) -> None:
    db = vk.connect(url)
    pipeline = db.pipeline()
    pipeline.run_available()
    db.close()
    require_free(url)
    pipeline.close()
    db.close()
    assert not ours(earlier)
    with pytest.raises(vk.InputError, match="closed"):
        pipeline.run_available()


def test_after_close_the_store_can_be_compacted(tmp_path: Path) -> None:
    url = f"embedded:{tmp_path / 's'}?sync=off"
    db = vk.connect(url)
    _held = db.pipeline()
    db.close()
    with vk.connect(url) as again:
        again.compact()


def test_close_stops_a_pipeline_that_runs_in_the_background(earlier: set[threading.Thread]) -> None:
    db = vk.connect("memory:background")
    keeper = vk.connect("memory:background")
    db.execute(TABLES)
    pipeline = db.pipeline()
    pipeline.start()
    pipeline.wait_for(db.table("t").put({"k": 1, "v": 1}))
    db.close()
    assert not ours(earlier)
    require_free("memory:background")
    keeper.close()


def test_close_leaves_the_pipeline_of_another_database_alone(url: str) -> None:
    with vk.connect(url) as other, other.pipeline() as pipeline:
        vk.connect(url).close()
        other.table("t").put({"k": 1, "v": 1})
        assert pipeline.run_available()


def test_an_exception_ends_the_pipeline_with_the_database(url: str) -> None:
    with pytest.raises(ZeroDivisionError), vk.connect(url) as db:
        _held = db.pipeline()
        _ = 1 // 0
    require_free(url)


def test_close_waits_for_a_pipeline_that_gives_up(url: str) -> None:
    db = vk.connect(url)
    db.pipeline()
    db.close()
    require_free(url)


def test_the_error_of_the_block_is_raised_and_not_one_of_closing(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(self: Pipeline) -> None:
        raise vk.StoreFull("no space left")

    monkeypatch.setattr(Pipeline, "stop", fail)
    with pytest.raises(ZeroDivisionError), vk.connect(url) as db:
        _held = db.pipeline()
        _ = 1 // 0
    again = vk.connect(url)
    _held = again.pipeline()
    with pytest.raises(vk.StoreFull):
        again.close()


def test_a_pipeline_that_nothing_refers_to_gives_up_its_claim(url: str, earlier: set[threading.Thread]) -> None:
    vk.connect(url).pipeline()
    for thread in ours(earlier):
        thread.join()
    require_free(url)


def test_in_a_cycle_too(url: str, earlier: set[threading.Thread]) -> None:
    cycle: list[object] = [vk.connect(url)]
    cycle += [cycle[0].pipeline(), cycle]
    del cycle
    gc.collect()
    for thread in ours(earlier):
        thread.join()
    require_free(url)


def test_a_pipeline_that_runs_in_the_background_goes_on_without_a_reference() -> None:
    db = vk.connect("memory:alone")
    db.execute(TABLES)
    db.pipeline().start()
    gc.collect()
    db.wait_for(db.table("t").put({"k": 1, "v": 1}))
    db.close()


def test_a_database_that_nothing_refers_to_is_closed(tmp_path: Path) -> None:
    url = f"embedded:{tmp_path / 's'}?sync=off"
    for _ in range(3):
        vk.connect(url).execute("SHOW TABLES")
    with vk.connect(url) as db:
        db.compact()


def test_a_second_pipeline_of_a_process_is_told_where_the_first_one_is(url: str) -> None:
    with vk.connect(url) as db, db.pipeline(), pytest.raises(vk.PipelineRunning, match="this process"):
        db.pipeline()


def test_who_waits_for_a_turn_finds_the_pipeline_closed(url: str) -> None:
    db = vk.connect(url)
    pipeline, met = db.pipeline(), list[BaseException]()

    def go_on() -> None:
        try:
            while True:
                pipeline.run_available()
        except vk.InputError as error:
            met.append(error)

    thread = threading.Thread(target=go_on)
    thread.start()
    db.close()
    thread.join()
    assert "closed" in str(met[0])
