"""A log without before-images: DELTA hears of every row, whenever its table was made."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable
from pathlib import Path

import pytest

import viewkeeper as vk
from tests.support.running import HereRunner
from viewkeeper.coordinator.coordinator import Coordinator
from viewkeeper.settings import EpochLimits

CONTEXT = multiprocessing.get_context("spawn")
TABLES = 100
VIEWED = 25  # every so many tables have views


@pytest.fixture
def db(tmp_path: Path) -> vk.Database:
    return vk.connect(f"embedded:{tmp_path / 's'}?sync=off&before_images=off")


def before_each_cut(store: object, monkeypatch: pytest.MonkeyPatch, work: Callable[[int], None]) -> None:
    """Let `work` be done by somebody else between what the coordinator did before a cut, and the cut."""
    cut, cuts = store.cut, []

    def cut_late(*arguments: object, **options: object) -> object:
        cuts.append(None)
        work(len(cuts))
        return cut(*arguments, **options)

    monkeypatch.setattr(store, "cut", cut_late)


@pytest.mark.parametrize("first", [1, 2])
def test_a_table_made_and_written_just_before_the_cut_is_in_its_delta(
    db: vk.Database, monkeypatch: pytest.MonkeyPatch, first: int
) -> None:
    """`first`: the cut of a bounded epoch, or the one behind it that takes all, because nobody reads the log."""

    def make(number: int) -> None:
        if number == first:
            db.execute("CREATE TABLE t (k STRING PRIMARY KEY, v INT); INSERT INTO t VALUES ('a', 1)")

    before_each_cut(db.store, monkeypatch, make)
    coordinator = Coordinator(db.store, HereRunner(db.store))
    coordinator.step()
    coordinator.catch_up()
    db.execute("CREATE MATERIALIZED VIEW n AS SELECT COUNT(*) AS n, SUM(v) AS s FROM t")
    coordinator.catch_up()

    assert db.view("n").get() == {"n": 1, "s": 1}


def test_an_epoch_whose_first_reader_comes_with_the_cut_is_bounded(
    db: vk.Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody reads the log, so all of it is taken; then somebody does, and it is cut anew."""

    def make(number: int) -> None:
        if number == 2:
            db.execute("CREATE TABLE t (k STRING PRIMARY KEY, v INT)")
            for key in range(20):
                db.table("t").put(f"k{key}", {"v": key})

    before_each_cut(db.store, monkeypatch, make)
    done = Coordinator(db.store, HereRunner(db.store), limits=EpochLimits(changes=5)).step()

    assert done is not None
    assert done.changes <= 5


def storm(url: str, ready: object, go: object) -> None:
    """Make a table and write to it, again and again; some get a view, before their row or behind it."""
    db = vk.connect(url)
    ready.set()
    go.wait()
    for number in range(TABLES):
        db.execute(f"CREATE TABLE t{number} (k STRING PRIMARY KEY, v INT)")
        if number % VIEWED == 0:
            db.execute(f"CREATE MATERIALIZED VIEW before{number} AS SELECT COUNT(*) AS n, SUM(v) AS s FROM t{number}")
        db.table(f"t{number}").put("a", {"v": number})
        if number % VIEWED == 0:
            db.execute(f"CREATE MATERIALIZED VIEW behind{number} AS SELECT COUNT(*) AS n, SUM(v) AS s FROM t{number}")


def test_tables_made_and_written_beside_a_running_pipeline_lose_no_row(db: vk.Database) -> None:
    ready, go = CONTEXT.Event(), CONTEXT.Event()
    writer = CONTEXT.Process(target=storm, args=(db.url, ready, go))
    writer.start()
    ready.wait()
    coordinator = Coordinator(db.store, HereRunner(db.store))
    go.set()
    while writer.is_alive():
        coordinator.step()
    writer.join()
    assert writer.exitcode == 0
    coordinator.catch_up()

    epoch = db.store.read_epoch_record().committed
    lost = [table.name for table in db.catalog().tables if rows_in(db, table.delta, epoch) != 1]
    assert lost == []
    assert len(db.catalog().tables) == TABLES
    for number in range(0, TABLES, VIEWED):
        for name in (f"before{number}", f"behind{number}"):
            assert db.view(name).get() == {"n": 1, "s": number}


def rows_in(db: vk.Database, table: int, epoch: int) -> int:
    return sum(
        len(part)
        for partition in range(db.store.partitions)
        for part in db.store.scan_versions(partition, table, epoch, ())
    )
