"""OPTIMIZE VIEWS: views that copy the same rows are read from one copy, and readers see what they saw."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import viewkeeper as vk
from tests.support.running import keep_up

MOST = "SELECT k, x FROM r WHERE y > 0"
OTHERS = "SELECT x % 2 AS z, y FROM r WHERE y < 9 AND y IS NOT NULL"
ROWS = [{"k": k, "x": k % 3, "y": k % 10 if k % 7 else None} for k in range(50)]


@pytest.fixture
def db(tmp_path: Path) -> Iterator[vk.Database]:
    with vk.connect(f"embedded:{tmp_path / 's'}?sync=off") as database:
        database.execute("CREATE TABLE r (k INT PRIMARY KEY, x INT, y INT)")
        database.table("r").put_many(ROWS)
        database.execute(f"CREATE MATERIALIZED VIEW most AS {MOST}")
        database.execute(f"CREATE MATERIALIZED VIEW others AS {OTHERS}")
        keep_up(database)
        database.execute("OPTIMIZE VIEWS")
        keep_up(database)
        yield database


def expected(rows: list[dict]) -> tuple[list[dict], list[dict]]:
    known = [row for row in rows if row["y"] is not None]
    most = [{"k": row["k"], "x": row["x"]} for row in known if row["y"] > 0]
    return most, [{"z": row["x"] % 2, "y": row["y"]} for row in known if row["y"] < 9]


def held(db: vk.Database) -> tuple[list[dict], list[dict]]:
    return list(db.view("most").scan()), list(db.view("others").scan())


def test_two_views_keep_one_copy(db: vk.Database) -> None:
    assert len(db.catalog().nodes) == 1
    assert held(db) == expected(ROWS)
    assert db.view("most").get(10) is None and db.view("most").get(11) == {"k": 11, "x": 2}
    assert db.execute("SELECT COUNT(*) AS n FROM others").rows == ((len(expected(ROWS)[1]),),)


def test_a_row_that_changes_for_one_view_is_no_change_of_the_other(db: vk.Database) -> None:
    since = db.snapshot().epoch
    db.table("r").put({"k": 11, "x": 2, "y": 2})  # was 1: `most` shows neither
    db.table("r").put({"k": 12, "x": 0, "y": 9})  # was 2: leaves `others`
    db.table("r").put({"k": 10, "x": 1, "y": 3})  # was 0: enters `most`
    keep_up(db)
    changes = {name: [(c.key, c.before, c.after) for c in db.view(name).changes(since)] for name in ("most", "others")}
    assert changes == {
        "most": [((10,), None, {"k": 10, "x": 1})],
        "others": [
            ((10,), {"z": 1, "y": 0}, {"z": 1, "y": 3}),
            ((11,), {"z": 0, "y": 1}, {"z": 0, "y": 2}),
            ((12,), {"z": 0, "y": 2}, None),
        ],
    }


def test_a_view_over_a_member_reads_its_rows_alone(db: vk.Database) -> None:
    db.execute("CREATE MATERIALIZED VIEW counted AS SELECT x, COUNT(*) AS n FROM most GROUP BY x")
    keep_up(db)
    db.table("r").put_many([{"k": 10, "x": 1, "y": 3}, {"k": 11, "x": 2, "y": 0}])
    keep_up(db)
    most = list(db.view("most").scan())
    assert {row["x"]: row["n"] for row in db.view("counted").scan()} == {
        x: sum(row["x"] == x for row in most) for x in range(3)
    }


def test_a_new_view_that_needs_no_more_is_ready_at_once(db: vk.Database) -> None:
    db.execute("CREATE MATERIALIZED VIEW third AS SELECT y, x FROM r WHERE y > 0")
    assert db.catalog().view("third").sharing is not None
    assert db.view("third").get(11) == {"y": 1, "x": 2}
    assert db.view("third").get(10) is None


def test_a_new_view_over_rows_that_no_member_has_gets_its_own(db: vk.Database) -> None:
    db.execute("CREATE MATERIALIZED VIEW third AS SELECT k, x FROM r")
    assert db.catalog().view("third").sharing is None
    keep_up(db)
    assert len(list(db.view("third").scan())) == len(ROWS)


def test_views_of_few_common_rows_stay_alone(db: vk.Database) -> None:
    db.execute("CREATE MATERIALIZED VIEW rare AS SELECT k, x FROM r WHERE k = 5")
    db.execute("CREATE MATERIALIZED VIEW low AS SELECT k, x FROM r WHERE k < 20")
    keep_up(db)
    db.execute("OPTIMIZE VIEWS")
    keep_up(db)
    assert {view.name: view.sharing is not None for view in db.catalog().views} == {
        "most": True, "others": True, "rare": False, "low": True
    }  # fmt: skip


def test_what_can_fail_on_a_row_stays_alone(db: vk.Database) -> None:
    db.execute("CREATE MATERIALIZED VIEW f1 AS SELECT k, 1 / y AS q FROM r")
    db.execute("CREATE MATERIALIZED VIEW f2 AS SELECT k, 2 / y AS q FROM r")
    keep_up(db)
    db.execute("OPTIMIZE VIEWS")
    assert {db.catalog().view(name).sharing for name in ("f1", "f2")} == {None}


def test_what_is_shared_stays_shared(db: vk.Database) -> None:
    """Though nothing counts any more how many records each view has."""
    assert db.execute("OPTIMIZE VIEWS").message == "no view gets another plan"
