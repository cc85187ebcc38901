"""All parts of a store are there, whole and its own, or it is not opened; nobody writes beside one whose locks are gone."""

from __future__ import annotations

import json
import multiprocessing
import os
import random
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import lmdb
import pytest

import viewkeeper as vk
from tests.support.running import keep_up
from viewkeeper.stores.kv.lmdb_files import require_whole

ROOT = Path(__file__).parents[3]
CONTEXT = multiprocessing.get_context("spawn")
PARTS = ("meta", "node-0", "node-1", "partition-0", "partition-5")
ROWS = 400


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("made") / "s"
    with vk.connect(f"embedded:{path}?nodes=2&sync=off") as db:
        db.execute("CREATE TABLE t (k INT PRIMARY KEY, v STRING); CREATE MATERIALIZED VIEW w AS SELECT v, k FROM t")
        db.table("t").put_many([{"k": i, "v": "x" * 500} for i in range(ROWS)])
        keep_up(db)
    return path


@pytest.fixture
def path(made: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(made, tmp_path / "s"))


def refused(path: Path, fact: str) -> None:
    for read_only in (False, True):
        with pytest.raises(vk.CorruptStore, match=fact), vk.connect(f"embedded:{path}", read_only=read_only) as db:
            list(db.table("t").scan())
            list(db.view("w").scan())


def run(path: Path) -> subprocess.CompletedProcess:
    """The command line, in a process that may die."""
    command = [sys.executable, "-m", "viewkeeper", "scan", f"embedded:{path}", "w", "--json"]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("part", PARTS)
@pytest.mark.parametrize("make", [Path.mkdir, os.mkfifo], ids=["directory", "pipe"])
def test_a_part_that_is_no_file_is_named(path: Path, part: str, make: Callable[[Path], None]) -> None:
    (path / part / "data.mdb").unlink()
    make(path / part / "data.mdb")
    refused(path, f"{part}/data.mdb is not a file")


@pytest.mark.parametrize("part", PARTS)
def test_a_part_that_is_missing_is_named(path: Path, part: str) -> None:
    (path / part / "data.mdb").unlink()
    refused(path, f"lacks {part}")
    shutil.rmtree(path / part)
    refused(path, f"lacks {part}")
    assert not (path / part).exists()


def test_the_command_names_it_too_and_gives_no_rows(path: Path) -> None:
    shutil.rmtree(path / "partition-3")
    done = run(path)
    assert (done.returncode, done.stdout) == (4, "") and "partition-3" in done.stderr


