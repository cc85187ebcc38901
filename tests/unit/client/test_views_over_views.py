"""Views over views: each reads what the one below it keeps, which cannot be taken away from it."""

from __future__ import annotations

from pathlib import Path

import pytest

import viewkeeper as vk
from tests.support.dump import contents
from tests.support.running import ManagersRunner, keep_up
from viewkeeper.coordinator.coordinator import Coordinator
from viewkeeper.settings import EpochLimits

ROWS = [("a", "p", 1), ("b", "p", 5), ("c", "q", 9), ("d", None, 2)]
LAYERS = """
CREATE MATERIALIZED VIEW everything AS SELECT * FROM t;
CREATE MATERIALIZED VIEW sums AS SELECT g, SUM(x) AS s, COUNT(*) AS n FROM everything GROUP BY g;
CREATE MATERIALIZED VIEW large AS SELECT * FROM sums WHERE s > 5;
CREATE MATERIALIZED VIEW spread AS SELECT n, MAX(s) AS most FROM large GROUP BY n
"""


@pytest.fixture
def db(tmp_path: Path) -> vk.Database:
    db = vk.connect(f"embedded:{tmp_path / 's'}?sync=off")
    db.execute("CREATE TABLE t (k STRING PRIMARY KEY, g STRING, x INT)")
    db.table("t").put_many([{"k": k, "g": g, "x": x} for k, g, x in ROWS])
    return db


def test_views_of_any_depth_move_in_the_same_epoch(db: vk.Database) -> None:
    db.execute(LAYERS)
    keep_up(db)
    assert list(db.view("spread").scan()) == [{"n": 1, "most": 9}, {"n": 2, "most": 6}]
    db.table("t").put("d", {"g": "q", "x": 10})
    db.table("t").delete("a")
    (done,) = Coordinator(db.store, ManagersRunner(db.store, 3)).catch_up()

    assert db.epoch == done.epoch
    assert list(db.view("large").scan()) == [{"g": "q", "s": 19, "n": 2}]
    assert list(db.view("spread").scan()) == [{"n": 2, "most": 19}]


def test_a_view_that_another_reads_stays_until_that_one_is_gone(db: vk.Database) -> None:
    db.execute(LAYERS)
    for name, readers in (("everything", "sums"), ("sums", "large"), ("large", "spread")):
        with pytest.raises(vk.NameInUse, match=f"view {name} is read by {readers}; drop the views first"):
            db.execute(f"DROP MATERIALIZED VIEW {name}")
        with pytest.raises(vk.NameInUse):
            db.execute(f"DROP MATERIALIZED VIEW IF EXISTS {name}")
    with pytest.raises(vk.NameInUse, match="table t is read by everything"):
        db.execute("DROP TABLE t")
    for name in ("spread", "large", "sums", "everything"):
        db.execute(f"DROP MATERIALIZED VIEW {name}")

    assert db.catalog().views == ()
    db.execute("DROP TABLE t")


def test_a_column_added_below_is_not_in_stars_that_were_written_before(db: vk.Database) -> None:
    db.execute("CREATE MATERIALIZED VIEW everything AS SELECT * FROM t")
    db.execute("CREATE MATERIALIZED VIEW again AS SELECT * FROM everything")
    keep_up(db)
    db.execute("ALTER TABLE t ADD COLUMN note STRING")
    db.execute("CREATE MATERIALIZED VIEW later AS SELECT * FROM everything")  # the star of a view of before
    db.execute("CREATE MATERIALIZED VIEW fresh AS SELECT * FROM t WHERE note IS NOT NULL")
    db.execute("CREATE MATERIALIZED VIEW over_fresh AS SELECT * FROM fresh")
    db.table("t").put("a", {"note": "n"})
    keep_up(db)
    db.execute("ALTER TABLE t ADD COLUMN more INT")
    db.table("t").put("a", {"more": 1, "x": 2})
    keep_up(db)
    found = contents(db)

    assert found["everything"][0] == found["again"][0] == found["later"][0] == {"k": "a", "g": "p", "x": 2}
    assert found["fresh"] == found["over_fresh"] == [{"k": "a", "g": "p", "x": 2, "note": "n"}]
    for name, columns in (("again", 3), ("later", 3), ("over_fresh", 4)):
        assert len(db.execute(f"DESCRIBE {name}").rows) == columns
        (base,) = [line for (line,) in db.execute(f"EXPLAIN {name}").rows if ":= base" in line]
        assert base.startswith("r0 := base t(k, g, x, note, more)")  # the table is that of today
        (shown,) = [line for (line,) in db.execute(f"EXPLAIN {name}").rows if f"keeps view {name}" in line]
        assert shown.count(",") == columns - 2


