"""Measured work: what receipts count is what the store was asked for, by table; epochs of changes add up in the store."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import viewkeeper as vk
from tests.support.running import HereRunner, ManagersRunner, keep_up
from tests.support.simulation.processes import calm_database
from viewkeeper.coordinator import steps
from viewkeeper.coordinator.coordinator import Coordinator
from viewkeeper.model.epochs import EpochRecord, Inflight
from viewkeeper.model.positions import Cut
from viewkeeper.model.work_stats import MEASURED, Counts, Kinds, Work, WorkStats
from viewkeeper.settings import EpochLimits

VIEWS = {
    "copied": "SELECT id, amount FROM orders WHERE amount > 50",
    "grouped": "SELECT region, COUNT(*) AS n, SUM(amount) AS total FROM orders GROUP BY region",
    "ends": "SELECT region, MIN(amount) AS lo, MAX(amount) AS hi FROM orders GROUP BY region",
    "large": "SELECT region, COUNT(*) AS n FROM orders GROUP BY region HAVING COUNT(*) > 3",
    "joined": "SELECT o.id, s.id AS shop, s.name FROM orders o JOIN shops s ON o.region = s.region",
    "kept": "SELECT o.id, s.name FROM orders o LEFT JOIN shops s ON o.region = s.region",
    "first": "SELECT id, amount FROM orders ORDER BY amount, id LIMIT 5",
    "ratio": "SELECT id, 100 / amount AS part FROM orders",
}


class Spy:
    """A store that notes what it is asked for, record by record."""

    def __init__(self, store: Any) -> None:
        self._store = store
        self.asked: dict[int, Counter[str]] = {}

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    def _note(self, table: int, what: str, count: int) -> None:
        self.asked.setdefault(table, Counter())[what] += count

    def read_versions(self, table: int, keys: pa.Array, *rest: Any) -> Any:
        self._note(table, "gets", len(keys.to_pylist()))
        return self._store.read_versions(table, keys, *rest)

    def scan_prefixes(self, partition: int, table: int, *rest: Any, **named: Any) -> Iterator[pa.RecordBatch]:
        for batch in self._store.scan_prefixes(partition, table, *rest, **named):
            self._note(table, "scanned", len(batch.to_pylist()))
            yield batch

    def write_versions(self, writes: Any, epoch: Any) -> None:
        for write in writes:
            keys = [write.found.keys[int(place)].as_py() for place in write.chosen]
            for key, row in zip(keys, write.rows.to_pylist(), strict=True):
                self._note(write.table, "deletes" if row is None else "puts", 1)
                self._note(write.table, "bytes", len(key) + len(row or b""))
        self._store.write_versions(writes, epoch)


def work(table: Work) -> dict[str, int]:
    named = {name: getattr(table, name) for name in ("gets", "scanned", "puts", "deletes", "bytes")}
    return {name: count for name, count in named.items() if count}


@pytest.fixture(params=["embedded", "memory", "hbase"])
def db(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[vk.Database]:
    urls = {"embedded": f"embedded:{tmp_path / 's'}?sync=off", "memory": f"memory:{tmp_path.name}"}
    with calm_database() if request.param == "hbase" else vk.connect(urls[request.param]) as database:
        database.execute("CREATE TABLE orders (id BIGINT PRIMARY KEY, region STRING, amount INT)")
        database.execute("CREATE TABLE shops (id BIGINT PRIMARY KEY, region STRING, name STRING)")
        yield database


def change(db: vk.Database, seed: int, *, rows: int = 200) -> None:
    choose = random.Random(seed)
    orders, shops = db.table("orders"), db.table("shops")
    orders.put_many(
        [{"id": choose.randrange(300), "region": f"r{choose.randrange(9)}", "amount": choose.randrange(99)}
         for _ in range(rows)]
    )  # fmt: skip
    for _ in range(rows // 20):
        orders.delete(choose.randrange(300))
        shops.put({"id": choose.randrange(30), "region": f"r{choose.randrange(9)}", "name": f"n{choose.random()}"})


@pytest.mark.parametrize("managers", [1, 3])
def test_what_is_counted_is_what_the_store_was_asked_for(db: vk.Database, managers: int) -> None:
    for name, text in VIEWS.items():
        db.execute(f"CREATE MATERIALIZED VIEW {name} AS {text}")
    change(db, 1)
    keep_up(db)
    spy = Spy(db.store)
    runner = HereRunner(spy) if managers == 1 else ManagersRunner(spy, managers)  # type: ignore[arg-type]
    change(db, 2)
    (done,) = Coordinator(db.store, runner).catch_up()

    asked = {table: dict(+one) for table, one in spy.asked.items() if +one}
    assert {table: work(one) for table, one in done.counts.tables.items() if work(one)} == asked
    nodes = {node.table for node in db.catalog().nodes}
    assert {table for table, one in done.counts.tables.items() if one.inputs} >= nodes
    assert sum(one.total for one in done.counts.changes.values()) == done.changes > 200
    assert 0 < done.counts.get_seconds + done.counts.put_seconds < done.counts.apply_seconds


def test_epochs_of_changes_add_up_in_the_store_and_those_of_backfills_do_not(db: vk.Database) -> None:
    db.execute(f"CREATE MATERIALIZED VIEW grouped AS {VIEWS['grouped']}")
    change(db, 1)
    keep_up(db).close()
    assert WorkStats.from_json(db.store.read_json("note", MEASURED)) == WorkStats()

    done = []
    for seed in (2, 3):
        change(db, seed)
        coordinator = Coordinator(db.store, HereRunner(db.store))
        done += coordinator.catch_up()
        coordinator.close()
    measured = WorkStats.from_json(db.store.read_json("note", MEASURED))
    table = db.catalog().view("grouped").node.table
    assert measured.epochs == 2
    assert measured.counts.tables[table].gets == sum(one.counts.tables[table].gets for one in done)
    orders = db.catalog().table("orders").id
    seen = sum(one.counts.changes[orders].total for one in done)
    assert measured.seen[table] == seen < sum(one.changes for one in done)  # changes of shops are not among them

    db.execute("DROP VIEW grouped")
    change(db, 4)
    keep_up(db)
    assert table not in WorkStats.from_json(db.store.read_json("note", MEASURED)).counts.tables


def test_inserts_updates_and_deletes_are_told_apart(tmp_path: Path) -> None:
    with vk.connect(f"embedded:{tmp_path / 's'}?sync=off") as db:
        db.execute("CREATE TABLE t (k BIGINT PRIMARY KEY, x INT); CREATE MATERIALIZED VIEW v AS SELECT x FROM t")
        db.table("t").put_many([{"k": k, "x": k} for k in range(4)])
        keep_up(db)
        db.table("t").put_many([{"k": k, "x": 9} for k in range(2, 7)])
        db.table("t").delete(0)
        (done,) = Coordinator(db.store, HereRunner(db.store)).catch_up()
        assert list(done.counts.changes.values()) == [Kinds(inserts=3, updates=2, deletes=1)]


def test_what_is_measured_is_kept_every_few_seconds() -> None:
    state = steps.State("me", EpochLimits())
    epoch = Inflight(1, {}, Cut({}, 0, 0), {}, 0, (), ())
    kept = []
    for now in (100.0, 101.0, 104.9, 105.0, 106.0):
        ran = steps.Ran(epoch, Counts(), WorkStats(epochs=1))
        fact = steps.CommittedInRecord(ran, EpochRecord.first("world"), 0.1, now)
        state, actions = steps.step(fact, state)
        kept += [(now, one.measured.epochs) for one in actions if isinstance(one, steps.KeepMeasured)]
    assert kept == [(100.0, 1), (105.0, 4)]
