"""Many processes on one store: nothing acknowledged is lost, by concurrency or by kill -9."""

from __future__ import annotations

import multiprocessing
import os
import signal
from pathlib import Path

import pytest

import viewkeeper as vk
from tests.support.running import keep_up

CONTEXT = multiprocessing.get_context("spawn")
WRITERS = 3
ROWS = 60
ACKNOWLEDGED_MIN = 25


def make(path: Path, nodes: int) -> vk.Database:
    db = vk.connect(f"embedded:{path}?sync=off&nodes={nodes}")
    db.execute("CREATE TABLE t (k STRING PRIMARY KEY, w INT, v BIGINT)")
    db.execute("CREATE MATERIALIZED VIEW per AS SELECT w, COUNT(*) AS n, SUM(v) AS s FROM t GROUP BY w")
    return db


def write_many(url: str, writer: int, ready: object, go: object) -> None:
    """Rows of its own, and its turns at a row that all writers share."""
    table = vk.connect(url).table("t")
    ready.release()
    go.wait()
    for number in range(ROWS):
        table.put(f"{writer}-{number}", {"w": writer, "v": number})
        while True:  # a counter kept by test-and-set
            found = table.get("shared")
            if table.put_if("shared", {"v": found["v"] + 1}, expect={"v": found["v"]}):
                break


def acknowledge(url: str, told: object) -> None:
    """Write for ever, and tell what was acknowledged."""
    table = vk.connect(url).table("t")
    number = 0
    while True:
        token = table.put(f"k{number}", {"w": 0, "v": number})
        told.send((number, str(token)))
        number += 1


@pytest.mark.parametrize("nodes", [1, 2])
def test_processes_that_write_at_once_lose_nothing(tmp_path: Path, nodes: int) -> None:
    db = make(tmp_path / "s", nodes)
    db.table("t").put("shared", {"w": -1, "v": 0})
    ready, go = CONTEXT.Semaphore(0), CONTEXT.Event()
    writers = [CONTEXT.Process(target=write_many, args=(db.url, writer, ready, go)) for writer in range(WRITERS)]
    for writer in writers:
        writer.start()
    for _ in writers:
        ready.acquire()
    go.set()
    epochs = 0
    while any(writer.is_alive() for writer in writers):  # the pipeline runs beside them
        keep_up(db)
        epochs += 1
    for writer in writers:
        writer.join()
        assert writer.exitcode == 0
    keep_up(db)

    assert epochs >= 1
    assert db.table("t").get("shared")["v"] == WRITERS * ROWS
    assert sum(1 for _ in db.table("t").scan()) == WRITERS * ROWS + 1
    assert sum(db.store.ends().values()) == WRITERS * ROWS * 2 + 1  # positions without a gap
    expected = [{"w": -1, "n": 1, "s": WRITERS * ROWS}]
    expected += [{"w": writer, "n": ROWS, "s": ROWS * (ROWS - 1) // 2} for writer in range(WRITERS)]
    assert list(db.view("per").scan()) == expected


@pytest.mark.parametrize("nodes", [1, 2])
def test_a_killed_writer_loses_nothing_acknowledged(tmp_path: Path, nodes: int) -> None:
    db = make(tmp_path / "s", nodes)
    receive, send = CONTEXT.Pipe(duplex=False)
    writer = CONTEXT.Process(target=acknowledge, args=(db.url, send))
    writer.start()
    send.close()
    acknowledged = [receive.recv() for _ in range(ACKNOWLEDGED_MIN)]
    os.kill(writer.pid, signal.SIGKILL)
    writer.join()
    while receive.poll():
        try:
            acknowledged.append(receive.recv())
        except (EOFError, OSError):  # the last message may have been cut in half
            break
    table = db.table("t")
    table.put("after", {"w": 9, "v": 1})  # nothing is locked

    assert writer.exitcode == -signal.SIGKILL
    assert all(table.get(f"k{number}")["v"] == number for number, _ in acknowledged)
    keep_up(db)
    rows = [row for row in table.scan() if row["w"] == 0]
    assert len(rows) in (len(acknowledged), len(acknowledged) + 1)  # at most one was done and not told
    assert db.view("per").get(0) == {"w": 0, "n": len(rows), "s": sum(row["v"] for row in rows)}
    for _, token in acknowledged:
        db.wait_for(token, timeout=0)
