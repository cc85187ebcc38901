"""The border of the database: what a new user tries on the first day, and what must not pass."""

from __future__ import annotations

import datetime as dt
import os
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pytest

import viewkeeper as vk
from tests.support.running import HereRunner
from viewkeeper.coordinator.coordinator import Coordinator

if TYPE_CHECKING:
    from viewkeeper.client.database import Database


@pytest.fixture
def db(tmp_path: Path) -> Database:
    database = vk.connect(f"embedded:{tmp_path / 'store'}?sync=off")
    database.execute("CREATE TABLE t (k INT PRIMARY KEY, v INT NOT NULL, d DOUBLE, day DATE, ts TIMESTAMP, s STRING)")
    database.table("t").put(1, {"v": 1})
    return database


@pytest.mark.parametrize(
    "statement", ["DELETE FROM t WHERE k = 1 AND v = 999", "UPDATE t SET v = 5 WHERE k = 1 AND v = 999"]
)
def test_a_condition_that_is_not_on_the_key_is_refused_not_ignored(db: Database, statement: str) -> None:
    with pytest.raises(vk.UnsupportedSql, match="not in the key"):
        db.execute(statement)
    assert db.table("t").get(1, columns=["v"]) == {"v": 1}


NULLS: list[Callable[[Database], object]] = [
    lambda db: db.execute("INSERT INTO t (k, v) VALUES (2, NULL)"),
    lambda db: db.table("t").put(2, {"d": 1.0}),
    lambda db: db.table("t").put(1, {"v": None}),
    lambda db: db.table("t").delete(1, columns=["v"]),
    lambda db: db.table("t").put_many([{"k": 2, "v": None}]),
    lambda db: db.table("t").put_many(pa.table({"k": pa.array([2], pa.int32())})),
    lambda db: db.table("t").put_many(pa.table({"k": pa.array([2]), "v": pa.array([None], pa.int32())})),
]


@pytest.mark.parametrize("write", NULLS)
def test_not_null_is_kept_on_every_way_in(db: Database, write: Callable[[Database], object]) -> None:
    with pytest.raises(vk.BadRow, match="column v of t is NOT NULL"):
        write(db)
    assert [(row["k"], row["v"]) for row in db.table("t").scan()] == [(1, 1)]


UNREADABLE: list[Callable[[Database], object]] = [
    lambda db: db.table("t").put(1, {"ts": dt.datetime(1, 1, 1, tzinfo=dt.timezone(dt.timedelta(hours=2)))}),
    lambda db: db.table("t").put(1, {"d": 10**400}),
    lambda db: db.table("t").put_many(bulk("day", pa.array([3_000_000], pa.date32()))),
    lambda db: db.table("t").put_many(bulk("ts", pa.array([2**62], pa.timestamp("us")))),
    lambda db: db.table("t").put_many(bulk("s", pa.array([b"\xff"]).view(pa.string()))),
]


def bulk(name: str, array: pa.Array) -> pa.Table:
    return pa.table({"k": pa.array([2], pa.int32()), "v": pa.array([2], pa.int32()), name: array})


@pytest.mark.parametrize("write", UNREADABLE)
def test_a_value_that_could_not_be_read_again_is_refused(db: Database, write: Callable[[Database], object]) -> None:
    with pytest.raises(vk.BadRow):
        write(db)
    assert len(list(db.table("t").scan())) == 1


def test_nan_is_what_put_if_expects_when_it_was_read(db: Database) -> None:
    table = db.table("t")
    table.put(1, {"d": float("nan")})
    assert table.put_if(1, {"v": 2}, expect=table.get(1))
    assert not table.put_if(1, {"v": 3}, expect={"d": 0.0})


def test_a_key_given_twice_may_be_nan_both_times(db: Database) -> None:
    db.execute("CREATE TABLE measured (x DOUBLE, y INT, PRIMARY KEY (x))")
    db.table("measured").put(float("nan"), {"x": float("nan"), "y": 1})
    assert db.table("measured").get(float("nan"))["y"] == 1


