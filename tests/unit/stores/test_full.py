"""A full disk: writers are told, all read on, and go on when there is space; tried by a limit to the size of files."""

from __future__ import annotations

import multiprocessing
import os
import resource
import threading
from pathlib import Path
from types import SimpleNamespace

import lmdb
import pytest

import viewkeeper as vk
from tests.support.running import HereRunner, keep_up
from viewkeeper.coordinator.coordinator import Coordinator
from viewkeeper.engine.loop import EpochLoop
from viewkeeper.events import Waiting
from viewkeeper.stores.kv.lmdb_files import translate

CONTEXT = multiprocessing.get_context("spawn")
ROW = {"v": "x" * 9_000}


def let_files_grow(to: int) -> None:
    """In place of a disk with so much space; 0: without a limit."""
    resource.setrlimit(resource.RLIMIT_FSIZE, (to or resource.RLIM_INFINITY, resource.RLIM_INFINITY))


def fill(db: vk.Database, first: int) -> tuple[int, vk.ViewKeeperError]:
    """Put rows until that fails; returns how many were acknowledged, and why no more."""
    number = first
    while True:
        try:
            db.table("t").put(number, ROW)
        except vk.ViewKeeperError as error:
            return number - first, error
        number += 1


def write_on_a_full_disk(path: Path, told: object, limit: int) -> None:
    db = vk.connect(f"embedded:{path}?sync=off")
    db.execute("CREATE TABLE t (k INT PRIMARY KEY, v STRING)")
    db.execute("CREATE MATERIALIZED VIEW copied AS SELECT k, v FROM t WHERE k >= 0")
    db.table("t").put(-1, ROW)
    keep_up(db)
    let_files_grow(limit)
    count, error = fill(db, 0)
    facts = {"count": count, "error": (type(error).__name__, error.fact)}
    facts["rows"] = db.execute("SELECT COUNT(*) AS n FROM t").rows[0][0]
    facts["lag"] = db.status().lag_changes
    facts["view"] = len(list(db.view("copied").scan()))
    facts["first"] = db.table("t").get(0) is not None
    with vk.connect(f"embedded:{path}?sync=off", read_only=True) as again:
        facts["again"] = sum(1 for _ in again.table("t").scan())
    let_files_grow(0)
    db.table("t").put(count, ROW)
    keep_up(db)
    facts["after"] = len(list(db.view("copied").scan()))
    told.send(facts)


@pytest.mark.parametrize("over", [0, 1_000])  # a write is refused as a whole, or cut short
def test_on_a_full_disk_everything_acknowledged_is_readable_and_goes_on_later(tmp_path: Path, over: int) -> None:
    receive, send = CONTEXT.Pipe(duplex=False)
    writer = CONTEXT.Process(target=write_on_a_full_disk, args=(tmp_path / "s", send, (1 << 20) + over))
    writer.start()
    send.close()
    facts = receive.recv()
    writer.join()

    assert facts["error"] == ("StoreFull", f"no space left for {tmp_path / 's' / 'node-0'}")
    assert facts["count"] > 20
    assert facts["rows"] == facts["again"] == facts["count"] + 1
    assert (facts["lag"], facts["view"], facts["first"]) == (facts["count"], 0, True)
    assert facts["after"] == facts["count"] + 1


def run_on_a_full_disk(path: Path, told: object, go: object) -> None:
    """A pipeline in the background whose partitions cannot grow, until it is told to go on."""
    db = vk.connect(f"embedded:{path}?sync=off")
    db.execute("CREATE TABLE t (k INT PRIMARY KEY, v STRING)")
    db.execute("CREATE MATERIALIZED VIEW copied AS SELECT k, v FROM t WHERE k >= 0")
    keep_up(db)
    db.table("t").put_many([{"k": number, **ROW} for number in range(400)])
    let_files_grow(256 << 10)  # enough for the epoch record, not for the view
    events: list[object] = []
    coordinator = Coordinator(db.store, HereRunner(db.store), events=events.append)
    loop = EpochLoop(coordinator, db.store, retry_seconds=0.02)
    while loop.trouble is None or not any(isinstance(event, Waiting) for event in events):
        os.sched_yield()
    told.send((type(loop.trouble).__name__, db.view("copied").get(1)))
    go.wait()
    let_files_grow(0)
    while loop.trouble is not None or db.status().lag_changes:
        loop.raise_failure()
        os.sched_yield()
    loop.stop()
    told.send((loop.trouble, len(list(db.view("copied").scan()))))


def test_a_pipeline_in_the_background_goes_on_when_there_is_space_again(tmp_path: Path) -> None:
    receive, send = CONTEXT.Pipe(duplex=False)
    go = CONTEXT.Event()
    runner = CONTEXT.Process(target=run_on_a_full_disk, args=(tmp_path / "s", send, go))
    runner.start()
    send.close()
    assert receive.recv() == ("StoreFull", None)
    go.set()
    assert receive.recv() == (None, 400)
    runner.join()
    assert runner.exitcode == 0


def test_a_pipeline_that_waits_for_space_can_be_stopped_and_says_what_for(tmp_path: Path) -> None:
    class Full:
        met = threading.Event()

        def run(self, plan: object, epoch: object) -> None:
            self.met.set()
            raise vk.StoreFull("no space left for partition-3", "free space")

    db = vk.connect(f"embedded:{tmp_path / 's'}?sync=off")
    db.execute("CREATE TABLE t (k INT PRIMARY KEY, v STRING)")
    db.execute("CREATE MATERIALIZED VIEW copied AS SELECT k, v FROM t WHERE k >= 0")
    loop = EpochLoop(Coordinator(db.store, Full()), db.store, retry_seconds=3_600)
    Full.met.wait()
    with pytest.raises(vk.StoreFull, match="partition-3"):
        loop.stop()


def test_the_pages_of_lock_files_are_there_from_the_start(tmp_path: Path) -> None:
    """A hole in a mapped file is filled when it is touched, which on a full disk is the end of the process."""
    db = vk.connect(f"embedded:{tmp_path / 's'}?sync=off")
    db.execute("CREATE TABLE t (k INT PRIMARY KEY)")
    db.table("t").put(1, {})
    files = [*(tmp_path / "s").glob("*/lock.mdb"), tmp_path / "s" / "node-0" / "writer.lock"]

    assert len(files) == 11
    assert all(file.stat().st_blocks * 512 >= file.stat().st_size > 0 for file in files)


ROOM = 16 << 20


@pytest.mark.parametrize(
    ("free", "limit", "is_full"),
    [
        (ROOM, resource.RLIM_INFINITY, False),
        (ROOM - 1, resource.RLIM_INFINITY, True),
        (ROOM, 100 + ROOM, False),
        (ROOM, 99 + ROOM, True),
    ],
)
def test_a_write_that_was_cut_short_is_a_full_disk_where_there_is_no_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, free: int, limit: int, is_full: bool
) -> None:
    (tmp_path / "data.mdb").write_bytes(bytes(100))
    monkeypatch.setattr(os, "statvfs", lambda path: SimpleNamespace(f_bavail=free, f_frsize=1))
    monkeypatch.setattr(resource, "getrlimit", lambda kind: (limit, resource.RLIM_INFINITY))
    told = translate(lmdb.Error("mdb_txn_commit: Input/output error"), tmp_path)

    assert type(told) is (vk.StoreFull if is_full else vk.StoreError)
    assert ("free space on the disk" if is_full else "the disk may be failing") in (told.hint or "")
