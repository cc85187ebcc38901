"""Handles of nodes: a process lets go of the files and addresses of a node that was removed."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import viewkeeper as vk
from viewkeeper.coordinator.gc import collect_garbage
from viewkeeper.settings import GcSettings

ROWS = [{"k": k, "v": k} for k in range(40)]
OTHER = """
import os, sys
import viewkeeper as vk
from tests.unit.stores.test_node_handles import ROWS, held
with vk.connect(sys.argv[1]) as db:
    for line in sys.stdin:
        db.table("t").put_many(ROWS)
        assert [db.table("t").get(row["k"]) for row in ROWS] == ROWS
        print(*held(), flush=True)
"""


def held() -> tuple[int, int]:
    """The files of this process, and its mapped data files."""
    maps = Path("/proc/self/maps").read_text().splitlines()
    return len(os.listdir("/proc/self/fd")), sum(line.endswith("/data.mdb") for line in maps)


@pytest.mark.skipif(not Path("/proc/self/maps").exists(), reason="only Linux lists what a process holds")
def test_nodes_that_come_and_go_leave_nothing_open(tmp_path: Path) -> None:
    url = f"embedded:{tmp_path / 's'}?sync=off"
    with vk.connect(url) as db:
        db.execute("CREATE TABLE t (k INT PRIMARY KEY, v INT)")
        db.table("t").put_many(ROWS)
        env = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
        other = subprocess.Popen(
            [sys.executable, "-c", OTHER, url], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=env
        )
        try:
            here, there = [], []
            for number in range(1, 6):
                db.execute("ALTER STORE ADD NODE")
                there.append(_answer(other))
                db.execute(f"ALTER STORE REMOVE NODE {number}")
                _answer(other)
                with db.pipeline() as pipeline:
                    pipeline.run_available()
                collect_garbage(db.store, GcSettings(log_kept_seconds=0))
                db.status()
                here.append(held())
        finally:
            other.communicate()
        assert len(set(here[1:])) == 1 and len(set(there[1:])) == 1
        assert [db.table("t").get(row["k"]) for row in ROWS] == ROWS


def _answer(other: subprocess.Popen[str]) -> str:
    assert other.stdin is not None and other.stdout is not None
    other.stdin.write("go\n")
    other.stdin.flush()
    return other.stdout.readline()


def test_a_node_with_an_open_scan_is_let_go_of_later(tmp_path: Path) -> None:
    with vk.connect(f"embedded:{tmp_path / 's'}?sync=off") as db:
        db.execute("CREATE TABLE t (k INT PRIMARY KEY, v INT)")
        db.table("t").put_many(ROWS)
        db.execute("ALTER STORE ADD NODE")
        scan = db.table("t").scan()
        first = next(scan)
        db.execute("ALTER STORE REMOVE NODE 1")
        with db.pipeline() as pipeline:
            pipeline.run_available()
        collect_garbage(db.store, GcSettings(log_kept_seconds=0))
        db.status()
        assert "node-1" in db.store._directory._handles
        assert [first, *scan] == ROWS
        db.status()
        assert "node-1" not in db.store._directory._handles


def test_removed_nodes_whose_logs_are_still_read_are_limited(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("viewkeeper.stores.local.rebalance.NODES_MAX", 3)
    with vk.connect(f"embedded:{tmp_path / 's'}?sync=off") as db:
        db.execute("CREATE TABLE t (k INT PRIMARY KEY, v INT)")
        db.table("t").put_many(ROWS)
        for number in (1, 2):
            db.execute("ALTER STORE ADD NODE")
            db.execute(f"ALTER STORE REMOVE NODE {number}")
        with pytest.raises(vk.InputError, match="2 removed nodes are still read.*let the pipeline run"):
            db.execute("ALTER STORE ADD NODE")
