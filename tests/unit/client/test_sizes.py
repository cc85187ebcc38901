"""Sizes: `status` and EXPLAIN tell what epochs counted; no record of a view is read for it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

import viewkeeper as vk
from tests.support.running import HereRunner, Interrupted, RunThenDie, keep_up
from tests.support.simulation.processes import calm_database
from tests.support.sizes import require_right_sizes, walked
from tests.support.steps import steps_of
from viewkeeper.client.session import Snapshot
from viewkeeper.coordinator.coordinator import Coordinator
from viewkeeper.model import epochs
from viewkeeper.model.epochs import EpochRecord, record_from_json, record_to_json
from viewkeeper.model.work_stats import Size
from viewkeeper.ports.meta import change_epoch_record
from viewkeeper.stores.local.embedded_store import EmbeddedStore
from viewkeeper.stores.local.partition import Partition

VIEWS = {
    "copy": "SELECT k, x FROM t WHERE x > 2",
    "sums": "SELECT g, SUM(x) AS s, COUNT(*) AS n FROM t GROUP BY g",
    "ends": "SELECT g, MIN(x) AS lo, COUNT(DISTINCT x) AS n FROM t GROUP BY g",
    "pairs": "SELECT a.k, b.x FROM t a LEFT JOIN t b ON a.x = b.k",
    "failing": "SELECT k, 10 div (x - 3) AS y FROM t",
}


@pytest.fixture(params=["embedded, plain log", "hbase"])
def db(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[vk.Database]:
    embedded = f"embedded:{tmp_path / 's'}?sync=off&before_images=off"
    with calm_database() if request.param == "hbase" else vk.connect(embedded) as db:
        db.execute("CREATE TABLE t (k INT PRIMARY KEY, g STRING, x INT)")
        yield db


def put(db: vk.Database, keys: range, *, x: int = 0) -> None:
    db.table("t").put_many([{"k": k, "g": f"g{k % 7}", "x": k % 5 + x} for k in keys])


def fill(db: vk.Database, rows: int) -> Coordinator:
    for name, text in VIEWS.items():
        db.execute(f"CREATE MATERIALIZED VIEW {name} AS {text}")
    put(db, range(rows))
    return keep_up(db)


def size_of(db: vk.Database, name: str) -> Size:
    (found,) = (view for view in db.status().views if view.name == name)
    return Size(found.records, found.bytes)


def size_of_walk(db: vk.Database, name: str) -> Size:
    catalog, there = db.catalog(), walked(db.store)
    tables = [table for node in catalog.stored(catalog.view(name)) for table in node.tables]
    sizes = [there.get(table, Size()) for table in tables]
    return Size(sum(size.records for size in sizes), sum(size.bytes for size in sizes))


def test_a_size_is_that_of_keys_and_rows_of_a_view_and_its_auxiliary_tables(db: vk.Database) -> None:
    coordinator = fill(db, 60)
    for change in (lambda: put(db, range(30), x=1), lambda: db.table("t").delete_many(range(10, 50))):
        change()
        coordinator.catch_up()

        assert {name: size_of(db, name) for name in VIEWS} == {name: size_of_walk(db, name) for name in VIEWS}
    assert size_of(db, "copy").records == len(list(db.view("copy").scan()))
    assert size_of(db, "ends").records > len(list(db.view("ends").scan()))
    db.table("t").delete_many(range(60))
    coordinator.catch_up()

    assert {size_of(db, name) for name in VIEWS} == {Size()}


def test_what_is_dropped_rebuilt_or_replaced_is_not_counted_any_more(db: vk.Database) -> None:
    coordinator = fill(db, 40)
    db.execute(
        "DROP MATERIALIZED VIEW pairs; CREATE OR REPLACE MATERIALIZED VIEW copy AS SELECT k, g FROM t WHERE x > 3"
    )
    db.execute("CREATE INDEX by_g ON t (g)")
    coordinator.catch_up()
    put(db, range(40, 50))
    coordinator.catch_up()

    require_right_sizes(db.store)
    assert set(db.store.read_epoch_record().sizes) <= {
        table for entry in (*db.catalog().nodes, *db.catalog().tables) for table in entry.tables
    }


def test_an_epoch_that_runs_again_counts_once(db: vk.Database) -> None:
    fill(db, 40)
    put(db, range(20, 60), x=2)
    with pytest.raises(Interrupted):
        Coordinator(db.store, RunThenDie(HereRunner(db.store))).step()
    keep_up(db)

    require_right_sizes(db.store)


def test_an_epoch_that_is_aborted_counts_nothing(db: vk.Database) -> None:
    fill(db, 40)
    before = db.store.read_epoch_record().sizes
    put(db, range(20, 60), x=2)
    with pytest.raises(Interrupted):
        Coordinator(db.store, RunThenDie(HereRunner(db.store))).step()
    change_epoch_record(db.store, lambda record: epochs.abort(record, record.owner))

    assert db.store.read_epoch_record().sizes == before
    require_right_sizes(db.store)
    keep_up(db)
    require_right_sizes(db.store)


def test_a_store_of_a_release_that_did_not_count_is_walked_once(db: vk.Database) -> None:
    """Until a pipeline runs, each status walks; an epoch that the earlier release began counts from what was committed."""
    fill(db, 40)
    right = {name: size_of(db, name) for name in VIEWS}
    put(db, range(20, 60), x=2)
    with pytest.raises(Interrupted):
        Coordinator(db.store, RunThenDie(HereRunner(db.store))).step()
    change_epoch_record(db.store, without_sizes)

    assert {name: size_of(db, name) for name in VIEWS} == right
    assert db.store.read_epoch_record().sizes is None
    keep_up(db)

    assert db.store.read_epoch_record().sizes is not None
    require_right_sizes(db.store)


def without_sizes(record: EpochRecord) -> EpochRecord:
    """The record as a release wrote it that did not know of sizes."""
    plain = {name: value for name, value in record_to_json(record).items() if name != "sizes"}
    return replace(record_from_json(plain), version=record.version + 1)


def test_the_epoch_record_goes_to_json_and_back_with_and_without_sizes() -> None:
    record = EpochRecord.first("i")

    for sizes in (None, {}, {3: Size(2, 40)}):
        assert record_from_json(record_to_json(replace(record, sizes=sizes))).sizes == sizes


def test_neither_status_nor_explain_reads_a_record(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with vk.connect(f"embedded:{tmp_path / 's'}?sync=off") as db:
        db.execute("CREATE TABLE t (k INT PRIMARY KEY, g STRING, x INT)")
        for name in ("copy", "sums", "ends", "pairs"):
            db.execute(f"CREATE MATERIALIZED VIEW {name} AS {VIEWS[name]}")
        put(db, range(50))
        keep_up(db)
        expected = db.status(), db.explain("ends"), db.explain()

        def refuse(*_: object, **__: object) -> None:
            raise AssertionError("a record is read")

        for method in ("read", "get", "scan_versions", "scan_prefixes", "has_records"):
            monkeypatch.setattr(Partition, method, refuse)
        monkeypatch.setattr(EmbeddedStore, "record_borders", refuse)
        monkeypatch.setattr(Snapshot, "pairs_of", refuse)
        found = db.status(), db.explain("ends"), db.explain()

        assert found[1:] == expected[1:]
        assert found[0].views == expected[0].views


def test_a_status_takes_as_many_steps_over_many_records_as_over_few(tmp_path: Path) -> None:
    with vk.connect(f"embedded:{tmp_path / 's'}?sync=off") as db:
        db.execute("CREATE TABLE t (k INT PRIMARY KEY, g STRING, x INT)")
        coordinator = fill(db, 500)
        db.execute("DROP MATERIALIZED VIEW failing")
        coordinator.catch_up()
        db.status()
        few = steps_of(db.status)
        put(db, range(500, 4_000))
        coordinator.catch_up()
        db.status()
        many = steps_of(db.status)

    assert many < 1.2 * few, f"{few} steps over 500 rows, {many} over 4,000"
