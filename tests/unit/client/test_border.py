"""The border of the database: what a new user tries on the first day, and what must not pass."""

from __future__ import annotations

import datetime as dt
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

import viewkeeper as vk
from tests.support.running import HereRunner
from viewkeeper.flow.coordinator import Coordinator

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
    with pytest.raises(vk.CorruptStore, match="no epoch record"):
        vk.connect(f"embedded:{path}")


def test_a_forked_child_is_told_to_open_the_store_itself(db: Database) -> None:
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            db.table("t").get(1)
            told = "it answered"
        except vk.StoreError as error:
            told = error.fact
        os.write(writer, told.encode())
        os._exit(0)
    os.waitpid(child, 0)
    assert os.read(reader, 200) == b"the store was open when this process was forked off"
    assert db.table("t").get(1, columns=["v"]) == {"v": 1}


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
    monkeypatch.setattr("viewkeeper.engine.session.require_spark", lambda: None)
    with pytest.raises(vk.InputError):
        call(db)