def test_a_name_in_a_view_is_no_longer_that_of_a_table_with_another_column(db: vk.Database) -> None:
    """A view whose text names a column twice over a join of views keeps its plan when columns of that name come below."""
    db.execute("CREATE TABLE u (k STRING PRIMARY KEY, y INT)")
    db.execute("CREATE MATERIALIZED VIEW left_one AS SELECT * FROM t")
    db.execute("CREATE MATERIALIZED VIEW pairs AS SELECT l.k, y, x FROM left_one l JOIN u ON l.k = u.k")
    db.table("u").put("a", {"y": 7})
    keep_up(db)
    db.execute("ALTER TABLE t ADD COLUMN y INT; ALTER TABLE u ADD COLUMN x INT")  # y and x would be ambiguous now
    db.table("t").put("b", {"y": 1, "x": 8})
    db.table("u").put("b", {"y": 9, "x": 1})
    keep_up(db)

    assert list(db.view("pairs").scan()) == [{"k": "a", "y": 7, "x": 1}, {"k": "b", "y": 9, "x": 8}]
    assert "base u(k, y, x)" in db.explain("pairs")


def test_an_index_cannot_be_read_by_a_view(db: vk.Database) -> None:
    db.execute("CREATE INDEX by_g ON t (g)")
    with pytest.raises(vk.UnsupportedSql, match="by_g is an index, which a view cannot read"):
        db.execute("CREATE MATERIALIZED VIEW v AS SELECT * FROM by_g")


def test_a_view_over_one_that_is_not_filled_yet_is_filled_with_it(db: vk.Database) -> None:
    db.execute(LAYERS)
    with pytest.raises(vk.NotReady):
        list(db.view("spread").scan())
    Coordinator(db.store, ManagersRunner(db.store, 2), limits=EpochLimits(rows=4)).catch_up()

    assert list(db.view("spread").scan()) == [{"n": 1, "most": 9}, {"n": 2, "most": 6}]


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("SELECT b.k, a.x FROM t a JOIN t b ON a.g = b.g", [("k", "2"), ("x", ""), ("k", "1, not shown")]),
        ("SELECT a.k, b.x FROM t a JOIN t b ON a.g = b.g", [("k", "1"), ("x", ""), ("k", "2, not shown")]),
        ("SELECT a.k, b.k AS other FROM t a JOIN t b ON a.g = b.g", [("k", "1"), ("other", "2")]),
        ("SELECT a.g AS k, b.x FROM t a JOIN t b ON a.g = b.g",
         [("k", ""), ("x", ""), ("k", "1, not shown"), ("k", "2, not shown")]),
        ("SELECT b.k, a.x FROM t a JOIN t b ON a.k = b.g", [("k", "1"), ("x", "")]),
        ("SELECT x AS g, COUNT(*) AS n FROM t GROUP BY g, x", [("g", "2"), ("n", ""), ("g", "1, not shown")]),
    ],
)  # fmt: skip
def test_describe_says_which_column_is_which_part_of_the_key(db: vk.Database, query: str, expected: list) -> None:
    """Columns of both sides of a join may have one name: what counts is where a column stands in the key."""
    db.execute(f"CREATE MATERIALIZED VIEW v AS {query}")

    assert [(row[0], row[3]) for row in db.execute("DESCRIBE v").rows] == expected


def test_what_doubles_at_every_level_is_refused_in_time(db: vk.Database) -> None:
    before = db.catalog()
    levels = ", ".join(f"t{n} AS (SELECT x.k FROM t{n - 1} x JOIN t{n - 1} y ON x.k = y.k)" for n in range(1, 60))
    with pytest.raises(vk.UnsupportedSql, match="more than 2,000 steps long; what stands in it twice counts twice"):
        db.execute(f"CREATE MATERIALIZED VIEW v AS WITH t0 AS (SELECT k FROM t), {levels} SELECT k FROM t59")
    assert db.catalog() == before


def test_a_long_chain_is_no_problem(db: vk.Database) -> None:
    levels = ", ".join(f"t{n} AS (SELECT k FROM t{n - 1})" for n in range(1, 200))
    db.execute(f"CREATE MATERIALIZED VIEW v AS WITH t0 AS (SELECT k FROM t), {levels} SELECT k FROM t199")

    assert db.catalog().view("v").shown[0].column.name == "k"
