"""Groupings that are computed from the records of a finer one hold what is computed from the rows."""

from __future__ import annotations

import random
from collections.abc import Iterator

import duckdb
import pyarrow as pa
import pytest

import viewkeeper as vk
from tests.support.plans import share_all
from tests.support.running import Interrupted, ManagersRunner, RunThenDie, keep_up
from tests.support.tiers import examples
from viewkeeper.coordinator.coordinator import Coordinator
from viewkeeper.plan.nodes import AggregateNode
from viewkeeper.plan.planner import physical_plan

TABLE = "CREATE TABLE t (k INT PRIMARY KEY, x INT, b BIGINT, n DECIMAL(30, 2), s STRING, d DOUBLE)"
FED = {
    "fine": "SELECT x, COUNT(*) AS n, SUM(b) AS total FROM t GROUP BY x",
    "ends": "SELECT x % 10 AS g, MIN(s) AS lo, MAX(s) AS hi, MIN(b) AS least FROM t GROUP BY x % 10",
    "sums": "SELECT x % 5 AS g, SUM(b) AS total, AVG(b) AS mean, COUNT(b) AS n FROM t GROUP BY x % 5",
    "wide": "SELECT x % 3 AS g, SUM(n) AS total, AVG(n) AS mean FROM t GROUP BY x % 3",
    "some": "SELECT x % 10 AS g, MAX(b) AS most, COUNT(*) AS n FROM t WHERE k % 2 = 0 AND x > 3 GROUP BY x % 10",
    "same": "SELECT x % 5 AS g, SUM(b) AS total FROM t WHERE x > 3 AND k % 2 = 0 GROUP BY x % 5",
    "having": "SELECT x % 2 AS g, COUNT(*) * 2 AS n FROM t GROUP BY x % 2 HAVING COUNT(*) > 40",
    "spread": "SELECT x > 15 AS g, VARIANCE(b) AS v FROM t GROUP BY x > 15",
    "double": "SELECT x % 7 AS g, MIN(d) AS lo, MAX(d) AS hi, COUNT(d) AS n FROM t GROUP BY x % 7",
}
ALONE = {
    "distinct": "SELECT x % 10 AS g, s, COUNT(DISTINCT b) AS n FROM t GROUP BY x % 10, s",
    "of_doubles": "SELECT x % 4 AS g, SUM(d) AS total FROM t GROUP BY x % 4",
    "other": "SELECT k % 3 AS g, COUNT(*) AS n FROM t GROUP BY k % 3",
}


@pytest.fixture
def db() -> Iterator[vk.Database]:
    with vk.connect("memory:") as db:
        db.execute(TABLE)
        yield db


def change(db: vk.Database, choose: random.Random, rows: dict[int, dict]) -> None:
    for key in choose.sample(range(400), choose.choice([3, 120, 300])):
        if choose.random() < 0.3 and rows.pop(key, None):
            db.table("t").delete(key)
            continue
        b = choose.choice([None, choose.randrange(-99, 99), choose.choice([-1, 1]) * (2**62 + choose.randrange(9))])
        n = choose.choice([None, choose.randrange(-(10**6), 10**6), choose.choice([-1, 1]) * 10**27])
        rows[key] = {"k": key, "x": choose.randrange(45), "b": b, "n": n, "s": choose.choice([None, *"abcdef"])}
        rows[key]["d"] = choose.choice([None, -0.0, 0.0, 1.5, -2.25, float("inf")])
        db.table("t").put(rows[key])


def fed(db: vk.Database) -> set[str]:
    """The views whose γ reads the records of another."""
    plan = physical_plan(db.catalog())
    nodes = {node.table: node for node in plan.nodes if isinstance(node, AggregateNode)}
    over = {table for table, node in nodes.items() if node.edges[0].source in nodes}
    return {view.name for view in db.catalog().views if view.node.table in over}


def shown(db: vk.Database, name: str) -> list[tuple]:
    return sorted((tuple(row.values()) for row in db.view(name).scan()), key=repr)


