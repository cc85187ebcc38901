"""A hot first key part is shared out among all view managers, and every view stays what DuckDB makes of the base rows.

Four of five changes are of rows under one first key part. The number of managers and the division change from epoch to epoch.
"""

from __future__ import annotations

import random
import shutil
from collections import Counter
from pathlib import Path

import duckdb
import numpy as np
import pytest

import viewkeeper as vk
from tests.support.dump import dump
from tests.support.running import HereRunner, ManagersRunner
from tests.support.tiers import examples, seed
from viewkeeper.coordinator.coordinator import Coordinator
from viewkeeper.coordinator.view_managers import UNEVEN, Balance, owners_of_shards
from viewkeeper.operators.receipts import rows_of_all

TABLES = (
    "CREATE TABLE t (a INT, b INT, g INT, y INT, f DOUBLE, PRIMARY KEY (a, b));"
    "CREATE TABLE u (a INT, g INT, z INT, PRIMARY KEY (a, g)); CREATE TABLE w (a INT PRIMARY KEY, z INT)"
)
VIEWS = {
    "copied": "SELECT a, b, g, y FROM t WHERE y > 3",
    "by_g": "SELECT g, a, b, y FROM t",
    "summed": "SELECT a, COUNT(*) AS n, SUM(y) AS s FROM t GROUP BY a",
    "finer": "SELECT a, g, COUNT(*) AS n, SUM(y) AS s, SUM(f) AS fs FROM t GROUP BY a, g HAVING COUNT(*) > 1",
    "extremes": "SELECT a, MIN(y) AS lo, MAX(b) AS hi, COUNT(DISTINCT g) AS d FROM t GROUP BY a",
    "finer_extremes": "SELECT a, g, MIN(y) AS lo, MAX(b) AS hi FROM t GROUP BY a, g",
    "different": "SELECT DISTINCT a, g FROM t",
    "joined": "SELECT t.a, t.b, t.y, u.z FROM t JOIN u ON t.a = u.a AND t.g = u.g",
    "left_joined": "SELECT t.a, t.b, t.g, u.z FROM t LEFT JOIN u ON t.a = u.a AND t.g = u.g",
    "by_a": "SELECT t.a, t.b, t.y, w.z FROM t JOIN w ON t.a = w.a",
    "without": "SELECT a, b, y FROM t WHERE NOT EXISTS (SELECT 1 FROM u WHERE u.a = t.a AND u.g = t.g)",
    "pairs": "SELECT p.a, p.b, q.b AS c FROM t p JOIN t q ON p.a = q.a AND p.g = q.g AND p.y = q.y",
    "first": "SELECT a, b, y FROM t ORDER BY y DESC, a, b LIMIT 7",
    "above": "SELECT n, COUNT(*) AS groups, SUM(s) AS s FROM (SELECT a, g, COUNT(*) AS n, SUM(y) AS s FROM t GROUP BY a, g) "
    "GROUP BY n",
}
HOT, ROUNDS, CHANGES = 7, 4, 60


def make(path: Path, options: str = "") -> vk.Database:
    db = vk.connect(f"embedded:{path}?sync=off{options}")
    db.execute(TABLES)
    for name, sql in VIEWS.items():
        db.execute(f"CREATE MATERIALIZED VIEW {name} AS {sql}")
    return db


def write(db: vk.Database, choose: random.Random, changes: int = CHANGES) -> None:
    for _ in range(changes):
        a = HOT if choose.random() < 0.8 else choose.randrange(6)
        match choose.randrange(8):
            case 0:
                db.table("t").delete(a, choose.randrange(40))
            case 1:
                db.table("u").put(a, choose.randrange(9), {"z": choose.randrange(50)})
            case 2:
                db.table("u").delete(a, choose.randrange(9))
            case 3:
                db.table("w").put(a, {"z": choose.randrange(50)})
            case _:
                row = {"g": choose.randrange(9), "y": choose.randrange(20), "f": choose.randrange(64) / 8}
                db.table("t").put(a, choose.randrange(40), row)