@pytest.mark.parametrize("part", PARTS)
@pytest.mark.parametrize("size", [0, 100, 5_000, -4096])
def test_a_part_that_was_truncated_is_named_before_it_is_mapped(path: Path, part: str, size: int) -> None:
    file = path / part / "data.mdb"
    whole = file.stat().st_size
    os.truncate(file, size if size >= 0 else max(8192, whole // 2 // 4096 * 4096))
    refused(path, part)


@pytest.mark.parametrize("part", ["node-1", "partition-0"])
def test_a_process_that_meets_a_truncated_part_ends_with_an_error(path: Path, part: str) -> None:
    os.truncate(path / part / "data.mdb", 3 * 4096)
    done = run(path)
    assert (done.returncode, done.stdout) == (4, "") and part in done.stderr


def test_free_pages_that_lmdb_never_wrote_are_not_missed(tmp_path: Path) -> None:
    """Pages that a transaction took at the end of the file and gave back before its commit."""
    environment = lmdb.open(str(tmp_path / "e"), map_size=1 << 30, max_dbs=2, sync=False)
    database, choose, shorter = environment.open_db(b"a"), random.Random(4), 0
    for _ in range(1_500):
        with environment.begin(db=database, write=True) as transaction:
            for _ in range(choose.randrange(1, 60)):
                key = b"%06d" % choose.randrange(400)
                if choose.random() < 0.6:
                    transaction.put(key, bytes(choose.choice((10, 100, 1_000, 9_000, 30_000))))
                else:
                    transaction.delete(key)
        pages = (tmp_path / "e" / "data.mdb").stat().st_size // 4096
        shorter += pages <= environment.info()["last_pgno"]
        require_whole(tmp_path / "e" / "data.mdb")
    environment.close()
    assert shorter


@pytest.mark.parametrize(
    "change",
    [
        {"nodes": 1},
        {"partitions": 7},
        {"before_images": False},
        {"incarnation": "0" * 32},
        {"nodes": "2"},
        {"partitions": 10**9},
    ],
)
def test_a_changed_description_is_refused(path: Path, change: dict) -> None:
    file = path / "store.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | change))
    refused(path, "does not belong to this store|lacks")


def test_a_store_of_an_older_format_is_refused_in_its_own_words(path: Path) -> None:
    file = path / "store.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | {"format": 1}))
    with pytest.raises(vk.StoreError, match="has format 1; this ViewKeeper reads"):
        vk.connect(f"embedded:{path}")


@pytest.mark.parametrize(("one", "other"), [("partition-0", "partition-1"), ("node-0", "node-1")])
def test_parts_that_were_swapped_are_refused(path: Path, one: str, other: str) -> None:
    files = [path / part / "data.mdb" for part in (one, other)]
    texts = [file.read_bytes() for file in files]
    for file, text in zip(files, reversed(texts), strict=True):
        file.write_bytes(text)
    refused(path, f"{one} does not belong to this store.*part {other}, not {one}")


@pytest.mark.parametrize("part", PARTS)
def test_a_part_of_another_store_is_refused_also_of_a_restored_one(path: Path, tmp_path: Path, part: str) -> None:
    with vk.connect(f"embedded:{path}") as db:
        db.backup(tmp_path / "b")
    vk.restore(tmp_path / "b", f"embedded:{tmp_path / 'other'}").close()
    shutil.copy(tmp_path / "other" / part / "data.mdb", path / part / "data.mdb")
    refused(path, f"{part} does not belong to this store")


def test_a_killed_creation_is_taken_up_again(tmp_path: Path) -> None:
    folder = tmp_path / "points"
    folder.mkdir()
    (folder / "layout.part.armed").write_text("4")
    environment = os.environ | {"VIEWKEEPER_FAILPOINT_DIR": str(folder)}
    code = "import sys, viewkeeper as vk; vk.connect(sys.argv[1])"
    url = f"embedded:{tmp_path / 's'}"
    killed = subprocess.run([sys.executable, "-c", code, f"{url}?nodes=3"], cwd=ROOT, env=environment, check=False)

    assert killed.returncode < 0
    with pytest.raises(vk.StoreError, match="there is no store"):
        vk.connect(url, read_only=True)
    with vk.connect(url) as db:
        db.execute("CREATE TABLE t (k INT PRIMARY KEY)")
    assert sorted(p.name for p in (tmp_path / "s").iterdir() if p.name.startswith("node")) == ["node-0"]


def write_until_told(url: str, pipe: object) -> None:
    table, number = vk.connect(url).table("t"), ROWS
    while not pipe.poll():
        table.put(number, {"v": "acknowledged"})
        pipe.send(number)
        number += 1
    pipe.recv()
    pipe.send(None)


@pytest.mark.parametrize("part", ["meta", "node-0"])
def test_who_finds_the_locks_gone_does_not_open_the_store_beside_others(path: Path, part: str) -> None:
    """LMDB would make new ones, and two would write at once."""
    url = f"embedded:{path}?sync=off"
    here, there = CONTEXT.Pipe()
    writer = CONTEXT.Process(target=write_until_told, args=(url, there))
    writer.start()
    last = here.recv()
    (path / part / "lock.mdb").unlink()
    with pytest.raises(vk.StoreInUse, match=f"{part}/lock.mdb was removed while process {writer.pid}"):
        vk.connect(url)
    for _ in range(3):
        last = here.recv()  # who was there goes on
    here.send("stop")
    while (number := here.recv()) is not None:
        last = number
    writer.join()
    (path / part / "lock.mdb").unlink(missing_ok=True)  # with nobody there it means nothing
    with vk.connect(url) as db:
        assert {row["k"] for row in db.table("t").scan()} == set(range(last + 1))


def open_it(url: str, ready: object, go: object) -> None:
    ready.release()
    go.wait()
    with vk.connect(url) as db:
        list(db.view("w").scan())
        db.table("t").put(os.getpid(), {"v": "here"})


def test_processes_that_open_a_copy_without_locks_at_once_all_may(path: Path) -> None:
    for lock in path.glob("*/lock.mdb"):
        lock.unlink()
    ready, go = CONTEXT.Semaphore(0), CONTEXT.Event()
    processes = [CONTEXT.Process(target=open_it, args=(f"embedded:{path}?sync=off", ready, go)) for _ in range(3)]
    for process in processes:
        process.start()
    for _ in processes:
        ready.acquire()
    go.set()
    for process in processes:
        process.join()
    assert [process.exitcode for process in processes] == [0, 0, 0]


def damage(change: Callable[[bytearray], object], file: Path) -> None:
    data = bytearray(file.read_bytes())
    change(data)
    file.write_bytes(data)


@pytest.mark.parametrize("part", ["meta", "partition-5"])
def test_a_file_that_is_not_lmdbs_is_refused(path: Path, part: str) -> None:
    damage(lambda data: data.__setitem__(slice(0, 8192), bytes(8192)), path / part / "data.mdb")
    refused(path, part)
