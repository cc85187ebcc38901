"""How far a fill is: for events, for `status`, and for reads that come too early."""

from __future__ import annotations

from pathlib import Path

import pytest

import viewkeeper as vk
from tests.support.running import begin_epoch, keep_up
from viewkeeper.client.fill_progress import ProgressNotes
from viewkeeper.events import Backfilling, Began, Event, Working
from viewkeeper.ports.meta import Holder

ROWS = 500


def make(path: Path) -> vk.Database:
    db = vk.connect(f"embedded:{path / 's'}?sync=off")
    db.execute("CREATE TABLE t (k INT PRIMARY KEY, g INT)")
    db.table("t").put_many([{"k": k, "g": k % 7} for k in range(ROWS)])
    keep_up(db)
    db.execute("CREATE MATERIALIZED VIEW v AS SELECT g, COUNT(*) AS n FROM t GROUP BY g")
    return db


def told_to_who_reads(db: vk.Database) -> tuple[str, str | None]:
    with pytest.raises(vk.NotReady) as told:
        db.execute("SELECT * FROM v")
    return told.value.fact, told.value.hint


def test_a_read_during_the_first_epoch_of_a_fill_is_told_how_far_it_is(tmp_path: Path) -> None:
    db, seen, events = make(tmp_path), list[object](), list[Event]()

    def take(event: Event) -> None:
        events.append(event)
        if isinstance(event, Began):
            (view,) = db.status().views
            seen.extend([told_to_who_reads(db), view.filling])

    with db.pipeline(events=take) as pipeline:
        assert told_to_who_reads(db)[1] == "run the pipeline: viewkeeper run, or pipeline.run_available()"
        pid = db.store.holder().pid
        pipeline.run_available()

    assert seen == [
        (
            f"view v is being filled: 0 of about {ROWS} rows",
            f"wait: process {pid} runs the pipeline, and viewkeeper status tells how far it is",
        ),
        (0, ROWS),
    ]
    assert [event for event in events if isinstance(event, Backfilling)] == [Backfilling(1, 0, ROWS)]
    working = [event for event in events if isinstance(event, Working)]
    assert [event.done for event in working] == list(range(1, working[-1].tasks + 1))


def test_a_view_that_no_pipeline_has_taken_up_names_who_will(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    db = make(tmp_path)
    monkeypatch.setattr(type(db.store), "holder", lambda store: Holder(4711, 1))

    assert told_to_who_reads(db) == (
        "view v is not filled yet",
        "wait: process 4711 runs the pipeline, and viewkeeper status tells how far it is",
    )


def test_an_epoch_that_takes_long_leaves_a_note_each_second_and_a_short_one_none(tmp_path: Path) -> None:
    db, now, events = make(tmp_path), [0.0], list[Event]()
    worked = ProgressNotes(db.store, events.append, clock=lambda: now[0])
    epoch = begin_epoch(db.store).epoch
    found = []
    for done, seconds in enumerate((5.0, 5.5, 6.0, 6.5, 7.2)):
        now[0] = seconds
        worked(Working(epoch, done, 9))
        found.append(db.status().inflight_tasks)
    now[0] = 9.0
    worked(Working(epoch + 1, 0, 9))  # the first word of another

    assert found == [None, None, (2, 9), (2, 9), (4, 9)]
    assert db.status().inflight_tasks == (4, 9)
    assert len(events) == 6
