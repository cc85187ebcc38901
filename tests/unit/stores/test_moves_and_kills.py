"""A process that moves rows is killed at every step, and so is one that finishes its work: no row is lost or doubled."""

from __future__ import annotations

import multiprocessing
import signal
from pathlib import Path

import pytest

import viewkeeper as vk
from tests.support.running import keep_up
from viewkeeper import failpoints
from viewkeeper.stores.local.placement import SLOTS

CONTEXT = multiprocessing.get_context("spawn")
ROWS = 300
POINTS = ("node.made", "node.listed", "move.intent", "move.left", "move.arrived", "move.placed")


def run_sql(url: str, sql: str, folder: str) -> None:
    failpoints.hook(failpoints.killing(folder))
    vk.connect(url).execute(sql)


def cut(url: str, folder: str) -> None:
    """A pipeline that meets what the mover left: it finishes the move, and may be killed at that."""
    failpoints.hook(failpoints.killing(folder))
    vk.connect(url).store.cut({}, changes_max=1, bytes_max=1)


def killed(work: object, point: str, folder: Path, *arguments: str) -> None:
    """Run a function in another process, and have it killed at a point."""
    folder.mkdir(exist_ok=True)
    (folder / f"{point}.armed").write_text("1")
    process = CONTEXT.Process(target=work, args=(*arguments, str(folder)))
    process.start()
    process.join(120)
    assert process.exitcode == -signal.SIGKILL


def make(tmp_path: Path, log: str, nodes: int) -> str:
    url = f"embedded:{tmp_path / 's'}?sync=off"
    with vk.connect(f"{url}&nodes={nodes}&before_images={log}") as db:
        db.execute("CREATE TABLE t (k INT PRIMARY KEY, v STRING)")
        db.execute("CREATE MATERIALIZED VIEW copy AS SELECT k, v FROM t")
        db.table("t").put_many([{"k": k, "v": "old"} for k in range(ROWS)])
        keep_up(db)
        db.table("t").put_many([{"k": k, "v": "new"} for k in range(0, ROWS, 2)])
    return url


def require_whole(db: vk.Database) -> None:
    rows = {k: "new" if k % 2 == 0 else "old" for k in range(ROWS)}
    assert {k: db.table("t").get(k)["v"] for k in rows} == rows
    assert [(row["k"], row["v"]) for row in db.table("t").scan()] == sorted(rows.items())
    keep_up(db)
    assert {row["k"]: row["v"] for row in db.view("copy").scan()} == rows
    facts = db.status().nodes
    assert sum(node.slots for node in facts) == SLOTS
    assert sum(node.rows for node in facts) == ROWS


@pytest.mark.parametrize(("point", "log"), [*((point, "on") for point in POINTS), ("move.left", "off")])
def test_an_added_node_whose_process_is_killed_is_added_by_the_same_statement(
    tmp_path: Path, point: str, log: str
) -> None:
    url = make(tmp_path, log, 1)
    killed(run_sql, point, tmp_path / "points", url, "ALTER STORE ADD NODE")

    with vk.connect(url) as db:
        require_whole(db)
        db.execute("ALTER STORE ADD NODE")
        assert [(node.number, node.slots) for node in db.status().nodes] == [(0, 128), (1, 128)]
        require_whole(db)
        db.table("t").put(1, {"v": "later"})
        keep_up(db)
        assert db.view("copy").get(1) == {"k": 1, "v": "later"}


@pytest.mark.parametrize("point", ["move.intent", "move.left"])
def test_a_removed_node_whose_process_is_killed_is_removed_by_the_same_statement(tmp_path: Path, point: str) -> None:
    url = make(tmp_path, "on", 2)
    killed(run_sql, point, tmp_path / "points", url, "ALTER STORE REMOVE NODE 0")

    with vk.connect(url) as db:
        require_whole(db)
        db.execute("ALTER STORE REMOVE NODE 0")
        assert [(node.number, node.slots, node.state) for node in db.status().nodes] == [
            (0, 0, "removed"),
            (1, SLOTS, "in use"),
        ]
        require_whole(db)


