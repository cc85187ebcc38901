"""A store made anew or restored under the path of another is not that one: handles of the first do not reach it."""

from __future__ import annotations

import multiprocessing
import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import viewkeeper as vk
from tests.support.running import HereRunner
from viewkeeper.coordinator.coordinator import Coordinator
from viewkeeper.model.epochs import Inflight
from viewkeeper.model.work_stats import Counts
from viewkeeper.operators.program import run_in_process
from viewkeeper.plan.physical import PhysicalPlan
from viewkeeper.stores.local.embedded_store import EmbeddedStore
from viewkeeper.stores.open import open_shared

CONTEXT = multiprocessing.get_context("spawn")
PATIENCE_SECONDS = 30.0


class Worker:
    """A process that does the work of epochs, as a Spark worker does: it outlives stores."""

    def __init__(self) -> None:
        self._here, there = CONTEXT.Pipe()
        self._process = CONTEXT.Process(target=_work, args=(there,))
        self._process.start()

    def run(self, store: EmbeddedStore, plan: PhysicalPlan, epoch: Inflight) -> None:
        self._here.send((store.url, store.incarnation, plan, epoch))
        if failure := self._here.recv():
            raise failure

    def end(self) -> None:
        self._here.send(None)
        self._process.join()


def _work(pipe: object) -> None:
    while job := pipe.recv():
        url, incarnation, plan, epoch = job
        try:
            run_in_process(open_shared(url, incarnation), plan, epoch)
            pipe.send(None)
        except vk.ViewKeeperError as error:
            pipe.send(error)


class WorkerRunner:
    """Runs epochs in the worker."""

    def __init__(self, store: EmbeddedStore, worker: Worker) -> None:
        self._store, self._worker = store, worker

    def run(self, plan: PhysicalPlan, epoch: Inflight) -> Counts:
        self._worker.run(self._store, plan, epoch)
        return Counts()


@pytest.fixture
def worker() -> Iterator[Worker]:
    worker = Worker()
    yield worker
    worker.end()


def make(path: Path, rows: int) -> vk.Database:
    db = vk.connect(f"embedded:{path}?sync=off")
    db.execute("CREATE TABLE t (k INT PRIMARY KEY, v INT)")
    db.execute("CREATE MATERIALIZED VIEW w AS SELECT v, COUNT(*) AS n FROM t GROUP BY v")
    db.table("t").put_many([{"k": i, "v": i % 2} for i in range(rows)])
    return db


def counted(db: vk.Database, worker: Worker) -> list[dict]:
    Coordinator(db.store, WorkerRunner(db.store, worker)).catch_up()
    return list(db.view("w").scan())


def remove(path: Path) -> None:
    shutil.rmtree(path)


def move_away(path: Path) -> None:
    path.rename(path.with_name("aside"))


@pytest.mark.parametrize("clear", [remove, move_away])
def test_a_worker_that_outlives_a_store_works_on_the_one_that_is_there(
    tmp_path: Path, worker: Worker, clear: Callable[[Path], None]
) -> None:
    with make(tmp_path / "s", 10) as first:
        assert counted(first, worker) == [{"v": 0, "n": 5}, {"v": 1, "n": 5}]
        first.backup(tmp_path / "b")
    clear(tmp_path / "s")
    with make(tmp_path / "s", 4) as second:
        assert counted(second, worker) == [{"v": 0, "n": 2}, {"v": 1, "n": 2}]
    shutil.rmtree(tmp_path / "s")
    with vk.restore(tmp_path / "b", f"embedded:{tmp_path / 's'}") as third:
        third.table("t").put(99, {"v": 1})
        assert counted(third, worker) == [{"v": 0, "n": 5}, {"v": 1, "n": 6}]


def test_a_copy_of_the_files_that_is_put_back_is_opened_anew_by_workers(tmp_path: Path, worker: Worker) -> None:
    """It has the same incarnation, and other files."""
    make(tmp_path / "s", 4).close()
    shutil.copytree(tmp_path / "s", tmp_path / "saved")
    for _ in range(2):
        with vk.connect(f"embedded:{tmp_path / 's'}") as db:
            assert counted(db, worker) == [{"v": 0, "n": 2}, {"v": 1, "n": 2}]
        shutil.rmtree(tmp_path / "s")
        shutil.copytree(tmp_path / "saved", tmp_path / "s")


def replace(path: Path) -> None:
    """In a process of its own, as an operator would."""
    shutil.rmtree(path)
    make(path, 2).close()


def replaced_by_another_process(path: Path) -> None:
    process = CONTEXT.Process(target=replace, args=(path,))
    process.start()
    process.join()
    assert process.exitcode == 0


def test_who_holds_the_store_before_is_told_and_nothing_is_written_anywhere(tmp_path: Path, worker: Worker) -> None:
    old = make(tmp_path / "s", 10)
    table, coordinator = old.table("t"), Coordinator(old.store, WorkerRunner(old.store, worker))
    coordinator.catch_up()
    table.put(10, {"v": 0})
    replaced_by_another_process(tmp_path / "s")

    for act in (
        lambda: table.put(11, {"v": 0}),
        lambda: table.delete(0),
        lambda: old.execute("CREATE TABLE u (k INT PRIMARY KEY)"),
        coordinator.catch_up,
        old.status,
        lambda: worker.run(old.store, PhysicalPlan((), ()), Inflight(1, {}, None, "", 0, (), ())),
    ):
        with pytest.raises(vk.StoreReplaced, match="connect again"):
            act()
    deadline = time.monotonic() + PATIENCE_SECONDS
    with pytest.raises(vk.StoreReplaced):  # reads by key look a few times a second
        while time.monotonic() < deadline:
            old.view("w").get(0)
    old.close()
    with vk.connect(f"embedded:{tmp_path / 's'}") as new:
        assert [row["k"] for row in new.table("t").scan()] == [0, 1]
        assert counted(new, worker) == [{"v": 0, "n": 1}, {"v": 1, "n": 1}]


def test_a_database_of_the_store_before_does_not_reach_the_one_that_this_process_opened_since(tmp_path: Path) -> None:
    old = make(tmp_path / "s", 3)
    held = old.snapshot()
    Coordinator(old.store, HereRunner(old.store)).catch_up()
    table = old.table("t")
    shutil.rmtree(tmp_path / "s")
    new = make(tmp_path / "s", 2)

    for act in (lambda: table.put(9, {"v": 0}), lambda: table.get(0), lambda: list(table.scan()), old.status):
        with pytest.raises(vk.StoreReplaced):
            act()
    assert [row["k"] for row in new.table("t").scan()] == [0, 1]
    held.close()
    old.close()
    new.table("t").put(5, {"v": 5})
    new.close()


@pytest.mark.parametrize("part", ["meta", "node-0", "partition-2"])
def test_a_part_that_is_removed_under_a_pipeline_stops_it(tmp_path: Path, part: str) -> None:
    db = make(tmp_path / "s", 20)
    coordinator = Coordinator(db.store, HereRunner(db.store))
    coordinator.catch_up()
    db.table("t").put_many([{"k": i, "v": i} for i in range(20)])
    (tmp_path / "s" / part / "data.mdb").unlink()

    with pytest.raises(vk.StoreReplaced, match=part):
        coordinator.catch_up()
        db.table("t").put(100, {"v": 1})
