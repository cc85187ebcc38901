"""Closing: beside other threads it is an error that they can understand; forked children hold nothing for their parents."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import viewkeeper as vk
from tests.support.running import keep_up
from viewkeeper.stores.kv.file_locks import PipelineLock, holder_of

ROOT = Path(__file__).parents[3]
ROUNDS = 8
ROWS = 2_000
# A process that opens the store, forks a child off that does nothing, tells its pid, and closes or waits to be killed.
# A child that is slow to begin does not get as far as letting anything go by itself.
FORKS = """
import os, signal, sys
if sys.argv[2] == "closes before its child begins":
    os.register_at_fork(after_in_child=signal.pause)
begun, begin = os.pipe()
import viewkeeper as vk
from viewkeeper.stores.kv.file_locks import PipelineLock
db = vk.connect(sys.argv[1])
lock = PipelineLock(db.store.layout.lock, take_over=False)
child = os.fork()
if child == 0:
    os.close(0), os.close(1), os.close(begin)
    signal.pause()
if sys.argv[2] == "is killed":
    os.close(begin)
    os.read(begun, 1)
print(child, flush=True)
if sys.argv[2] != "is killed":
    lock.release()
    db.close()
    print("closed", flush=True)
signal.pause()
"""

LEAVES_THE_LOCK = """
import os, sys
import viewkeeper as vk
from viewkeeper.stores.kv.file_locks import PipelineLock, holder_of
db = vk.connect(sys.argv[1])
lock = PipelineLock(db.store.layout.lock, take_over=False)
child = os.fork()
if child == 0:
    lock.release()
    os._exit(0 if not lock.is_held else 1)
assert os.waitpid(child, 0)[1] == 0
holder = holder_of(db.store.layout.lock)
assert (holder.pid, holder.is_live) == (os.getpid(), True)
"""
ASKS_THE_STORE = """
import os, sys
import viewkeeper as vk
db = vk.connect(sys.argv[1])
row = db.table("t").get(1)
child = os.fork()
if child == 0:
    told = 0
    for act in (lambda: db.table("t").get(1), lambda: vk.connect(db.url)):
        try:
            act()
        except vk.StoreError as error:
            told += "forked off" in error.fact
    db.close()
    os._exit(told)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 2
assert db.table("t").get(1) == row == {"k": 1, "v": 1}
"""
BESIDE_DUCKDB = """
import os, threading
import pyarrow as pa
from viewkeeper.operators.duck import run_sql
asked, may_end = threading.Barrier(4), threading.Event()

def ask():
    return run_sql("SELECT count(*) AS n FROM t", t=pa.table({"a": [1, 2]}))["n"].to_pylist()

def work():
    ask()
    asked.wait()
    may_end.wait()

threads = [threading.Thread(target=work) for _ in range(3)]
for thread in threads:
    thread.start()
asked.wait()
child = os.fork()
if child == 0:
    os._exit(0 if ask() == [2] else 1)
assert os.waitpid(child, 0)[1] == 0
may_end.set()
"""


@pytest.fixture
def db(tmp_path: Path) -> vk.Database:
    db = vk.connect(f"embedded:{tmp_path / 's'}?sync=off&nodes=2")
    db.execute("CREATE TABLE t (k INT PRIMARY KEY, v INT)")
    db.execute("CREATE MATERIALIZED VIEW w AS SELECT v, COUNT(*) AS n FROM t GROUP BY v")
    db.table("t").put_many([{"k": i, "v": i} for i in range(ROWS)])
    keep_up(db)
    return db


def until_refused(act: Callable[[], object], failures: list[BaseException], going: threading.Semaphore) -> None:
    try:
        act()
        going.release()
        while True:
            act()
    except BaseException as error:
        failures.append(error)


def test_threads_beside_a_close_are_told_that_the_database_is_closed(db: vk.Database) -> None:
    url = db.url
    db.close()
    for _ in range(ROUNDS):
        db = vk.connect(url)
        acts = (
            lambda db=db: db.table("t").get(5),
            lambda db=db: db.table("t").put(7, {"v": 1}),
            lambda db=db: list(db.table("t").scan()),
            lambda db=db: list(db.view("w").scan()),
            lambda db=db: db.status(),
        )
        failures: list[BaseException] = []
        going = threading.Semaphore(0)
        threads = [threading.Thread(target=until_refused, args=(act, failures, going)) for act in acts]
        for thread in threads:
            thread.start()
        for _ in threads:
            going.acquire()
        db.close()
        for thread in threads:
            thread.join()
        assert [str(error) for error in failures] == ["the database is closed; connect again"] * len(acts)
        assert {type(error) for error in failures} == {vk.InputError}


def test_a_scan_that_has_begun_ends_in_peace_and_the_store_is_closed_behind_it(db: vk.Database, tmp_path: Path) -> None:
    rows = db.table("t").scan()
    first = next(rows)
    db.close()
    with vk.connect(db.store.url if not db._closed else f"embedded:{tmp_path / 's'}") as again:
        again.table("t").put(first["k"], {"v": -1})
        with pytest.raises(vk.StoreInUse, match="a snapshot or scan of this process is open"):
            again.compact()
        assert sum(1 for _ in rows) == ROWS - 1
        again.compact()
    shutil.rmtree(tmp_path / "s")
    with vk.connect(f"embedded:{tmp_path / 's'}") as fresh:
        assert fresh.catalog().tables == ()


@contextmanager
def forking(url: str, how: str) -> Iterator[tuple[subprocess.Popen, int]]:
    command = [sys.executable, "-c", FORKS, url, how]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
        child = int(process.stdout.readline())
        try:
            yield process, child
        finally:
            process.kill()
            os.kill(child, signal.SIGKILL)


@pytest.mark.parametrize("how", ["closes", "closes before its child begins", "is killed"])
def test_an_idle_child_keeps_no_lock_of_its_parent(db: vk.Database, how: str) -> None:
    url = db.url
    db.close()
    with forking(url, how) as (parent, child):
        if how != "is killed":
            assert parent.stdout.readline() == "closed\n"
        else:
            parent.kill()
            parent.wait()
        os.kill(child, 0)  # it lives
        with vk.connect(url) as again:
            file = again.store.layout.lock
            assert not holder_of(file).is_live
            PipelineLock(file, take_over=False).release()
            again.compact()  # nobody has the store open


@pytest.mark.parametrize(
    "script",
    [
        pytest.param(LEAVES_THE_LOCK, id="a child that ends leaves the lock to its parent"),
        pytest.param(ASKS_THE_STORE, id="a child is told to open the store itself"),
        pytest.param(BESIDE_DUCKDB, id="a child is forked off beside threads that use DuckDB"),
    ],
)
def test_a_process_forks(db: vk.Database, script: str) -> None:
    url = db.url
    db.close()
    done = subprocess.run([sys.executable, "-c", script, url], cwd=ROOT, capture_output=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (0, b"")