@pytest.mark.parametrize("seed", range(examples(2, deep=8)))
def test_views_of_many_grains_hold_what_each_holds_alone(db: vk.Database, seed: int) -> None:
    choose, rows = random.Random(seed), dict[int, dict]()
    for name, text in (FED | ALONE).items():
        db.execute(f"CREATE MATERIALIZED VIEW {name} AS {text}")
    for _ in range(4):
        change(db, choose, rows)
    while len(rows) < 220:
        change(db, choose, rows)
    keep_up(db)
    share_all(db)
    with vk.connect("memory:") as plain:
        plain.execute(TABLE)
        for name, text in (FED | ALONE).items():
            plain.execute(f"CREATE MATERIALIZED VIEW {name} AS {text}")
        plain.table("t").put_many(list(rows.values()))
        for managers in (1, 3, 2):
            keep_up(plain)
            if choose.random() < 0.5:
                with pytest.raises(Interrupted):
                    Coordinator(db.store, RunThenDie(ManagersRunner(db.store, managers, seed))).catch_up()
            Coordinator(db.store, ManagersRunner(db.store, managers, seed)).catch_up()
            assert fed(db) == FED.keys() - {"fine"}
            for name in FED | ALONE:
                assert shown(db, name) == shown(plain, name), name
            number = choose.random()
            kept = dict(rows)
            change(plain, random.Random(number), kept)
            change(db, random.Random(number), rows)


def test_what_a_fine_group_cannot_show_counts_in_a_coarse_one(db: vk.Database) -> None:
    """Sums are added up exactly: one of 65 bits under x = 1 and its counterpart under x = 11."""
    for name in ("fine", "sums"):
        db.execute(f"CREATE MATERIALIZED VIEW {name} AS {FED[name]}")
    numbers = [2**63 - 1, 2**63 - 1, -(2**63), -(2**63) + 8]
    db.table("t").put_many([{"k": key, "x": 1 + 10 * (key > 1), "b": b} for key, b in enumerate(numbers)])
    db.table("t").put_many([{"k": 10 + key, "x": 2, "b": None} for key in range(10)])
    keep_up(db)
    share_all(db)
    keep_up(db)

    assert fed(db) == {"sums"}
    assert db.view("fine").get(1)["total"] is None  # does not fit: the group is listed as degraded
    assert db.view("sums").get(1)["total"] == sum(numbers) == 6


def test_a_grouping_feeds_a_coarser_one_where_that_costs_less(db: vk.Database) -> None:
    """With a group for each row it would keep a sum in each record, and change as many records as rows change."""
    db.execute("CREATE MATERIALIZED VIEW fine AS SELECT x, COUNT(*) AS n FROM t GROUP BY x")
    db.execute("CREATE MATERIALIZED VIEW coarse AS SELECT x % 10 AS g, SUM(b) AS n FROM t GROUP BY x % 10")
    db.table("t").put_many([{"k": key, "x": key, "b": key} for key in range(5_000)])
    keep_up(db)
    db.execute("OPTIMIZE VIEWS")
    keep_up(db)
    assert fed(db) == set()

    db.table("t").put_many([{"k": key, "x": key % 40, "b": key} for key in range(5_000)])
    db.execute(
        "DROP VIEW fine; CREATE MATERIALIZED VIEW fine AS SELECT x, COUNT(*) AS n, SUM(b) AS s FROM t GROUP BY x"
    )
    keep_up(db)
    db.execute("OPTIMIZE VIEWS")
    keep_up(db)
    assert fed(db) == {"coarse"}
    db.execute("OPTIMIZE VIEWS WITHOUT (feed_groupings)")
    keep_up(db)
    assert fed(db) == set()


def test_views_come_to_and_leave_a_grouping_that_feeds(db: vk.Database) -> None:
    for name in ("fine", "ends", "sums"):
        db.execute(f"CREATE MATERIALIZED VIEW {name} AS {FED[name]}")
    choose, rows = random.Random(1), dict[int, dict]()
    while len(rows) < 220:
        change(db, choose, rows)
    keep_up(db)
    share_all(db)
    keep_up(db)
    db.execute("DROP VIEW fine")  # its γ stays for the others
    db.execute("CREATE MATERIALIZED VIEW later AS SELECT x % 10 AS h, MAX(s) AS hi FROM t GROUP BY x % 10")
    assert fed(db) == {"ends", "sums", "later"}
    change(db, choose, rows)
    keep_up(db)
    texts = {
        "later": "SELECT x % 10, max(s) FROM t GROUP BY ALL",
        "ends": "SELECT x % 10, min(s), max(s), min(b) FROM t GROUP BY ALL",
    }
    t = pa.Table.from_pylist([{name: row[name] for name in ("x", "b", "s")} for row in rows.values()])
    with duckdb.connect() as connection:
        connection.register("t", t)
        for name, text in texts.items():
            assert shown(db, name) == sorted(connection.sql(text).fetchall(), key=repr)
    for name in ("ends", "sums", "later"):
        db.execute(f"DROP VIEW {name}")
    keep_up(db)
    assert db.catalog().nodes == () and db.catalog().sharings == ()
