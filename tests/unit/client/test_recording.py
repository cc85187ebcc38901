"""A recorder turns a user's run into updates and states, and what it is told of a wrong view it tells the judge."""

from __future__ import annotations

import datetime as dt
import threading
from pathlib import Path

import pytest

import viewkeeper as vk
from tests.support.examples import run_examples
from tests.support.source_tree import ROOT
from viewkeeper.testing.levels import Level
from viewkeeper.testing.recording import Recorder

NOON = dt.datetime(2026, 11, 17, 12, tzinfo=dt.UTC)


@pytest.fixture
def db(request: pytest.FixtureRequest) -> vk.Database:
    database = vk.connect(f"memory:{request.node.name}?nodes=2")
    database.execute("CREATE TABLE r (k STRING, n INT, x STRING, y BIGINT, t TIMESTAMP, PRIMARY KEY (k, n))")
    database.execute("CREATE MATERIALIZED VIEW d AS SELECT x, SUM(y) AS s, MAX(t) AS last FROM r GROUP BY x")
    database.table("r").put("old", 1, {"x": "a", "y": 1, "t": NOON})
    return database


def test_a_run_through_the_recorder_is_judged_by_the_views_own_text(db: vk.Database) -> None:
    recorder = Recorder(db, "d")
    with db.pipeline(changes_per_epoch=1, events=recorder) as pipeline:
        pipeline.run_available()  # fills the view
        recorder.put("r", "a", 2, {"x": "a", "y": 4, "t": NOON + dt.timedelta(hours=1)})
        recorder.put("r", {"N": 3, "K": "b", "x": "b", "y": 16})  # the key inside, in any case
        recorder.put("r", "old", 1, {"y": 64})
        recorder.delete("r", "a", 2, columns=["y"])
        recorder.delete("r", "b", 3)
        pipeline.run_available()

    assert [update.key for update in recorder.initial] == [("old", 1)]
    assert [(update.key, update.row and update.row["y"]) for update in recorder.updates] == [
        *((("a", 2), 4), (("b", 3), 16), (("old", 1), 64), (("a", 2), None), (("b", 3), None)),
    ]
    assert recorder.observed("d").level is Level.COMPLETE
    assert recorder.observed("d", key=["x"]).level is Level.COMPLETE


def test_an_epoch_of_several_changes_is_strong_and_the_verdict_names_it(db: vk.Database) -> None:
    recorder = Recorder(db, "d")
    with db.pipeline(events=recorder) as pipeline:
        pipeline.run_available()
        recorder.put("r", "a", 1, {"x": "a", "y": 4})
        recorder.put("r", "a", 1, {"x": "b"})
        pipeline.run_available()

    verdict = recorder.observed("d")
    assert verdict.level is Level.STRONG
    assert str(verdict) == f"strong; not complete: state 1 (epoch {db.epoch}) adds 2 updates at once"


def test_a_view_that_is_behind_does_not_converge_and_one_that_is_not_filled_has_no_state(db: vk.Database) -> None:
    recorder = Recorder(db, "d")
    recorder.look()
    assert recorder.states("d") == []
    with db.pipeline(events=recorder) as pipeline:
        pipeline.run_available()
    recorder.put("r", "a", 1, {"x": "a", "y": 4})
    recorder.look()
    recorder.look("latest")

    for read in ("snapshot", "latest"):
        verdict = recorder.observed("d", read=read)
        assert (verdict.level, [found.level for found in verdict.breaks]) == (
            Level.NONE,
            [Level.CONVERGENT, Level.COMPLETE],
        )


def test_a_view_that_is_not_what_it_should_be_is_found(db: vk.Database) -> None:
    """The judge is given another SELECT than the view was made from: every state is wrong."""
    recorder = Recorder(db, "d")
    with db.pipeline(events=recorder) as pipeline:
        pipeline.run_available()

    wrong = "SELECT x, SUM(y) + 1 AS s, MAX(t) AS last FROM r GROUP BY x"
    verdict = recorder.observed("d", wrong)

    assert verdict.level is Level.NONE
    assert verdict.why_not(Level.WEAK).reason.startswith("is the last one and not the view of the final base: shows")


def test_an_update_has_the_position_that_its_token_names(db: vk.Database) -> None:
    recorder = Recorder(db, "d")
    token = recorder.put("r", "a", 1, {"x": "a", "y": 4})
    (update,) = recorder.updates

    assert {update.stream: update.position} == token.positions


def test_a_select_that_duckdb_does_not_know_is_refused_with_a_way_out(db: vk.Database) -> None:
    recorder = Recorder(db, "d")
    with db.pipeline(events=recorder) as pipeline:
        pipeline.run_available()

    with pytest.raises(vk.InputError, match="DuckDB cannot compute the view: .* nowhere .*; give the SELECT in DuckDB"):
        recorder.observed("d", "SELECT * FROM nowhere")


def test_a_pipeline_in_the_background_is_judged_while_threads_write_and_look(db: vk.Database) -> None:
    """Rows move between groups all the while; whatever is seen, snapshots are strong, and latest reads are by record."""
    recorder = Recorder(db, "d")
    tokens: list[vk.Token] = []

    def write(own: int) -> None:
        for place in range(40):
            tokens.append(recorder.put("r", f"{place % 5}", own, {"x": "abc"[place % 3], "y": 4**own * place}))
            if place == 20:  # so there is an epoch in mid-history, however fast the writers are
                pipeline.wait_for(tokens[-1], timeout=60)

    with db.pipeline(events=recorder) as pipeline:
        pipeline.run_available()
        pipeline.start()
        writers = [threading.Thread(target=write, args=(own,)) for own in range(2)]
        for writer in writers:
            writer.start()
        while any(writer.is_alive() for writer in writers):
            recorder.look()
            recorder.look("latest")
        for writer in writers:
            writer.join()
        for token in tokens:
            pipeline.wait_for(token, timeout=60)
        pipeline.stop()
    recorder.look("latest")

    assert len({repr(state.rows) for state in recorder.states("d")}) > 2
    assert recorder.observed("d").level >= Level.STRONG
    assert recorder.observed("d", read="latest", key=["x"]).level >= Level.STRONG


def test_the_pages_examples_print_what_their_comments_say(tmp_path: Path) -> None:
    printed, promised = run_examples(ROOT / "docs" / "levels.md", tmp_path)

    assert promised
    assert printed == promised
