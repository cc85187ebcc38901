"""Nobody waits without a limit: for a writer that was stopped, for a place among readers, for pages of the dead."""

from __future__ import annotations

import multiprocessing
import os
import signal
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

import viewkeeper as vk
from tests.support.running import keep_up
from viewkeeper.coordinator.gc import collect_garbage
from viewkeeper.stores.kv.file_locks import locked
from viewkeeper.stores.kv.lmdb_files import READERS_MAX

CONTEXT = multiprocessing.get_context("spawn")


@pytest.fixture
def db(tmp_path: Path) -> vk.Database:
    db = vk.connect(f"embedded:{tmp_path / 's'}?sync=off&busy_timeout=0.2")
    db.execute("CREATE TABLE t (k INT PRIMARY KEY, v STRING)")
    db.execute("CREATE MATERIALIZED VIEW n AS SELECT COUNT(*) AS n FROM t")
    keep_up(db)
    return db


def write_and_wait(url: str, part: str, ready: object, go: object) -> None:
    store = vk.connect(url).store
    environment = store.environments()[part]
    with environment.write({"meta": "meta", "node-0": "rows", "partition-0": "records"}[part]):
        ready.set()
        go.wait()


def read_and_wait(url: str, ready: object) -> None:
    """Hold a read transaction in every environment until the end."""
    with ExitStack() as stack:
        for environment in vk.connect(url).store.environments().values():
            stack.enter_context(environment.snapshot())
        ready.set()
        signal.pause()


@contextmanager
def stopped_writer(url: str, part: str) -> Iterator[multiprocessing.Process]:
    """A process that was stopped inside a write transaction of that part."""
    ready, go = CONTEXT.Event(), CONTEXT.Event()
    writer = CONTEXT.Process(target=write_and_wait, args=(url, part, ready, go))
    writer.start()
    try:
        ready.wait()
        os.kill(writer.pid, signal.SIGSTOP)
        yield writer
    finally:
        if writer.is_alive():
            os.kill(writer.pid, signal.SIGCONT)  # first: it may have been stopped while it looked at the event
            go.set()
        writer.join()


def test_a_stopped_writer_of_the_base_holds_nobody_up_for_long(db: vk.Database) -> None:
    db.table("t").put(1, {"v": "x"})
    with stopped_writer(db.url, "node-0") as writer:
        with pytest.raises(
            vk.StoreBusy, match=f"process {writer.pid} holds the writer's lock, and this process waited 0.2 s"
        ):
            db.table("t").put(2, {"v": "y"})
        with pytest.raises(vk.StoreBusy, match=f"process {writer.pid}"):
            keep_up(db)  # a cut passes the lock of every writer
        assert db.table("t").get(1) == {"k": 1, "v": "x"}
        assert db.status().lag_changes == 1
    db.table("t").put(2, {"v": "y"})
    keep_up(db)
    assert db.view("n").get() == {"n": 2}


@pytest.mark.parametrize("part", ["meta", "partition-0"])
def test_a_stopped_writer_of_views_or_facts_lets_the_base_go_on(db: vk.Database, part: str) -> None:
    with stopped_writer(db.url, part) as writer:
        db.table("t").put(1, {"v": "x"})
        with pytest.raises(vk.StoreBusy, match=f"process {writer.pid}"):
            keep_up(db)
        assert db.view("n").get() == {"n": 0}
    keep_up(db)
    assert db.view("n").get() == {"n": 1}


def test_a_killed_writer_holds_nobody_up(db: vk.Database) -> None:
    with stopped_writer(db.url, "node-0") as writer:
        writer.kill()
        writer.join()
        db.table("t").put(1, {"v": "x"})
    assert db.table("t").get(1) == {"k": 1, "v": "x"}


def test_who_is_stopped_while_it_opens_a_part_holds_nobody_up_without_a_limit(db: vk.Database) -> None:
    url, folder = db.url, db.store.layout.path / "node-0"
    db.close()
    with locked(folder), pytest.raises(vk.StoreBusy, match="has been opening or changing .*node-0 for more than 0.2 s"):
        vk.connect(url)
    with vk.connect(url) as again:
        with locked(folder), pytest.raises(vk.StoreBusy, match="let it go on or end it"):
            again.table("t").put(1, {"v": "x"})
        again.table("t").put(1, {"v": "x"})


def test_who_is_stopped_while_it_makes_a_store_holds_nobody_up_without_a_limit(tmp_path: Path) -> None:
    (tmp_path / "new").mkdir()
    url = f"embedded:{tmp_path / 'new'}?sync=off&busy_timeout=0.2"
    with locked(tmp_path / "new"), pytest.raises(vk.StoreBusy, match="for more than 0.2 s"):
        vk.connect(url)
    vk.connect(url).close()


def test_a_lock_that_an_earlier_boot_left_is_made_anew(db: vk.Database) -> None:
    """Nobody has the file open: what stands in it is not a lock that somebody holds."""
    db.table("t").put(1, {"v": "x"})
    path = db.store.layout.path
    db.close()
    (path / "node-0" / "writer.lock").write_bytes(b"\xff" * 4096)
    db = vk.connect(f"embedded:{path}?sync=off&busy_timeout=0.2")
    db.table("t").put(2, {"v": "y"})

    assert sum(1 for _ in db.table("t").scan()) == 2


def test_more_readers_than_there_are_places_are_told_who_holds_them(db: vk.Database) -> None:
    environment = db.store.environments()["node-0"]
    with ExitStack() as stack:
        with pytest.raises(vk.StoreBusy, match=f"reader slots of node-0 are taken, .* by process {os.getpid()}"):
            for _ in range(2 * READERS_MAX):
                stack.enter_context(environment.snapshot())
        with pytest.raises(vk.StoreBusy, match="close snapshots"):
            db.status()
    assert db.status().lag_changes == 0


def test_readers_that_were_killed_are_cleared_in_every_environment(db: vk.Database) -> None:
    ready = CONTEXT.Event()
    reader = CONTEXT.Process(target=read_and_wait, args=(db.url, ready))
    reader.start()
    ready.wait()
    os.kill(reader.pid, signal.SIGKILL)
    reader.join()
    environments = db.store.environments().values()
    assert all(str(reader.pid) in environment._env.readers() for environment in environments)
    collect_garbage(db.store)

    assert not any(str(reader.pid) in environment._env.readers() for environment in environments)


def test_a_busy_timeout_is_a_number_of_seconds(tmp_path: Path) -> None:
    for wrong in ("0", "-1", "soon", "", "nan"):
        with pytest.raises(vk.InputError, match="is not a number of seconds"):
            vk.connect(f"embedded:{tmp_path / 's'}?busy_timeout={wrong}")
    assert vk.connect(f"embedded:{tmp_path / 's'}?busy_timeout=2.5&sync=off").url.endswith("?sync=off&busy_timeout=2.5")
