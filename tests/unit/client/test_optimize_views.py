"""OPTIMIZE VIEWS: views of one family are read from one grouping, and readers see what they saw."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import viewkeeper as vk
from tests.support.running import keep_up
from viewkeeper.plan.nodes import AggregateNode
from viewkeeper.plan.planner import physical_plan

BIG = "SELECT x, COUNT(*) AS n, SUM(y) AS s FROM r WHERE y > 5 GROUP BY x"
ALL = "SELECT x, MAX(y) AS hi FROM r GROUP BY x"


@pytest.fixture
def db(tmp_path: Path) -> Iterator[vk.Database]:
    with vk.connect(f"embedded:{tmp_path / 's'}?sync=off") as database:
        database.execute("CREATE TABLE r (k INT PRIMARY KEY, x INT, y INT)")
        database.table("r").put_many([{"k": k, "x": k % 3, "y": k if k % 3 else 1} for k in range(10)])
        database.execute(f"CREATE MATERIALIZED VIEW big AS {BIG}")
        database.execute(f"CREATE MATERIALIZED VIEW every AS {ALL}")
        keep_up(database)
        database.execute("OPTIMIZE VIEWS")
        keep_up(database)
        yield database


def test_two_views_keep_one_table(db: vk.Database) -> None:
    catalog = db.catalog()
    assert len(catalog.nodes) == 1
    assert {view.node.table for view in catalog.views} == {catalog.nodes[0].table}


def test_a_group_of_other_views_alone_is_no_record(db: vk.Database) -> None:
    assert db.view("every").get(0) == {"x": 0, "hi": 1}
    assert db.view("big").get(0) is None
    assert [row["x"] for row in db.view("big").scan()] == [1, 2]
    assert db.execute("SELECT x FROM big").rows == ((1,), (2,))
    assert db.execute("SELECT COUNT(*) AS n FROM big").rows == ((2,),)


def test_a_having_that_asks_for_a_count_keeps_a_table_of_its_own(db: vk.Database) -> None:
    text = "SELECT x, MIN(y) AS lo FROM r GROUP BY x HAVING COUNT(*) FILTER (WHERE y > 5) > 0L"
    db.execute(f"CREATE MATERIALIZED VIEW held AS {text}")
    keep_up(db)
    assert db.view("held").get(0) is None
    assert [row["x"] for row in db.view("held").scan()] == [1, 2]
    assert db.view("held").to_arrow()["x"].to_pylist() == [1, 2]
    assert db.catalog().view("held").present is None


def test_views_are_read_while_the_grouping_is_filled(db: vk.Database) -> None:
    db.execute("CREATE MATERIALIZED VIEW low AS SELECT x, MIN(y) AS lo FROM r GROUP BY x")
    keep_up(db)
    db.execute("OPTIMIZE VIEWS")
    assert db.view("low").get(1) == {"x": 1, "lo": 1}
    assert db.view("big").get(0) is None
    keep_up(db)
    assert len(db.catalog().nodes) == 1
    assert db.view("low").get(1) == {"x": 1, "lo": 1}


def test_views_that_are_not_filled_are_replaced_at_once(db: vk.Database) -> None:
    for number, bound in enumerate((3, 4)):
        db.execute(f"CREATE MATERIALIZED VIEW w{number} AS SELECT y, COUNT(*) AS n FROM r WHERE x < {bound} GROUP BY y")
    assert "2 views" in db.execute("OPTIMIZE VIEWS").message
    assert not db.catalog().replacements
    keep_up(db)
    assert db.view("w0").get(1) == db.view("w1").get(1) == {"y": 1, "n": 5}


def test_nothing_is_left_to_optimize(db: vk.Database) -> None:
    version = db.catalog().version
    assert db.execute("OPTIMIZE VIEWS").message == "no view gets another plan"
    assert db.catalog().version == version


def test_a_new_view_that_needs_no_more_is_ready_at_once(db: vk.Database) -> None:
    db.execute("CREATE MATERIALIZED VIEW sums AS SELECT x, SUM(y) AS s FROM r WHERE y > 5 GROUP BY x")
    assert db.view("sums").get(1) == {"x": 1, "s": 7}
    assert len(db.catalog().nodes) == 1


def test_changes_are_those_of_the_view(db: vk.Database) -> None:
    since = db.snapshot().epoch
    db.table("r").put({"k": 100, "x": 0, "y": 2})  # nothing for `big`
    keep_up(db)
    db.table("r").put({"k": 101, "x": 0, "y": 6})
    keep_up(db)
    assert [(one.key, one.before, one.after) for one in db.view("big").changes(since)] == [
        ((0,), None, {"x": 0, "n": 1, "s": 6})
    ]


def test_the_grouping_goes_with_its_last_view(db: vk.Database) -> None:
    db.execute("DROP VIEW every")
    assert len(db.catalog().sharings) == 1
    db.table("r").put({"k": 100, "x": 1, "y": 10})
    keep_up(db)
    assert db.view("big").get(1) == {"x": 1, "n": 2, "s": 17}
    db.execute("DROP VIEW big")
    assert db.catalog().sharings == db.catalog().nodes == ()


def test_a_star_keeps_the_columns_it_had(db: vk.Database) -> None:
    db.execute("CREATE MATERIALIZED VIEW star AS SELECT DISTINCT * FROM r")
    db.execute("CREATE MATERIALIZED VIEW some AS SELECT DISTINCT * FROM r WHERE y > 2")
    db.execute("ALTER TABLE r ADD COLUMN z INT")
    keep_up(db)
    db.execute("OPTIMIZE VIEWS")
    keep_up(db)
    assert db.catalog().view("star").sharing is not None
    assert db.view("star").get(1, 1, 1) == {"k": 1, "x": 1, "y": 1}


def test_what_can_fail_on_a_row_stays_alone(db: vk.Database) -> None:
    for number in range(2):
        db.execute(
            f"CREATE MATERIALIZED VIEW f{number} AS SELECT y, COUNT(*) AS n FROM r WHERE 1 / x > {number} GROUP BY y"
        )
    db.execute("OPTIMIZE VIEWS")
    assert [db.catalog().view(f"f{number}").sharing for number in range(2)] == [None, None]


def test_a_view_that_others_read_stays_alone(db: vk.Database) -> None:
    db.execute("CREATE MATERIALIZED VIEW low AS SELECT x, MIN(y) AS lo FROM r GROUP BY x")
    db.execute("CREATE MATERIALIZED VIEW lower AS SELECT x, lo + 1 AS lo FROM low")
    db.execute("OPTIMIZE VIEWS")
    keep_up(db)
    assert db.catalog().view("low").sharing is None
    assert db.view("lower").get(1) == {"x": 1, "lo": 2}


def test_a_view_over_a_shared_one_reads_its_rows_alone(db: vk.Database) -> None:
    db.execute("CREATE MATERIALIZED VIEW above AS SELECT n, COUNT(*) AS c FROM big GROUP BY n")
    keep_up(db)
    assert list(db.view("above").scan()) == [{"n": 1, "c": 2}]
    db.table("r").put({"k": 100, "x": 0, "y": 6})
    keep_up(db)
    assert list(db.view("above").scan()) == [{"n": 1, "c": 3}]


def test_a_sum_that_does_not_fit_degrades_its_own_view_alone(db: vk.Database) -> None:
    db.execute("CREATE TABLE b (k INT PRIMARY KEY, g INT, v BIGINT)")
    db.execute("CREATE MATERIALIZED VIEW sums AS SELECT g, SUM(v) AS s FROM b WHERE k > 0 GROUP BY g")
    db.execute("CREATE MATERIALIZED VIEW counts AS SELECT g, COUNT(*) AS n FROM b GROUP BY g")
    db.execute("OPTIMIZE VIEWS")
    db.table("b").put_many([{"k": k, "g": 1, "v": 2**63 - 1} for k in range(3)])
    keep_up(db)
    assert db.view("sums").get(1) == {"g": 1, "s": None}
    degraded = {view.name: view.degraded.count for view in db.status().views}
    assert (degraded["sums"], degraded["counts"]) == (1, 0)


def test_a_large_family_is_divided(db: vk.Database) -> None:
    for number in range(120):
        db.execute(
            f"CREATE MATERIALIZED VIEW m{number} AS SELECT y, COUNT(*) AS n FROM r WHERE k > {number} GROUP BY y"
        )
    db.execute("OPTIMIZE VIEWS")
    keep_up(db)
    shared = [view.sharing for view in db.catalog().views if view.name.startswith("m")]
    assert 2 <= len(set(shared)) <= 4 and None not in shared
    assert db.view("m4").get(5) == {"y": 5, "n": 1}
    assert db.view("m5").get(5) is None


def test_explain_names_the_filters_and_who_shares(db: vk.Database) -> None:
    plan = "\n".join(row[0] for row in db.execute("EXPLAIN").rows)
    assert plan.count("γ") == 1
    assert "sum(y) filter (where y > 5)" in plan
    assert "big" in plan and "every" in plan


def test_optimize_takes_nothing_else(db: vk.Database) -> None:
    with pytest.raises(vk.errors.SqlError, match="all views"):
        db.execute("OPTIMIZE VIEWS big")


def test_many_changed_rows_are_read_once_for_all_filters(tmp_path: Path) -> None:
    """Extremes and exact sums get theirs besides."""
    texts = {
        "some": "SELECT x, COUNT(*) AS n, SUM(y) AS s FROM r WHERE y > 5 GROUP BY x",
        "even": "SELECT x, MIN(y) AS lo, MAX(y) AS hi FROM r WHERE k % 2 = 0 GROUP BY x",
        "exact": "SELECT x, SUM(f) AS s FROM r GROUP BY x",
    }
    rows = [{"k": k, "x": k % 7, "y": k % 11, "f": k / 8} for k in range(30_000)]
    with vk.connect(f"embedded:{tmp_path / 'many'}?sync=off") as db:
        db.execute("CREATE TABLE r (k INT PRIMARY KEY, x INT, y INT, f DOUBLE NOT NULL)")
        for name, text in texts.items():
            db.execute(f"CREATE MATERIALIZED VIEW {name} AS {text}")
        db.execute("OPTIMIZE VIEWS")
        (node,) = physical_plan(db.catalog()).nodes
        assert isinstance(node, AggregateNode)
        for change in (0, 3):
            db.table("r").put_many([row | {"y": row["y"] + change} for row in rows])
            keep_up(db)
            for name, text in texts.items():
                held = sorted(tuple(row.values()) for row in db.view(name).scan())
                assert held == sorted(db.execute(text).rows), name


def test_having_and_computed_columns_are_kept_beside_the_aggregates(db: vk.Database) -> None:
    texts = {
        "held": "SELECT x, COUNT(*) AS n FROM r GROUP BY x HAVING COUNT(*) > 3",
        "mean": "SELECT x, SUM(y) / COUNT(*) AS q, COUNT(*) + 1 AS m FROM r WHERE y > 5 GROUP BY x",
        "least": "SELECT x, 12 / (MIN(y) - 1) AS q FROM r GROUP BY x",
    }
    for name, text in texts.items():
        db.execute(f"CREATE MATERIALIZED VIEW {name} AS {text}")
    keep_up(db)
    db.execute("OPTIMIZE VIEWS")
    keep_up(db)
    assert len(db.catalog().nodes) == 1
    for step in range(3):
        for name in ("held", "mean"):
            assert list(db.view(name).scan()) == db.execute(f"{texts[name]} ORDER BY x").to_dicts(), (name, step)
        db.table("r").put_many([{"k": 9, "x": 1 + step, "y": 8}, {"k": 20 + step, "x": 2 - step, "y": 9}])
        keep_up(db)
    assert db.view("least").get(0) == {"x": 0, "q": None}  # 12 / 0
    found = {view.name: view.degraded.count for view in db.status().views}
    assert found == {"big": 0, "every": 0, "held": 0, "mean": 0, "least": 2}
