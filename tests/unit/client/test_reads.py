"""Reading views: one epoch for all records of a read, as fresh as asked for, and never a part of something."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

import viewkeeper as vk
from tests.support.running import HereRunner, Interrupted, RunThenDie, keep_up
from viewkeeper.coordinator.coordinator import Coordinator


@pytest.fixture
def db(tmp_path: Path) -> vk.Database:
    db = vk.connect(f"embedded:{tmp_path / 's'}?sync=off")
    db.execute("CREATE TABLE t (k INT PRIMARY KEY, x STRING, y BIGINT)")
    db.execute("CREATE MATERIALIZED VIEW sums AS SELECT x, SUM(y) AS s FROM t GROUP BY x")
    db.execute("CREATE MATERIALIZED VIEW total AS SELECT COUNT(*) AS n, SUM(y) AS s FROM t")
    db.execute("CREATE INDEX by_x ON t (x, y)")
    return db


def test_a_view_over_an_empty_base_is_readable_at_once(db: vk.Database) -> None:
    """Aggregates without GROUP BY have exactly one record, from CREATE on."""
    assert db.view("total").get() == {"n": 0, "s": None}
    assert list(db.view("total").scan()) == [{"n": 0, "s": None}]
    assert db.view("total").to_arrow().to_pylist() == [{"n": 0, "s": None}]
    assert list(db.view("sums").scan()) == []
    assert db.view("sums").get("a") is None
    keep_up(db)
    assert db.view("total").get() == {"n": 0, "s": None}


def test_a_view_that_is_not_filled_says_so(db: vk.Database) -> None:
    db.table("t").put(1, {"x": "a", "y": 1})
    with db.snapshot() as snapshot:
        for read in (
            lambda: db.view("total").get(),
            lambda: list(db.view("sums").scan()),
            lambda: db.view("by_x").to_arrow(),
            lambda: snapshot.view("sums").get("a"),
        ):
            with pytest.raises(vk.NotReady, match="not filled yet"):
                read()


def test_null_is_a_group_and_a_prefix_of_an_index(db: vk.Database) -> None:
    table = db.table("t")
    for k, (x, y) in enumerate([(None, 1), (None, None), ("a", 3), ("a", None)]):
        table.put(k, {"x": x, "y": y})
    keep_up(db)

    assert db.view("sums").get(None) == {"x": None, "s": 1}
    assert list(db.view("sums").scan()) == [{"x": None, "s": 1}, {"x": "a", "s": 3}]
    assert [row["k"] for row in db.view("by_x").scan(None)] == [1, 0]  # NULL first
    assert [row["k"] for row in db.view("by_x").scan("a", None)] == [3]
    assert [row["k"] for row in db.view("by_x").scan(reverse=True)] == [2, 3, 0, 1]
    assert [row["k"] for row in db.view("by_x").scan("a", start=2)] == [2]
    assert [row["k"] for row in db.view("by_x").scan(limit=3)] == [1, 0, 3]
    assert db.view("by_x").get("a", 3, 2) == {"x": "a", "y": 3, "k": 2}


def test_a_key_that_does_not_fit_is_refused(db: vk.Database) -> None:
    keep_up(db)
    for read in (
        lambda: db.view("sums").get(),
        lambda: db.view("sums").get("a", "b"),
        lambda: db.view("total").get("a"),
        lambda: db.view("sums").get(1),
        lambda: db.view("sums").get("a", read="newest"),
        lambda: list(db.view("sums").scan("a", "b")),
    ):
        with pytest.raises(vk.InputError):
            read()


def test_latest_shows_what_an_epoch_in_flight_has_written_and_snapshot_does_not(db: vk.Database) -> None:
    db.table("t").put(1, {"x": "a", "y": 1})
    keep_up(db)
    db.table("t").put(2, {"x": "a", "y": 10})
    with pytest.raises(Interrupted):
        Coordinator(db.store, RunThenDie(HereRunner(db.store))).step()

    assert db.view("sums").get("a") == {"x": "a", "s": 1}
    assert db.view("sums").get("a", read="latest") == {"x": "a", "s": 11}
    assert list(db.view("sums").scan(read="latest")) == [{"x": "a", "s": 11}]
    assert db.view("sums").to_arrow(read="latest").to_pylist() == [{"x": "a", "s": 11}]


def test_a_snapshot_stays_while_epochs_go_by(db: vk.Database) -> None:
    db.table("t").put(1, {"x": "a", "y": 1})
    keep_up(db)
    with db.snapshot() as snapshot:
        for number in range(2, 12):
            db.table("t").put(number, {"x": "b" if number % 2 else "a", "y": number})
            db.table("t").delete(number - 1)
            keep_up(db)
        db.execute("DROP INDEX by_x")
        assert snapshot.epoch == 1
        assert list(snapshot.view("sums").scan()) == [{"x": "a", "s": 1}]
        assert snapshot.view("sums").get("a") == {"x": "a", "s": 1}
        assert snapshot.view("sums").get("b") is None
        assert snapshot.view("total").to_arrow().to_pylist() == [{"n": 1, "s": 1}]
    assert db.view("total").get() == {"n": 1, "s": 11}


def test_a_scan_that_was_begun_shows_one_epoch_to_its_end(db: vk.Database) -> None:
    for number in range(50):
        db.table("t").put(number, {"x": f"g{number:02}", "y": 1})
    keep_up(db)
    scan = db.view("sums").scan()
    rows = [next(scan)]
    for _ in range(4):
        for number in range(50):
            db.table("t").delete(number)
        keep_up(db)
        db.table("t").put(999, {"x": "new", "y": 1})
        keep_up(db)
    rows += list(scan)

    assert rows == [{"x": f"g{number:02}", "s": 1} for number in range(50)]


def test_a_session_reads_what_it_wrote_and_never_goes_back(db: vk.Database) -> None:
    keep_up(db)
    with db.session() as session:
        session.table("t").put(1, {"x": "a", "y": 1})
        assert db.view("sums").get("a") is None
        with pytest.raises(vk.StaleRead, match="after 0 s"):
            session.view("sums").get("a", timeout=0)
        keep_up(db)
        assert session.view("sums").get("a") == {"x": "a", "s": 1}
        assert db.view("sums").get("a", read=session) == {"x": "a", "s": 1}
        assert list(session.view("by_x").scan("a")) == [{"x": "a", "y": 1, "k": 1}]


def test_a_session_that_waits_is_answered_when_the_pipeline_has_come(db: vk.Database) -> None:
    keep_up(db)
    answers: list[object] = []
    with db.session() as session:
        session.table("t").put(1, {"x": "a", "y": 1})
        reader = threading.Thread(target=lambda: answers.append(session.view("total").get(timeout=60)))
        reader.start()
        keep_up(db)
        reader.join()

    assert answers == [{"n": 1, "s": 1}]


def test_a_bounded_read_waits_for_changes_older_than_the_bound_only(db: vk.Database) -> None:
    keep_up(db)
    db.table("t").put(1, {"x": "a", "y": 1})

    assert db.view("total").get(read=vk.Bounded(seconds=3_600))["n"] == 0
    with pytest.raises(vk.StaleRead):
        db.view("total").get(read=vk.Bounded(seconds=0), timeout=0)
    keep_up(db)
    assert db.view("total").get(read=vk.Bounded(seconds=0), timeout=0)["n"] == 1  # all that was written is in
    with pytest.raises(vk.InputError):
        vk.Bounded(seconds=-1)
    with pytest.raises(vk.InputError):
        vk.Bounded(seconds=float("nan"))


def test_a_token_is_waited_for_and_one_of_another_store_is_refused(db: vk.Database, tmp_path: Path) -> None:
    keep_up(db)
    token = db.table("t").put(1, {"x": "a", "y": 1})
    with pytest.raises(vk.StaleRead):
        db.wait_for(token, timeout=0)
    keep_up(db)
    db.wait_for(token, timeout=0)
    db.wait_for(str(token), timeout=0)
    other = vk.connect(f"embedded:{tmp_path / 'other'}?sync=off")

    with pytest.raises(vk.ForeignToken):
        other.wait_for(token, timeout=0)
    with pytest.raises(vk.InputError, match="is not a token"):
        db.wait_for("something", timeout=0)


def test_a_view_over_a_table_that_gets_a_second_view_is_read_on(db: vk.Database) -> None:
    db.table("t").put(1, {"x": "a", "y": 1})
    keep_up(db)
    view = db.view("sums")
    db.execute("CREATE MATERIALIZED VIEW later AS SELECT k, y FROM t WHERE y > 0")
    assert view.get("a") == {"x": "a", "s": 1}
    with pytest.raises(vk.NotReady):
        db.view("later").get(1)
    keep_up(db)
    assert db.view("later").get(1) == {"k": 1, "y": 1}
    assert view.get("a") == {"x": "a", "s": 1}


def test_a_select_reads_tables_and_views(db: vk.Database) -> None:
    for k in range(4):
        db.table("t").put(k, {"x": "ab"[k % 2], "y": k})
    keep_up(db)
    result = db.execute("SELECT t.k, sums.s FROM t JOIN sums ON t.x = sums.x WHERE t.y > 1 ORDER BY k")

    assert list(result) == [(2, 2), (3, 4)]
    assert result.to_dicts() == [{"k": 2, "s": 2}, {"k": 3, "s": 4}]
    assert db.execute("INSERT INTO t VALUES (9, 'z', 1)").message == "1 row put"
    assert db.execute("UPDATE t SET y = 5 WHERE k = 9").message == "1 row updated"
    assert db.execute("DELETE FROM t WHERE k = 8").message == "0 rows deleted"
    assert db.table("t").get(9) == {"k": 9, "x": "z", "y": 5}
