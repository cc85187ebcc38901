"""Many processes on one store: nothing acknowledged is lost, by concurrency or by kill -9."""

from __future__ import annotations

import multiprocessing
import os
import signal
from pathlib import Path

import pyarrow as pa
import pytest

import viewkeeper as vk
from tests.support.killing import kill_at
from tests.support.running import keep_up
from viewkeeper.model.positions import Position, Stream
from viewkeeper.model.rowcodec import decode_row

CONTEXT = multiprocessing.get_context("spawn")
WRITERS = 3
ROWS = 60
ACKNOWLEDGED_MIN = 25
CONTESTED = 250


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


def change_rows(url: str, statements: tuple[str, ...], ready: object, go: object, answers: object) -> None:
    """Run statements for one key after the other; how often each answer was given."""
    db = vk.connect(url)
    ready.release()
    go.wait()
    counts: dict[str, int] = {}
    for number in range(CONTESTED):
        for statement in statements:
            message = db.execute(statement.format(key=f"r{number % 3}")).message
            counts[message] = counts.get(message, 0) + 1
    answers.put(counts)


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


def test_an_update_beside_a_delete_never_brings_a_row_back(tmp_path: Path) -> None:
    db = vk.connect(f"embedded:{tmp_path / 's'}?sync=off")
    db.execute("CREATE TABLE t (k STRING PRIMARY KEY, w INT, v BIGINT)")
    ready, go, answers = CONTEXT.Semaphore(0), CONTEXT.Event(), CONTEXT.Queue()
    put_and_delete = ("INSERT INTO t VALUES ('{key}', 1, 0)", "DELETE FROM t WHERE k = '{key}'")
    parts = (("UPDATE t SET v = 1 WHERE k = '{key}'",), put_and_delete, put_and_delete[1:])
    writers = [CONTEXT.Process(target=change_rows, args=(db.url, part, ready, go, answers)) for part in parts]
    for writer in writers:
        writer.start()
    for _ in writers:
        ready.acquire()
    go.set()
    told = [answers.get() for _ in writers]
    for writer in writers:
        writer.join()
        assert writer.exitcode == 0

    log = pa.concat_batches(
        [batch for _, batch in db.store.read_log(Stream("0"), Position(0), db.store.ends()[Stream("0")])]
    )
    schema = db.table("t").schema
    rows = [decode_row(schema.value_columns, row) for row in log["after"].to_pylist() if row is not None]
    assert [row for row in rows if row[0] is None] == []  # an INSERT gives w; an UPDATE of a row that is gone would not
    gone = sum(after is None for after in log["after"].to_pylist())
    assert sum(counts.get("1 row deleted", 0) for counts in told) == gone  # whoever found it deleted it, nobody else


@pytest.mark.parametrize(("point", "rows"), [("node.write.before_commit@3", 2), ("node.write.committed@3", 3)])
def test_a_writer_that_is_killed_beside_its_commit_has_written_all_of_a_row_or_nothing(
    tmp_path: Path, point: str, rows: int
) -> None:
    with make(tmp_path / "s", 1) as db:
        url = db.url
    inserts = "; ".join(f"INSERT INTO t VALUES ('{number}', 1, {number})" for number in range(5))
    kill_at(point, tmp_path / "points", "sql", url, inserts)
    with vk.connect(url) as db:
        keep_up(db)
        assert db.store.facts().log_entries == len(list(db.table("t").scan())) == rows
        assert list(db.view("per").scan()) == [{"w": 1, "n": rows, "s": sum(range(rows))}]
