"""The directory of a store: made once, recognised, refused when it is something else; and the pipeline's lock."""

from __future__ import annotations

import json
import multiprocessing
import os
import shutil
import signal
import stat
from pathlib import Path

import pytest

import viewkeeper as vk
from tests.support.handles import close_environments
from viewkeeper.errors import CorruptStore, InputError, NewerFormat, PipelineRunning, StoreError
from viewkeeper.stores.kv.file_locks import PipelineLock, holder_of
from viewkeeper.stores.kv.lmdb_environment import Environment
from viewkeeper.stores.local.layout import open_layout
from viewkeeper.stores.open import open_store

CONTEXT = multiprocessing.get_context("spawn")


@pytest.mark.parametrize(
    "url",
    [
        "",
        "embedded",
        "embedded:",
        "embedded:?nodes=2",
        "redis:/x",
        "embedded:/tmp/x?nodes=0",
        "embedded:/tmp/x?nodes=65",
        "embedded:/tmp/x?nodes=two",
        "embedded:/tmp/x?sync=maybe",
        "embedded:/tmp/x?color=red",
    ],
)
def test_a_url_that_names_no_store_is_refused(url: str) -> None:
    with pytest.raises(InputError):
        open_store(url)


def test_what_was_fixed_when_the_store_was_made_is_read_from_it(tmp_path: Path) -> None:
    made = open_layout(f"embedded:{tmp_path / 's'}?nodes=3&sync=off", create=True)
    again = open_layout(f"embedded:{tmp_path / 's'}", create=False)

    assert (again.nodes, again.partitions, again.incarnation) == (3, made.partitions, made.incarnation)
    assert (made.synced, again.synced) == (False, True)
    assert open_layout(made.url, create=False) == made
    with pytest.raises(InputError, match="was made with 3 nodes, not 2"):
        open_layout(f"embedded:{tmp_path / 's'}?nodes=2", create=True)


def test_a_directory_that_is_not_a_store_is_refused_and_left_alone(tmp_path: Path) -> None:
    (tmp_path / "mine.txt").write_text("keep")

    with pytest.raises(CorruptStore, match="not a ViewKeeper store"):
        open_store(f"embedded:{tmp_path}")
    with pytest.raises(CorruptStore):
        open_store(f"embedded:{tmp_path / 'mine.txt'}")
    assert [file.name for file in tmp_path.iterdir()] == ["mine.txt"]


def test_a_store_that_is_not_there_is_not_made_for_a_reader(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="there is no store"):
        vk.connect(f"embedded:{tmp_path / 's'}", read_only=True)
    assert not (tmp_path / "s").exists()


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"format": "x"}', "\x00", '{"format": 1e400}', "[" * 200_000])
def test_a_damaged_description_is_refused(tmp_path: Path, text: str) -> None:
    open_layout(f"embedded:{tmp_path / 's'}", create=True)
    (tmp_path / "s" / "store.json").write_text(text)

    with pytest.raises(CorruptStore, match=r"store\.json cannot be read"):
        open_layout(f"embedded:{tmp_path / 's'}", create=True)


def test_a_store_of_a_newer_format_is_refused(tmp_path: Path) -> None:
    file = open_layout(f"embedded:{tmp_path / 's'}", create=True).path / "store.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | {"format": 99}))

    with pytest.raises(NewerFormat, match="99"):
        open_layout(f"embedded:{tmp_path / 's'}", create=True)


@pytest.mark.parametrize("folder", ["meta", "node-0", "partition-0"])
def test_a_store_that_lacks_a_part_is_refused(tmp_path: Path, folder: str) -> None:
    open_layout(f"embedded:{tmp_path / 's'}", create=True)
    shutil.rmtree(tmp_path / "s" / folder)

    with pytest.raises(CorruptStore, match=folder):
        open_store(f"embedded:{tmp_path / 's'}", create=True)


