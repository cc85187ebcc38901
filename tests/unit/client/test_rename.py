"""ALTER … RENAME TO: whoever reads a table or view knows it by its id, so all goes on under the new name."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import viewkeeper as vk
from tests.support.dump import contents, dump
from tests.support.running import HereRunner, begin_epoch, commit_epoch, keep_up, plan_of
from viewkeeper.check.query_blocks import expanded_query

VIEWS = """
CREATE MATERIALIZED VIEW counts AS SELECT g, COUNT(*) AS n FROM t GROUP BY g;
CREATE MATERIALIZED VIEW many AS SELECT g FROM counts WHERE n > 1;
CREATE MATERIALIZED VIEW both AS SELECT t.k, c.n FROM t JOIN counts c ON t.g = c.g;
CREATE INDEX by_g ON t (g) INCLUDE (x)
"""


@pytest.fixture
def db(tmp_path: Path) -> vk.Database:
    db = vk.connect(f"embedded:{tmp_path / 's'}?sync=off")
    db.execute("CREATE TABLE t (k STRING PRIMARY KEY, g STRING, x INT)")
    db.execute(VIEWS)
    db.table("t").put_many([{"k": k, "g": g, "x": x} for k, g, x in (("a", "p", 1), ("b", "p", 2), ("c", "q", 3))])
    keep_up(db)
    return db


AFTER_ONE_MORE = {
    "counts": [{"g": "p", "n": 2}, {"g": "q", "n": 2}],
    "many": [{"g": "p"}, {"g": "q"}],
    "both": [{"k": "a", "n": 2}, {"k": "b", "n": 2}, {"k": "c", "n": 2}, {"k": "d", "n": 2}],
    "by_g": [
        {"g": "p", "k": "a", "x": 1}, {"g": "p", "k": "b", "x": 2},
        {"g": "q", "k": "c", "x": 3}, {"g": "q", "k": "d", "x": 4},
    ],
}  # fmt: skip


def plan_lines(db: vk.Database, name: str) -> str:
    return "\n".join(line for (line,) in db.execute(f"EXPLAIN {name}").rows)


def test_views_over_a_renamed_table_go_on(db: vk.Database) -> None:
    table, before = db.table("t"), dump(db.store)
    assert db.execute("ALTER TABLE t RENAME TO Orders").message == "table t is called Orders now"
    keep_up(db)
    assert dump(db.store) == before  # nothing is computed anew
    table.put("d", {"g": "q", "x": 4})  # a handle from before
    assert db.table("ORDERS").get("d") == {"k": "d", "g": "q", "x": 4}
    keep_up(db)

    assert contents(db) == AFTER_ONE_MORE
    assert [row[0] for row in db.execute("SHOW TABLES").rows] == ["Orders"]
    assert [row[0] for row in db.execute("DESCRIBE orders").rows] == ["k", "g", "x"]
    assert db.execute("SELECT COUNT(*) FROM orders").rows == ((4,),)
    with pytest.raises(vk.UnknownName, match="there is no table t"):
        db.table("t")


@pytest.mark.parametrize("name", ["counts", "many", "both", "by_g"])
def test_plans_speak_of_the_new_name_of_a_table(db: vk.Database, name: str) -> None:
    before = plan_lines(db, name)
    db.execute("ALTER TABLE t RENAME TO orders")

    assert plan_lines(db, name) == re.sub(r"\bt\b", "orders", before)
    assert "base orders(k, g, x)" in db.explain()


def test_another_table_may_take_the_old_name_and_is_not_meant_by_old_texts(db: vk.Database) -> None:
    db.execute("ALTER TABLE t RENAME TO orders; CREATE TABLE t (id INT PRIMARY KEY, g INT)")
    db.table("t").put(1, {"g": 7})
    db.table("orders").put("d", {"g": "q", "x": 4})
    db.execute("CREATE MATERIALIZED VIEW newer AS SELECT g, COUNT(*) AS n FROM t GROUP BY g")
    keep_up(db)

    assert contents(db) == AFTER_ONE_MORE | {"newer": [{"g": 7, "n": 1}]}
    assert "base orders(" in plan_lines(db, "counts") and "base t(" not in plan_lines(db, "counts")
    for name, id_ in (("counts", 1), ("newer", db.catalog().table("t").id)):
        _, tables = expanded_query(db.catalog(), db.catalog().view(name))
        assert [table.id for table in tables.values()] == [id_]


def test_views_over_a_renamed_view_go_on(db: vk.Database) -> None:
    opened = db.view("counts")
    assert db.execute("ALTER MATERIALIZED VIEW counts RENAME TO Totals").message == "view counts is called Totals now"
    db.table("t").put("d", {"g": "q", "x": 4})
    keep_up(db)

    found = contents(db)
    assert found == {"Totals" if name == "counts" else name: rows for name, rows in AFTER_ONE_MORE.items()}
    assert opened.get("q") == {"g": "q", "n": 2} and opened.name == "Totals"
    assert [row[0] for row in db.execute("SHOW VIEWS").rows] == ["Totals", "many", "both", "by_g"]
    assert "view Totals" in plan_lines(db, "totals") and "view counts" not in db.explain()
    assert db.execute("SELECT n FROM totals WHERE g = 'q'").rows == ((2,),)
    with pytest.raises(vk.UnknownName, match="there is no view counts"):
        db.view("counts")
    with pytest.raises(vk.NameInUse, match="view Totals is read by many, both"):
        db.execute("DROP MATERIALIZED VIEW totals")


def test_another_view_may_take_the_old_name_of_one_that_others_read(db: vk.Database) -> None:
    db.execute("ALTER MATERIALIZED VIEW counts RENAME TO totals")
    db.execute("CREATE MATERIALIZED VIEW counts AS SELECT COUNT(*) AS n FROM t")
    keep_up(db)
    before = plan_lines(db, "many")
    db.execute("DROP MATERIALIZED VIEW counts")  # nobody reads this one

    assert plan_lines(db, "many") == before
    assert list(db.view("many").scan()) == [{"g": "p"}]


def test_an_index_may_be_renamed(db: vk.Database) -> None:
    db.execute("ALTER MATERIALIZED VIEW by_g RENAME TO by_group; ALTER TABLE t RENAME TO orders")
    db.table("orders").put("d", {"g": "q", "x": 4})
    keep_up(db)

    assert list(db.view("by_group").scan("q")) == AFTER_ONE_MORE["by_g"][2:]
    assert "by_group" in plan_lines(db, "by_group") and "by_g " not in plan_lines(db, "by_group")


def test_an_epoch_that_was_begun_before_a_rename_ends_behind_it(db: vk.Database) -> None:
    db.table("t").put("d", {"g": "q", "x": 4})
    epoch = begin_epoch(db.store)
    db.execute("ALTER TABLE t RENAME TO orders; ALTER MATERIALIZED VIEW counts RENAME TO totals")
    HereRunner(db.store).run(plan_of(db.store, epoch), epoch)
    commit_epoch(db.store, epoch)

    assert db.view("totals").get("q") == {"g": "q", "n": 2}
    assert list(db.view("many").scan()) == AFTER_ONE_MORE["many"]


def test_a_table_with_a_stored_delta_may_be_renamed(tmp_path: Path) -> None:
    db = vk.connect(f"embedded:{tmp_path / 's'}?sync=off&before_images=off")
    db.execute("CREATE TABLE t (k STRING PRIMARY KEY, g STRING, x INT)")
    db.execute(VIEWS)
    db.table("t").put_many([{"k": k, "g": g, "x": x} for k, g, x in (("a", "p", 1), ("b", "p", 2), ("c", "q", 9))])
    keep_up(db)
    db.execute("ALTER TABLE t RENAME TO orders")
    db.table("orders").put("c", {"x": 3})
    db.table("orders").put("d", {"g": "q", "x": 4})
    keep_up(db)

    assert contents(db) == AFTER_ONE_MORE


def test_a_view_that_is_being_replaced_is_renamed_with_what_will_replace_it(db: vk.Database) -> None:
    db.execute("CREATE OR REPLACE MATERIALIZED VIEW many AS SELECT g, n FROM counts")
    db.execute("ALTER MATERIALIZED VIEW many RENAME TO all_groups")
    assert [view.name for view in db.catalog().replacements] == ["all_groups"]
    keep_up(db)

    assert list(db.view("all_groups").scan()) == [{"g": "p", "n": 2}, {"g": "q", "n": 1}]
    with pytest.raises(vk.UnknownName):
        db.view("many")


def test_only_the_spelling_may_change(db: vk.Database) -> None:
    db.execute("ALTER TABLE t RENAME TO T; ALTER MATERIALIZED VIEW counts RENAME TO COUNTS")

    assert (db.catalog().table("t").name, db.catalog().view("counts").name) == ("T", "COUNTS")


@pytest.mark.parametrize(
    ("statement", "kind", "fact"),
    [
        ("ALTER TABLE t RENAME TO Counts", vk.DuplicateName, "there is a view counts already"),
        ("ALTER MATERIALIZED VIEW many RENAME TO T", vk.DuplicateName, "there is a table t already"),
        ("ALTER MATERIALIZED VIEW many RENAME TO by_g", vk.DuplicateName, "there is a view by_g already"),
        ("ALTER TABLE nope RENAME TO other", vk.UnknownName, "there is no table nope"),
        ("ALTER MATERIALIZED VIEW man RENAME TO other", vk.UnknownName, "there is no view man; did you mean many?"),
        ("ALTER TABLE counts RENAME TO other", vk.UnknownName, "counts is a view, not a table"),
        ("ALTER MATERIALIZED VIEW t RENAME TO other", vk.UnknownName, "t is a table, not a view"),
        ("ALTER TABLE t RENAME TO counts", vk.DuplicateName, "choose another name$"),
        ("DROP INDEX counts", vk.UnknownName, "counts is a view, not an index; DROP VIEW counts"),
        ("DROP VIEW by_g", vk.UnknownName, "by_g is an index, not a view; DROP INDEX by_g"),
        ("DROP INDEX nope", vk.UnknownName, "there is no index nope"),
        ("DROP INDEX t", vk.UnknownName, "t is a table, not an index"),
        ("ALTER TABLE t RENAME TO a.b", vk.UnsupportedSql, "qualified"),
        ("ALTER TABLE t RENAME TO `a b`", vk.SqlError, "cannot be the name of a table"),
    ],
)
def test_what_cannot_be_renamed_or_dropped_is_refused(
    db: vk.Database, statement: str, kind: type[Exception], fact: str
) -> None:
    before = db.catalog()
    with pytest.raises(kind, match=fact):
        db.execute(statement)

    assert db.catalog() == before


def test_an_index_is_dropped_as_an_index(db: vk.Database) -> None:
    assert db.execute("DROP INDEX by_g").message == "index by_g dropped"
    assert db.execute("DROP INDEX IF EXISTS by_g").message == "index by_g is not there"