def update_again_and_again(url: str, first: int, enough: object, last: object) -> None:
    """Update rows until told otherwise, each with a number that grows; tells the last one."""
    table, number = vk.connect(url).table("t"), 0
    while not enough.is_set() or number < 2:
        number += 1
        for k in range(first, 40, 2):
            table.put(k, {"v": f"{number:09}"})
    last.put((first, number))


def test_processes_that_write_while_nodes_come_and_go_lose_nothing(tmp_path: Path) -> None:
    url = make(tmp_path, "on", 2)
    enough, last = CONTEXT.Event(), CONTEXT.Queue()
    writers = [CONTEXT.Process(target=update_again_and_again, args=(url, first, enough, last)) for first in (0, 1)]
    for writer in writers:
        writer.start()
    with vk.connect(url) as db:
        coordinator, seen = keep_up(db), list[dict[int, str]]()
        while not all(db.table("t").get(k)["v"].startswith("0") for k in (38, 39)):  # both are at work
            coordinator.step()
        for statement in ("ADD NODE", "REMOVE NODE 0", "ADD NODE", "REMOVE NODE 2"):
            db.execute(f"ALTER STORE {statement}")
            coordinator.step()
            seen.append({row["k"]: row["v"] for row in db.view("copy").scan() if row["v"].startswith("0")})
        enough.set()
        numbers = dict(last.get(timeout=120) for _ in writers)
        for writer in writers:
            writer.join()
            assert writer.exitcode == 0
        coordinator.catch_up()
        seen.append({row["k"]: row["v"] for row in db.view("copy").scan() if row["v"].startswith("0")})
        assert seen[-1] == {k: f"{numbers[k % 2]:09}" for k in range(40)}
        assert seen[-1] == {k: db.table("t").get(k)["v"] for k in range(40)}
        for earlier, later in zip(seen, seen[1:], strict=False):
            assert all(earlier[k] <= later[k] for k in earlier)
        assert len(list(db.table("t").scan())) == len(list(db.view("copy").scan())) == ROWS


@pytest.mark.parametrize("first", ["move.left", "move.arrived"])
def test_one_who_finishes_a_move_may_be_killed_too(tmp_path: Path, first: str) -> None:
    url = make(tmp_path, "on", 1)
    killed(run_sql, first, tmp_path / "points", url, "ALTER STORE ADD NODE")
    killed(cut, "move.finished", tmp_path / "again", url)

    with vk.connect(url) as db:
        require_whole(db)


def test_rows_that_left_arrive_with_a_later_stamp_when_their_node_was_written_meanwhile(tmp_path: Path) -> None:
    """The mover dies between its two transactions, and the new node, which has slots already, takes other rows then."""
    url = make(tmp_path, "on", 3)
    killed(run_sql, "move.left", tmp_path / "points", url, "ALTER STORE REMOVE NODE 0")
    with vk.connect(url) as db:
        intent = db.store.meta.read_placement().intent
        assert intent is not None
        others = [k for k in range(ROWS, 3 * ROWS) if intent.slots >> _slot(db, k) & 1 == 0]
        for k in others[:50]:  # none of them is misplaced, so nobody has noticed yet
            db.table("t").put(k, {"v": "other"})
        assert db.store.meta.read_placement().intent == intent
        start = db.store.read_epoch_record().positions
        cut = db.store.cut(start, changes_max=10, bytes_max=1 << 40)
        move = db.store.meta.read_placement().moves[-1]
        assert move.left < move.arrived
        assert not move.left <= cut.stamp < move.arrived
        db.table("t").delete_many(others[:50])
        require_whole(db)


def _slot(db: vk.Database, key: int) -> int:
    from viewkeeper.model.keys import encode_key
    from viewkeeper.stores.local.placement import slot_of

    return slot_of(encode_key(db.table("t").schema.key_columns, [key]))


def test_a_backup_taken_when_a_mover_has_died_is_whole(tmp_path: Path) -> None:
    url = make(tmp_path, "on", 1)
    killed(run_sql, "move.left", tmp_path / "points", url, "ALTER STORE ADD NODE")
    with vk.connect(url) as db:
        db.backup(tmp_path / "b")
    vk.restore(tmp_path / "b", f"embedded:{tmp_path / 'again'}?sync=off")
    with vk.connect(f"embedded:{tmp_path / 'again'}?sync=off") as db:
        require_whole(db)