def test_nobody_else_may_read_a_store(tmp_path: Path) -> None:
    db = vk.connect(f"embedded:{tmp_path / 's'}")
    db.execute("CREATE TABLE t (k INT PRIMARY KEY)")
    loose = [
        path
        for path in (tmp_path / "s").rglob("*.mdb")
        if stat.S_IMODE(path.stat().st_mode) & 0o077 or stat.S_IMODE(path.parent.stat().st_mode) & 0o077
    ]

    assert loose == []


@pytest.mark.parametrize("closed", [True, False])
def test_a_store_that_was_removed_and_made_anew_is_empty(tmp_path: Path, closed: bool) -> None:
    """As in a notebook whose first cell removes the directory; many forget to close what they opened."""
    path = tmp_path / "s"
    for _ in range(2):
        shutil.rmtree(path, ignore_errors=True)
        db = vk.connect(f"embedded:{path}?sync=off")
        assert db.catalog().tables == ()
        db.execute("CREATE TABLE t (k INT PRIMARY KEY)")
        db.table("t").put(1, {})
        if closed:
            db.close()
    close_environments()
    assert list(vk.connect(f"embedded:{path}").table("t").scan()) == [{"k": 1}]


def test_a_connection_that_syncs_does_so_beside_one_that_does_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Handles are shared in a process, promises are not: each connection keeps its own."""
    syncs, sync = [], Environment.sync
    monkeypatch.setattr(
        Environment, "sync", lambda environment: (syncs.append(environment.path.name), sync(environment))
    )
    loose = vk.connect(f"embedded:{tmp_path / 's'}?sync=off")
    loose.execute("CREATE TABLE t (k INT PRIMARY KEY)")
    loose.table("t").put(1, {})
    assert "node-0" not in syncs
    vk.connect(f"embedded:{tmp_path / 's'}").table("t").put(2, {})

    assert "node-0" in syncs


def make_store(url: str, ready: object, go: object, told: object) -> None:
    ready.release()
    go.wait()
    told.put(vk.connect(url).store.incarnation)


def test_processes_that_make_a_store_at_once_make_one(tmp_path: Path) -> None:
    ready, go, told = CONTEXT.Semaphore(0), CONTEXT.Event(), CONTEXT.SimpleQueue()
    arguments = (f"embedded:{tmp_path / 's'}?nodes=2", ready, go, told)
    makers = [CONTEXT.Process(target=make_store, args=arguments) for _ in range(3)]
    for maker in makers:
        maker.start()
    for _ in makers:
        ready.acquire()
    go.set()
    found = {told.get() for _ in makers}
    for maker in makers:
        maker.join()

    assert [maker.exitcode for maker in makers] == [0, 0, 0]
    assert found == {open_layout(f"embedded:{tmp_path / 's'}", create=False).incarnation}


def hold_lock(file: Path, told: object, stop: object) -> None:
    lock = PipelineLock(file, take_over=False)
    told.put(os.getpid())
    stop.wait()
    lock.release()


def test_the_lock_names_its_holder_and_dies_with_it(tmp_path: Path) -> None:
    file, told, stop = tmp_path / "pipeline.lock", CONTEXT.SimpleQueue(), CONTEXT.Event()
    assert holder_of(file) is None
    holder = CONTEXT.Process(target=hold_lock, args=(file, told, stop))
    holder.start()
    pid = told.get()

    assert (holder_of(file).pid, holder_of(file).is_live) == (pid, True)
    with pytest.raises(PipelineRunning, match=f"pid {pid}"):
        PipelineLock(file, take_over=False)
    os.kill(pid, signal.SIGKILL)
    holder.join()
    assert not holder_of(file).is_live
    PipelineLock(file, take_over=False).release()
    assert not holder_of(file).is_live


def test_who_takes_over_holds_the_lock_from_then_on(tmp_path: Path) -> None:
    file = tmp_path / "pipeline.lock"
    first = PipelineLock(file, take_over=False)
    second = PipelineLock(file, take_over=True)
    first.release()
    with pytest.raises(vk.PipelineRunning, match=str(os.getpid())):
        PipelineLock(file, take_over=False)
    second.release()
    PipelineLock(file, take_over=False).release()
    assert [path.name for path in tmp_path.iterdir()] == ["pipeline.lock"]
