"""Compaction gives space back, needs the store alone, and may be killed at any moment."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import viewkeeper as vk
from tests.support.dump import contents, dump
from tests.support.killing import kill_at
from tests.support.running import begin_epoch, keep_up
from viewkeeper.stores.kv.file_locks import PipelineLock

ROOT = Path(__file__).parents[3]
ROWS = 4_000


@pytest.fixture
def url(tmp_path: Path) -> str:
    """A store with much free space in its files: most rows deleted, a table and a view dropped, a log of all that."""
    url = f"embedded:{tmp_path / 's'}?sync=off"
    with vk.connect(f"{url}&nodes=2") as db:
        db.execute("CREATE TABLE t (k INT PRIMARY KEY, v INT, s STRING); CREATE TABLE gone (k INT PRIMARY KEY)")
        db.execute("CREATE MATERIALIZED VIEW w AS SELECT v, COUNT(*) AS n FROM t GROUP BY v")
        db.execute("CREATE MATERIALIZED VIEW every AS SELECT * FROM t")
        db.table("t").put_many([{"k": i, "v": i % 5, "s": "x" * 100} for i in range(ROWS)])
        db.table("gone").put_many([{"k": i} for i in range(ROWS)])
        keep_up(db)
        for i in range(100, ROWS, 50):
            db.table("t").delete(i)
        db.execute("DROP TABLE gone; DROP MATERIALIZED VIEW every")
        keep_up(db)
    return url


def state(url: str) -> tuple:
    with vk.connect(url) as db:
        kept = {view.node.table for view in db.catalog().views}
        records = [record for record in dump(db.store) if record[0] in kept]
        return list(db.table("t").scan()), contents(db), records, db.store.read_epoch_record()


@contextmanager
def other_process(url: str) -> Iterator[subprocess.Popen]:
    """A process that has the store open."""
    code = "import sys, viewkeeper as vk; db = vk.connect(sys.argv[1]); print('open', flush=True); sys.stdin.read()"
    command = [sys.executable, "-c", code, url]
    with subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout.readline() == "open\n"
            yield process
        finally:
            process.stdin.close()


def test_a_compacted_store_is_smaller_and_holds_the_same(url: str) -> None:
    before = state(url)
    with vk.connect(url) as db:
        told: list[tuple[int, int]] = []
        done = db.compact(progress=lambda *facts: told.append(facts))
        assert done.bytes_after < done.bytes_before / 2
        assert done.bytes_after == db.status().bytes_used
        assert done.log_entries > 0 and db.store.facts().log_entries <= db.store.layout.nodes
        assert told[-1][0] == told[-1][1] and told == sorted(told)
        assert db.catalog().dropped == ()
        db.table("t").put(1, {"v": 77})  # the same database goes on
        db.execute("CREATE TABLE later (k INT PRIMARY KEY)")
        assert db.catalog().has("later")
        db.table("t").put(1, {"v": 1})
        keep_up(db)
    after = state(url)
    assert after[:2] == before[:2]


def test_a_second_compaction_finds_nothing_to_do(url: str) -> None:
    with vk.connect(url) as db:
        first = db.compact()
        second = db.compact()
    assert second.bytes_before == second.bytes_after == first.bytes_after
    assert second.log_entries == 0


def test_the_log_of_an_epoch_in_flight_stays(url: str) -> None:
    with vk.connect(url) as db:
        db.table("t").put(1, {"v": 9})
        epoch = begin_epoch(db.store)
        db.compact()
        assert db.store.read_epoch_record().inflight == epoch
        keep_up(db)
        assert db.view("w").get(9) == {"v": 9, "n": 1}


def test_it_is_refused_while_another_process_has_the_store_open(url: str) -> None:
    with vk.connect(url) as db:
        with other_process(url) as process, pytest.raises(vk.StoreInUse, match=f"open in process {process.pid}"):
            db.compact()
        db.compact()  # it has gone


def test_it_is_refused_while_this_process_has_the_store_open_twice(url: str) -> None:
    with vk.connect(url) as db:
        with vk.connect(url), pytest.raises(vk.StoreInUse, match="open 2 times"):
            db.compact()
        db.compact()
    with vk.connect(url, read_only=True) as reader, pytest.raises(vk.InputError, match="for reading only"):
        reader.compact()


def test_it_is_refused_while_a_pipeline_runs(url: str) -> None:
    with vk.connect(url) as db:
        lock = PipelineLock(db.store.layout.lock, take_over=False)
        with pytest.raises(vk.PipelineRunning, match=f"pid {os.getpid()}; stop it first"):
            db.compact()
        lock.release()
        db.compact()


def test_nobody_can_open_a_store_that_is_being_compacted(url: str) -> None:
    code = "import sys, viewkeeper as vk; vk.connect(sys.argv[1])"
    with vk.connect(url) as db:
        with db.store.alone():
            other = subprocess.run(
                [sys.executable, "-c", code, url], cwd=ROOT, capture_output=True, text=True, check=False
            )
        assert "StoreInUse" in other.stderr and "is being compacted" in other.stderr
        with other_process(url):
            pass


def test_a_store_that_could_not_be_opened_is_not_held(tmp_path: Path, url: str) -> None:
    meta = tmp_path / "s" / "meta" / "data.mdb"
    whole = meta.read_bytes()
    meta.write_bytes(b"\x01" * len(whole))
    with pytest.raises(vk.CorruptStore):
        vk.connect(url)
    meta.write_bytes(whole)
    with vk.connect(url) as db:
        db.compact()


@pytest.mark.parametrize(
    "point",
    [
        *("gc.truncated@1", "gc.dropped@1", "compact.copied@1", "compact.copied@3"),
        *("compact.renamed@1", "compact.renamed@3", "compact.done@1", "compact.done@3"),
    ],
)
def test_a_kill_at_any_point_leaves_a_whole_store(tmp_path: Path, url: str, point: str) -> None:
    before = state(url)
    kill_at(point, tmp_path / "points", "compact", url)
    assert state(url) == before
    with vk.connect(url) as db:
        db.compact()
    assert state(url) == before
    assert list(tmp_path.rglob("*.new")) == []
