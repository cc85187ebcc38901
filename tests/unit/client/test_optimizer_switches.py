"""OPTIMIZE VIEWS WITHOUT (rule, …): a rule that is off changes plans, in the store that is there, and no answer."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import viewkeeper as vk
from tests.support.plans import share_all
from tests.support.running import keep_up
from viewkeeper.errors import SqlError, UnknownName
from viewkeeper.plan.nodes import AggregateNode
from viewkeeper.plan.optimize import SWITCHES
from viewkeeper.plan.planner import physical_plan

VIEWS = {
    "many": "SELECT x, COUNT(*) AS n FROM r WHERE y > 2 GROUP BY x",
    "sums": "SELECT x, SUM(y) AS s FROM r GROUP BY x",
    "again": "SELECT x, SUM(y) AS s FROM r GROUP BY x",
    "held": "SELECT x, COUNT(*) AS n FROM r GROUP BY x HAVING COUNT(*) > 2",
    "best": "SELECT k, y FROM r ORDER BY y DESC, k LIMIT 3",
    "best_too": "SELECT k, y FROM r ORDER BY y DESC, k LIMIT 3",
    "pairs": "SELECT r.k, s.k AS l FROM r, s WHERE r.x = s.k AND s.w > 1 AND r.y = s.w",
    "either": "SELECT r.k, s.k AS l FROM r, s WHERE r.x = s.k AND ((r.y > 1 AND s.w = 2) OR (r.y > 1 AND r.k < 9))",
    "by_w": "SELECT x % 2 AS g, COUNT(*) AS n FROM r GROUP BY x % 2",
    "most": "SELECT k, x FROM r WHERE y > 0",
    "others": "SELECT k, y % 3 AS z FROM r WHERE y < 4",
    "threes": "SELECT a.k, b.k AS l, c.k AS m FROM r a JOIN r b ON a.x = b.x JOIN s c ON b.x = c.k",
}


@pytest.fixture
def db(tmp_path: Path) -> Iterator[vk.Database]:
    with vk.connect(f"embedded:{tmp_path / 's'}?sync=off") as database:
        database.execute("CREATE TABLE r (k INT PRIMARY KEY, x INT, y INT); CREATE TABLE s (k INT PRIMARY KEY, w INT)")
        database.table("r").put_many([{"k": k, "x": k % 4, "y": k % 5} for k in range(20)])
        database.table("s").put_many([{"k": k, "w": k + 1} for k in range(4)])
        for name, text in VIEWS.items():
            database.execute(f"CREATE MATERIALIZED VIEW {name} AS {text}")
        keep_up(database)
        yield database


def texts(db: vk.Database) -> list[str]:
    return sorted(node.text for node in db.catalog().nodes)


def evaluated_together(db: vk.Database) -> int:
    nodes = physical_plan(db.catalog()).nodes
    return sum(not node.alone for node in nodes if isinstance(node, AggregateNode))


def rows(db: vk.Database) -> dict[str, list]:
    return {name: list(db.view(name).scan()) for name in VIEWS}


@pytest.mark.parametrize("rule", SWITCHES)
def test_a_rule_that_is_off_changes_the_plan_and_no_row(db: vk.Database, rule: str) -> None:
    share_all(db)
    keep_up(db)
    every, held, counted = texts(db), rows(db), evaluated_together(db)
    db.execute(f"OPTIMIZE VIEWS WITHOUT ({rule})")
    assert rows(db) == held  # while the new plan is filled
    keep_up(db)
    assert rows(db) == held
    assert texts(db) != every or evaluated_together(db) < counted
    db.table("r").put({"k": 3, "x": 1, "y": 3})
    keep_up(db)
    held = rows(db)
    db.execute("OPTIMIZE VIEWS")
    keep_up(db)
    assert rows(db) == held and not db.catalog().rules_off
    share_all(db)
    keep_up(db)
    assert (texts(db), rows(db)) == (every, held)


def test_with_all_rules_off_every_view_has_its_own_tables(db: vk.Database) -> None:
    db.execute(f"OPTIMIZE VIEWS WITHOUT ({', '.join(SWITCHES).upper()})")
    keep_up(db)
    needs = [set(view.needs) for view in db.catalog().views]
    assert sum(map(len, needs)) == len(set.union(*needs)) == len(db.catalog().nodes)
    db.execute("CREATE MATERIALIZED VIEW third AS SELECT x, SUM(y) AS s FROM r GROUP BY x")
    assert not set(db.catalog().view("third").needs) & set.union(*needs)


def test_a_view_that_others_read_keeps_its_plan(db: vk.Database) -> None:
    db.execute("CREATE MATERIALIZED VIEW above AS SELECT s, COUNT(*) AS n FROM sums GROUP BY s")
    keep_up(db)
    needs = db.catalog().view("sums").needs
    db.execute("OPTIMIZE VIEWS WITHOUT (share_nodes)")
    keep_up(db)
    assert db.catalog().view("sums").needs == needs
    assert set(needs).isdisjoint(db.catalog().view("above").needs)
    assert sum(row["n"] for row in db.view("above").scan()) == 4


def test_the_rules_are_named(db: vk.Database) -> None:
    version = db.catalog().version
    with pytest.raises(UnknownName, match="there is no rule sharing; did you mean share_groupings"):
        db.execute("OPTIMIZE VIEWS WITHOUT (sharing)")
    with pytest.raises(SqlError, match="WITHOUT"):
        db.execute("OPTIMIZE VIEWS BUT NOT MINE")
    assert db.catalog().version == version