def test_a_group_of_writes_takes_nothing_after_its_end(db: Database) -> None:
    with db.write() as group:
        group.put("t", 5, {"v": 5})
    with pytest.raises(vk.InputError, match="has ended"):
        group.put("t", 6, {"v": 6})
    with pytest.raises(vk.InputError, match="has ended"), group:
        pass
    assert [row["k"] for row in db.table("t").scan()] == [1, 5]


def test_a_closed_database_says_so(db: Database) -> None:
    table = db.table("t")
    db.close()
    for use in (lambda: table.get(1), lambda: table.put(1, {"v": 1}), lambda: db.execute("SHOW TABLES")):
        with pytest.raises(vk.InputError, match="closed"):
            use()


def test_a_token_is_a_read_mode(db: Database) -> None:
    db.execute("CREATE MATERIALIZED VIEW w AS SELECT v, COUNT(*) AS n FROM t GROUP BY v")
    Coordinator(db.store, HereRunner(db.store)).catch_up()
    token = db.table("t").put(2, {"v": 1})
    with pytest.raises(vk.StaleRead, match="at the token"):
        db.view("w").get(1, read=token, timeout=0)
    Coordinator(db.store, HereRunner(db.store)).catch_up()
    assert db.view("w").get(1, read=token) == {"v": 1, "n": 2}


def test_a_part_of_a_store_from_another_moment_is_noticed(db: Database, tmp_path: Path) -> None:
    db.execute("CREATE MATERIALIZED VIEW w AS SELECT v, COUNT(*) AS n FROM t GROUP BY v")
    path = Path(db.url.removeprefix("embedded:").removesuffix("?sync=off"))
    shutil.copytree(path / "node-0", tmp_path / "older")
    db.table("t").put(2, {"v": 1})
    Coordinator(db.store, HereRunner(db.store)).catch_up()
    db.close()
    shutil.rmtree(path / "node-0")
    shutil.copytree(tmp_path / "older", path / "node-0")
    with pytest.raises(vk.LogDiverged, match="ends at 1, but 2 is committed"):
        vk.connect(f"embedded:{path}")


def test_a_store_that_lost_its_meta_data_is_not_begun_anew(db: Database) -> None:
    path = Path(db.url.removeprefix("embedded:").removesuffix("?sync=off"))
    db.close()
    os.truncate(path / "meta" / "data.mdb", 0)
    with pytest.raises(vk.CorruptStore, match="meta.data.mdb is not a readable LMDB environment"):
        vk.connect(f"embedded:{path}")


@pytest.mark.parametrize(
    "use",
    [
        lambda db: db.compact(),
        lambda db: db.execute("ALTER STORE ADD NODE"),
        lambda db: db.pipeline(engine="driver"),
        lambda db: db.pipeline(engine="driver", take_over=True),
    ],
    ids=["compact", "ALTER STORE", "pipeline", "take_over"],
)
def test_a_store_that_was_removed_while_it_was_open_is_told_to_those_who_want_it_alone(
    db: Database, use: Callable[[Database], object]
) -> None:
    shutil.rmtree(db.url.removeprefix("embedded:").removesuffix("?sync=off"))
    with pytest.raises(vk.StoreReplaced, match="removed or replaced"):
        use(db)


