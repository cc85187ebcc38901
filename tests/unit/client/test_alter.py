"""ALTER TABLE … ADD COLUMN: old rows read NULL, old readers and writers lose nothing, old views keep their columns."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

import viewkeeper as vk
from tests.support.running import HereRunner, begin_epoch, keep_up, plan_of
from viewkeeper.coordinator.coordinator import Coordinator
from viewkeeper.operators.program import run_in_process
from viewkeeper.plan.define import relation_of

VIEWS = """
CREATE MATERIALIZED VIEW everything AS SELECT * FROM t;
CREATE MATERIALIZED VIEW sums AS SELECT x, COUNT(*) AS n, SUM(y) AS s FROM t GROUP BY x
"""


@pytest.fixture
def db(tmp_path: Path) -> vk.Database:
    db = vk.connect(f"embedded:{tmp_path / 's'}?sync=off")
    db.execute("CREATE TABLE t (k STRING PRIMARY KEY, x STRING, y BIGINT)")
    db.table("t").put_many([{"k": "a", "x": "eu", "y": 1}, {"k": "b", "x": "us", "y": 2}])
    return db


def stale_table(db: vk.Database) -> vk.Database:
    """A table whose connection does not hear of later changes to the catalog: another process, just before its write."""
    other = vk.connect(db.url)
    table = other.table("t")
    schema = table.schema
    other.current_table = lambda known: schema  # type: ignore[method-assign]
    return table


def test_rows_that_were_there_read_null_and_new_ones_what_was_put(db: vk.Database) -> None:
    table = db.table("t")  # a handle from before
    message = db.execute("ALTER TABLE T ADD COLUMNS (n INT, note STRING)").message
    assert message == "table T has the new columns n, note"
    assert table.get("a") == {"k": "a", "x": "eu", "y": 1, "n": None, "note": None}
    table.put("a", {"note": "new"})
    table.put("c", {"n": 7})
    db.execute("INSERT INTO t VALUES ('d', 'eu', 4, 5, 'all')")
    assert list(table.scan()) == [
        {"k": "a", "x": "eu", "y": 1, "n": None, "note": "new"},
        {"k": "b", "x": "us", "y": 2, "n": None, "note": None},
        {"k": "c", "x": None, "y": None, "n": 7, "note": None},
        {"k": "d", "x": "eu", "y": 4, "n": 5, "note": "all"},
    ]
    assert table.to_arrow().to_pylist() == list(table.scan())
    assert db.execute("SELECT k FROM t WHERE note = 'new'").rows == (("a",),)
    assert db.execute("DESCRIBE t").rows[-1] == ("note", "STRING", True, "")


def test_a_put_that_gives_a_new_column_nothing_is_no_change(db: vk.Database) -> None:
    before = db.store.ends()
    db.execute("ALTER TABLE t ADD COLUMN n INT")
    db.table("t").put("a", {"x": "eu", "n": None})
    assert db.store.ends() == before


@pytest.mark.parametrize("way", ["put", "put_many", "arrow", "delete column", "group"])
def test_a_writer_with_an_older_catalog_keeps_the_values_it_does_not_know(db: vk.Database, way: str) -> None:
    older = stale_table(db)
    db.execute("ALTER TABLE t ADD COLUMN n INT; ALTER TABLE t ADD COLUMN note STRING")
    db.table("t").put("a", {"n": 7, "note": "kept"})
    db.table("t").put("b", {"note": "alone"})
    assert older.get("a") == {"k": "a", "x": "eu", "y": 1}  # it reads what it knows
    assert older.to_arrow().to_pylist() == [{"k": "a", "x": "eu", "y": 1}, {"k": "b", "x": "us", "y": 2}]
    rows = [{"k": "a", "x": "asia"}, {"k": "b", "x": "asia"}, {"k": "c", "x": "asia"}]
    if way == "put_many":
        older.put_many(rows)
    elif way == "arrow":
        older.put_many(pa.Table.from_pylist(rows))
    elif way == "delete column":
        for row in rows:
            older.put(row)
            older.delete(row["k"], columns=["y"])
    elif way == "group":
        with older._database.write() as group:
            for row in rows:
                group.put("t", row)
    else:
        for row in rows:
            older.put(row)
    y = (None, None) if way == "delete column" else (1, 2)
    assert list(db.table("t").scan()) == [
        {"k": "a", "x": "asia", "y": y[0], "n": 7, "note": "kept"},
        {"k": "b", "x": "asia", "y": y[1], "n": None, "note": "alone"},
        {"k": "c", "x": "asia", "y": None, "n": None, "note": None},
    ]


def test_views_made_before_keep_their_columns_and_views_made_after_see_the_new_one(db: vk.Database) -> None:
    db.execute(VIEWS)
    keep_up(db)
    db.execute("ALTER TABLE t ADD COLUMN n INT")
    db.execute("CREATE MATERIALIZED VIEW after AS SELECT * FROM t")
    db.execute("CREATE MATERIALIZED VIEW by_n AS SELECT n, COUNT(*) AS c FROM t GROUP BY n")
    db.table("t").put("a", {"n": 7})
    db.table("t").put("c", {"x": "eu", "n": 8})
    keep_up(db)
    assert db.view("everything").get("a") == {"k": "a", "x": "eu", "y": 1}
    assert list(db.view("sums").scan()) == [{"x": "eu", "n": 2, "s": 1}, {"x": "us", "n": 1, "s": 2}]
    assert db.view("after").get("a") == {"k": "a", "x": "eu", "y": 1, "n": 7}
    assert db.view("after").get("b") == {"k": "b", "x": "us", "y": 2, "n": None}
    assert list(db.view("by_n").scan()) == [{"n": None, "c": 1}, {"n": 7, "c": 1}, {"n": 8, "c": 1}]
    catalog = db.catalog()
    shown = [len(relation_of(catalog, catalog.view(name)).columns) for name in ("everything", "after")]
    assert shown == [3, 4]  # a text is read as it was meant
    assert db.explain().count("base t") == 1  # and views of any age share the base


def test_an_epoch_in_flight_with_the_older_plan_reads_rows_with_more_columns(db: vk.Database) -> None:
    db.execute(VIEWS)
    epoch = begin_epoch(db.store)
    db.execute("ALTER TABLE t ADD COLUMN n INT")
    db.table("t").put("a", {"y": 5, "n": 7})  # behind the epoch, but read by its backfill to be taken back
    run_in_process(db.store, plan_of(db.store, epoch), epoch)
    Coordinator(db.store, HereRunner(db.store)).catch_up()
    assert db.view("everything").get("a") == {"k": "a", "x": "eu", "y": 5}

    db.table("t").put("b", {"y": 3, "n": 8})
    older = begin_epoch(db.store)
    plan = plan_of(db.store, older).to_json()
    plan["tables"] = [dict(table, columns=table["columns"][:3]) for table in plan["tables"]]
    run_in_process(db.store, type(plan_of(db.store, older)).from_json(plan), older)  # a plan of before, a log of after
    Coordinator(db.store, HereRunner(db.store)).catch_up()
    assert db.view("everything").get("b") == {"k": "b", "x": "us", "y": 3}


@pytest.mark.parametrize(
    ("statement", "kind", "fact"),
    [
        ("ALTER TABLE t ADD COLUMN X INT", vk.DuplicateName, "table t has a column x already"),
        ("ALTER TABLE u ADD COLUMN c INT", vk.UnknownName, "there is no table u"),
        ("ALTER TABLE sums ADD COLUMN c INT", vk.UnknownName, "sums is a view, not a table"),
        ("ALTER TABLE t ADD COLUMN c INT NOT NULL", vk.UnsupportedSql, "NOT NULL is not supported"),
        ("ALTER TABLE t ADD COLUMN c INT PRIMARY KEY", vk.UnsupportedSql, "PRIMARY KEY is not supported"),
        ("ALTER TABLE t ADD COLUMN c INT DEFAULT 1", vk.UnsupportedSql, "DEFAULT is not supported"),
    ],
)
def test_what_cannot_be_added_is_refused(db: vk.Database, statement: str, kind: type[Exception], fact: str) -> None:
    db.execute(VIEWS)
    before = db.catalog()
    with pytest.raises(kind, match=fact):
        db.execute(statement)
    assert db.catalog() == before


def test_a_table_of_nothing_but_its_key_gets_columns_too(db: vk.Database) -> None:
    db.execute("CREATE TABLE bare (k INT PRIMARY KEY)")
    db.table("bare").put(1, {})
    db.execute("ALTER TABLE bare ADD COLUMN s STRING")
    db.table("bare").put(2, {"s": "x"})
    assert list(db.table("bare").scan()) == [{"k": 1, "s": None}, {"k": 2, "s": "x"}]