def wrong(db: vk.Database) -> list[str]:
    """The views that are not what DuckDB makes of the base rows."""
    with duckdb.connect() as judge:
        for name in ("t", "u", "w"):
            judge.register(name, db.table(name).to_arrow())
        expected = {name: Counter(judge.sql(sql).fetchall()) for name, sql in VIEWS.items()}
    found = {name: Counter(tuple(row.values()) for row in db.view(name).scan()) for name in VIEWS}
    return [name for name in VIEWS if found[name] != expected[name]]


@pytest.mark.parametrize("options", ["", "&before_images=off", "&nodes=3"])
@pytest.mark.parametrize("number", range(examples(1, deep=3)))
def test_views_are_right_whatever_is_divided_among_however_many_managers(
    tmp_path: Path, options: str, number: int
) -> None:
    choose = random.Random(f"{seed()} {number} {options}")
    with make(tmp_path / "s", options) as db:
        runner = ManagersRunner(db.store, 1, seed=number)
        coordinator = Coordinator(db.store, runner)
        for managers in choose.sample(range(2, 12), ROUNDS):
            write(db, choose)
            shards = len(owners_of_shards(db.store.partitions, managers))
            runner.managers = managers
            runner.divided = frozenset(choose.sample(range(shards), choose.randint(1, shards)))
            coordinator.catch_up()
            assert wrong(db) == []


def test_the_bytes_are_the_same_whatever_is_divided(tmp_path: Path) -> None:
    choose = random.Random(seed())
    with make(tmp_path / "s") as db:
        write(db, choose)
        Coordinator(db.store, HereRunner(db.store)).catch_up()
        write(db, choose)
    dumps = []
    for number, divided in enumerate((None, range(0), range(8), range(0, 8, 2))):
        shutil.copytree(tmp_path / "s", tmp_path / f"s{number}")
        with vk.connect(f"embedded:{tmp_path / f's{number}'}?sync=off") as db:
            runner = HereRunner(db.store) if divided is None else ManagersRunner(db.store, 4, seed=number)
            runner.divided = frozenset(divided or ())
            Coordinator(db.store, runner).catch_up()
            dumps.append(dump(db.store))
    assert all(one == dumps[0] for one in dumps)


def shares(runner: ManagersRunner) -> float:
    """The rows of the manager that had most, in parts of the mean."""
    rows = np.zeros(runner.managers)
    for receipt in runner.receipts:
        if receipt.task.stage:
            rows[receipt.task.number] += sum(receipt.rows.values())
    return float(rows.max() / rows.mean())


def test_a_hot_first_key_part_is_shared_out_once_it_was_measured(tmp_path: Path) -> None:
    """Rows of input are counted, not seconds: what divides them is exact, and the same on every run."""
    with vk.connect(f"embedded:{tmp_path / 's'}?sync=off") as db:
        db.execute("CREATE TABLE t (a INT, b INT, y INT, PRIMARY KEY (a, b))")
        db.execute("CREATE MATERIALIZED VIEW copied AS SELECT a, b, y FROM t")
        db.execute("CREATE MATERIALIZED VIEW grouped AS SELECT a, b % 500 AS g, SUM(y) AS s FROM t GROUP BY a, b % 500")
        runner = ManagersRunner(db.store, 4)
        coordinator, balance, found = Coordinator(db.store, runner), Balance(), []
        coordinator.catch_up()
        for epoch in range(3):
            rows = [{"a": HOT if b % 5 else b % 97, "b": b, "y": b + epoch} for b in range(4_000)]
            db.table("t").put_many(rows)
            runner.divided = balance.divided(owners_of_shards(8, 4))
            coordinator.catch_up()
            balance = balance.after(8, rows_of_all(runner.receipts))
            found.append(shares(runner))
    assert found[0] > 2.5  # as many managers, and one of them has nearly all
    assert max(found[1:]) < UNEVEN