def test_rows_are_put_while_another_thread_imports_pandas(db: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pandas", ModuleType("pandas"))  # as it is until its import has come to DataFrame
    db.table("t").put_many([{"k": 2, "v": 2}])
    assert db.table("t").get(2)["v"] == 2


@pytest.mark.parametrize(
    ("statement", "told"),
    [
        ("DROP TABLE IF EXISTS zzz", "table zzz is not there"),
        ("CREATE TABLE IF NOT EXISTS t (a INT PRIMARY KEY)", "table t is there already"),
        ("INSERT INTO t (k, v, d) VALUES (3, 1, 1.5)", "1 row put"),
    ],
)
def test_messages_say_what_happened(db: Database, statement: str, told: str) -> None:
    assert db.execute(statement).message == told


ARGUMENTS: list[Callable[[Database], object]] = [
    lambda db: db.wait_for(None),
    lambda db: db.wait_for(7),
    lambda db: vk.Bounded("a"),
    lambda db: vk.Bounded(None),
    lambda db: vk.Bounded(float("nan")),
    lambda db: db.pipeline(view_managers="x"),
    lambda db: db.pipeline(view_managers=0),
    lambda db: db.pipeline(changes_per_epoch="x"),
    lambda db: db.pipeline(changes_per_epoch=True),
]


@pytest.mark.parametrize("call", ARGUMENTS)
def test_an_argument_of_the_wrong_type_is_an_input_error(
    db: Database, monkeypatch: pytest.MonkeyPatch, call: Callable[[Database], object]
) -> None:
    monkeypatch.setattr("viewkeeper.engine.spark_session.require_spark", lambda: None)
    with pytest.raises(vk.InputError):
        call(db)


WRONG_ARGUMENTS: dict[str, Callable[[Database], object]] = {
    "connect": lambda db: vk.connect(None),
    "connect a path": lambda db: vk.connect(Path("shop")),
    "restore": lambda db: vk.restore(None, "embedded:x"),
    "execute": lambda db: db.execute(None),
    "table": lambda db: db.table(None),
    "view": lambda db: db.view(7),
    "wait_for None": lambda db: db.wait_for(None),
    "wait_for, timeout": lambda db: db.wait_for(db.table("t").put(1, {"v": 2}), timeout="long"),
    "wait_for, no timeout": lambda db: db.wait_for(db.table("t").put(1, {"v": 3}), timeout=None),
    "pipeline": lambda db: db.pipeline(view_managers="x"),
    "pipeline, changes": lambda db: db.pipeline(changes_per_epoch="x"),
    "load a path": lambda db: db.load("t", None),
    "load a table": lambda db: db.load(None, "x.csv"),
    "load a key": lambda db: db.load("u", "x.csv", create=True, key=5),
    "load, null": lambda db: db.load("t", "x.csv", null=None),
    "load, delimiter": lambda db: db.load("t", "x.csv", delimiter=5),
    "put_many": lambda db: db.table("t").put_many(None),
    "put_many of no rows": lambda db: db.table("t").put_many([1]),
    "get_many": lambda db: db.table("t").get_many(None),
    "get_many of a text": lambda db: db.table("t").get_many("ab"),
    "get, columns": lambda db: db.table("t").get(1, columns=5),
    "get, a text as columns": lambda db: db.table("t").get(1, columns="v"),
    "get, a number among columns": lambda db: db.table("t").get(1, columns=[1]),
    "delete, columns": lambda db: db.table("t").delete(1, columns=5),
    "put_if": lambda db: db.table("t").put_if(1, {"v": 1}, expect=5),
    "delete_if": lambda db: db.table("t").delete_if(1, expect=None),
    "scan, limit": lambda db: list(db.table("t").scan(limit="x")),
    "scan, a limit beyond all": lambda db: list(db.table("t").scan(limit=2**63)),
    "keep_changes, seconds": lambda db: db.keep_changes(seconds=1e300),
    "keep_changes, epochs": lambda db: db.keep_changes(epochs=10**5_000),
    "a bound beyond all": lambda db: db.view("w").get(1, read=vk.Bounded(seconds=1e300)),
    "pipeline, changes beyond all": lambda db: db.pipeline(changes_per_epoch=2**70, engine="driver"),
    "pipeline, events": lambda db: db.pipeline(events=1, engine="driver"),
    "a name of digits": lambda db: db.table(10**5_000),
    "a text of digits": lambda db: db.execute(10**5_000),
    "a path that is too long": lambda db: vk.connect(f"embedded:{'x/' * 3_000}"),
    "a file whose path is too long": lambda db: db.load("t", "x/" * 3_000),
    "a backup whose path is too long": lambda db: vk.restore("x/" * 3_000, "embedded:x"),
    "a path of half a character": lambda db: vk.connect("embedded:\ud800"),
    "backup": lambda db: db.backup(None),
    "explain": lambda db: db.explain(5),
    "explain, form": lambda db: db.explain(form="picture"),
    "check": lambda db: db.check("v"),
    "session": lambda db: db.session().wrote("x"),
    "write group": lambda db: db.write().put(None, 1, {"v": 1}),
    "view read": lambda db: db.view("w").get(1, read=5),
    "view read, timeout": lambda db: db.view("w").get(1, read=db.table("t").put(1, {"v": 9}), timeout="x"),
}


@pytest.mark.parametrize("call", WRONG_ARGUMENTS.values(), ids=WRONG_ARGUMENTS.keys())
def test_a_wrong_argument_is_an_error_of_ours_that_names_it(db: Database, call: Callable[[Database], object]) -> None:
    db.execute("CREATE MATERIALIZED VIEW w AS SELECT k, v FROM t")
    with pytest.raises(vk.InputError):
        call(db)


def test_arguments_up_to_the_bounds_are_taken(db: Database, tmp_path: Path) -> None:
    db.execute("CREATE MATERIALIZED VIEW w AS SELECT k, v FROM t")
    db.keep_changes(epochs=2**63 - 1, seconds=2**62)
    with db.pipeline(changes_per_epoch=2**31 - 1, engine="driver") as pipeline:
        pipeline.run_available()
    assert db.view("w").get(1, read=vk.Bounded(seconds=2**62)) == {"k": 1, "v": 1}
    assert len(list(db.table("t").scan(limit=2**63 - 1))) == 1
    with pytest.raises(vk.StoreError, match="there is no store"):
        vk.connect(f"embedded:{'x/' * 1_950}", read_only=True)


@pytest.mark.parametrize(
    ("letters", "end"), [(58, "'"), (59, "…")], ids=["as much as a message shows", "more than a message shows"]
)
def test_a_wrong_value_is_shown_as_far_as_there_is_room(db: Database, letters: int, end: str) -> None:
    with pytest.raises(vk.BadRow) as refused:
        db.table("t").put(2, {"v": "x" * letters})
    assert refused.value.fact.endswith(f"x{end}")


def test_numbers_of_numpy_are_taken_where_nothing_is_lost(db: Database) -> None:
    table = db.table("t")
    table.put(np.int64(7), {"v": np.uint8(3), "d": np.float32(0.5)})
    table.put_many([{"k": np.int32(8), "v": np.int16(4), "d": np.float64(2)}])
    assert table.get(np.int8(7), columns=["k", "v", "d"]) == {"k": 7, "v": 3, "d": 0.5}
    assert [row["k"] for row in table.get_many([np.int64(8)])] == [8]
    assert [row["k"] for row in table.scan(start=np.int64(8), limit=np.int64(5))] == [8]
    assert type(next(iter(table.scan(np.int64(7))))["k"]) is int
    for wrong in ({"v": np.float64(1)}, {"v": np.int64(2**31)}, {"v": np.bool_(True)}, {"v": np.datetime64(1, "ns")}):
        with pytest.raises(vk.BadRow):
            table.put(9, {"v": 0} | wrong)


@pytest.mark.parametrize(
    ("statement", "told"),
    [
        ("CREATE TABLE IF NOT EXISTS w (a INT PRIMARY KEY)", "w is a view, not a table; choose another name"),
        ("CREATE MATERIALIZED VIEW IF NOT EXISTS t AS SELECT k FROM t", "t is a table, not a view; choose"),
        ("CREATE INDEX IF NOT EXISTS w ON t (v)", "w is a view, not an index; choose another name"),
        ("DROP TABLE w", "w is a view, not a table; DROP VIEW w"),
        ("DROP TABLE IF EXISTS w", "w is a view, not a table; DROP VIEW w"),
        ("DROP VIEW t", "t is a table, not a view; DROP TABLE t"),
        ("DROP VIEW ww", "there is no view ww; did you mean w?"),
    ],
)
def test_a_name_of_another_kind_is_told_as_what_it_is(db: Database, statement: str, told: str) -> None:
    db.execute("CREATE MATERIALIZED VIEW w AS SELECT v, COUNT(*) AS n FROM t GROUP BY v")
    with pytest.raises(vk.InputError) as refused:
        db.execute(statement)
    assert str(refused.value).startswith(told)
    assert [view.name for view in db.catalog().views] == ["w"]
