"""A store that is gone for a minute: the pipeline waits, says so, and goes on by itself; writers are told."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest

import viewkeeper as vk
from tests.support.gone_store import QUERY, VIEWS, GoneStore, open_gone
from tests.support.running import HereRunner
from viewkeeper.cli.display import PipelineProgress
from viewkeeper.cli.run import _watch
from viewkeeper.client.status import Lag
from viewkeeper.coordinator.coordinator import Coordinator
from viewkeeper.engine.loop import EpochLoop


def require_right(db: vk.Database) -> None:
    assert sorted(map(tuple, db.execute("SELECT * FROM v").rows)) == sorted(map(tuple, db.execute(QUERY).rows))


def write(db: vk.Database, count: int, *, factor: int = 1) -> None:
    for number in range(count):
        db.table("t").put(number, {"x": number % 3, "y": factor * number})


@pytest.mark.parametrize("names", [(), VIEWS], ids=["all of it", "its views"])
def test_a_store_that_is_gone_for_a_minute_is_waited_for_with_longer_and_longer_breaks(names: tuple[str, ...]) -> None:
    db, line = open_gone()
    write(db, 20)
    waits: list[float] = []

    def wait(seconds: float) -> bool:
        waits.append(seconds)
        if sum(waits) >= 60:
            line.come_back()
        return False

    coordinator = Coordinator(db.store, HereRunner(db.store))
    line.go(*names)
    loop = EpochLoop(coordinator, db.store, wait=wait)
    while not waits or loop.trouble is not None or db.status().lag_changes:
        loop.raise_failure()
        os.sched_yield()
    loop.stop()

    assert waits == sorted(waits) and waits[-1] == 2.0 and waits[0] < 0.2 and 30 < len(waits) < 40
    require_right(db)
    assert db.epoch == 1  # the epoch that was begun, or one


def test_while_the_pipeline_waits_status_says_what_for_and_base_writes_go_on(tmp_path: Path) -> None:
    db, line = open_gone()
    with db.pipeline() as pipeline:
        pipeline.start()
        line.go(*VIEWS)
        write(db, 20)
        while (waits := db.status().pipeline_waits) is None:
            pipeline.raise_failure()
        assert waits == "the store does not answer; it is tried again"
        assert f"the pipeline waits: {waits}" in db.status().warnings
        write(db, 30, factor=7)
        line.come_back()
        pipeline.wait_for(db.table("t").put(99, {"x": 1, "y": 1}), timeout=60)
        while db.status().pipeline_waits is not None:
            pipeline.raise_failure()
    require_right(db)


def test_without_a_store_writers_and_readers_are_told_and_the_pipeline_lives(tmp_path: Path) -> None:
    db, line = open_gone()
    with db.pipeline() as pipeline:
        pipeline.start()
        pipeline.wait_for(db.table("t").put(1, {"x": 1, "y": 1}), timeout=60)
        line.go()
        for use in (lambda: db.table("t"), lambda: db.view("v"), db.status):
            with pytest.raises(vk.StoreUnavailable, match="does not answer"):
                use()
        seen = line.calls
        while line.calls < seen + 10:
            pipeline.raise_failure()
        line.come_back()
        pipeline.wait_for(db.table("t").put(2, {"x": 1, "y": 5}), timeout=60)
    require_right(db)


def test_an_error_of_the_line_is_waited_out_too() -> None:
    """What a driver of a server's store may raise."""
    db, _ = open_gone()
    write(db, 5)
    failed = threading.Event()

    class Line(GoneStore):
        def truncate_log(self, *arguments: object, **options: object) -> int:
            if not failed.is_set():
                failed.set()
                raise TimeoutError("timed out")
            return db.store.truncate_log(*arguments, **options)

    line = Line(db.store)
    loop = EpochLoop(Coordinator(line, HereRunner(line)), line, retry_seconds=0.01)
    failed.wait()
    while loop.trouble is not None or db.status().lag_changes:
        loop.raise_failure()
        os.sched_yield()
    loop.stop()
    require_right(db)


def test_the_command_that_shows_a_pipeline_outlives_a_store_that_is_gone() -> None:
    db, line = open_gone()
    write(db, 5)
    shown: list[Lag] = []

    class Display:
        def update(self, progress: object, lag: Lag, *, stopping: bool) -> None:
            shown.append(lag)
            line.go() if len(shown) == 1 else line.come_back()

    class Work:
        def join(self, seconds: float) -> None: ...

        def is_alive(self) -> bool:
            return len(shown) < 3

    _watch(Work(), db, PipelineProgress(), Display(), threading.Event())
    assert shown == [Lag(5, 1)] * 4
