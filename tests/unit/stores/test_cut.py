"""Cuts: an epoch is one state of the whole base (R17), ends on a transaction's border, and is made from one log (R9)."""

from __future__ import annotations

import itertools
import shutil
import threading
from pathlib import Path

import pytest

import viewkeeper as vk
from tests.support.handles import close_environments
from tests.support.running import HereRunner, keep_up
from viewkeeper.coordinator.coordinator import Coordinator
from viewkeeper.coordinator.gc import collect_garbage
from viewkeeper.errors import LogDiverged
from viewkeeper.model.stored_rows import RowWrites
from viewkeeper.settings import GcSettings
from viewkeeper.stores.local.embedded_store import EmbeddedStore
from viewkeeper.stores.local.node import Node

WRITERS = 4
CUTS = 60


def keys_of_nodes(store: EmbeddedStore, count: int) -> list[list[bytes]]:
    """`count` keys for each of two nodes."""
    keys: list[list[bytes]] = [[], []]
    for number in range(10_000):
        key = b"key-%d" % number
        if len(keys[store.node_of(key)]) < count:
            keys[store.node_of(key)].append(key)
    return keys


def put_one(store: EmbeddedStore, key: bytes, row: bytes) -> None:
    store.write([RowWrites(1, [key], lambda befores: [row])])


def test_y_is_never_in_a_cut_without_the_x_that_was_written_before_it(tmp_path: Path) -> None:
    """R17: each writer writes x on one node and, once that is acknowledged, y on the other."""
    store = EmbeddedStore(f"embedded:{tmp_path / 's'}?sync=off&nodes=2")
    xs, ys = keys_of_nodes(store, WRITERS)
    start, enough = threading.Barrier(WRITERS + 1), threading.Event()

    def write_pairs(writer: int) -> None:
        start.wait()
        for number in itertools.count():
            put_one(store, xs[writer], b"%d" % number)
            put_one(store, ys[writer], b"%d" % number)
            if enough.is_set():
                return

    writers = [threading.Thread(target=write_pairs, args=(writer,)) for writer in range(WRITERS)]
    for writer in writers:
        writer.start()
    start.wait()
    last, between = {"0": 0, "1": 0}, 0
    try:
        for number in range(CUTS):
            cut = store.cut(last, changes_max=10_000 if number % 2 else 6, bytes_max=1 << 40).positions
            assert 0 <= cut["0"] - cut["1"] <= WRITERS  # a writer has at most one x whose y is not written yet
            assert all(cut[node] >= last[node] for node in ("0", "1"))
            between += cut["0"] > cut["1"]
            last = cut
    finally:
        enough.set()
        for writer in writers:
            writer.join()

    ends = store.ends()
    assert between  # some cuts fell between an x and its y
    assert store.cut(last, changes_max=1_000_000, bytes_max=1 << 40).positions == ends
    assert ends["0"] == ends["1"]


def test_a_cut_waits_for_a_transaction_that_was_stamped_before_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """x has its stamp and is not committed yet; a cut taken now must hold it, so it passes through the writer's lock."""
    store = EmbeddedStore(f"embedded:{tmp_path / 's'}?sync=off&nodes=2")
    (y,), (x,) = keys_of_nodes(store, 1)
    stamped, go_on, at_lock = threading.Event(), threading.Event(), threading.Event()
    now, pass_writer_lock = store.now, Node.pass_writer_lock

    def slow_now() -> int:
        stamp = now()
        if threading.current_thread().name == "slow":
            stamped.set()
            go_on.wait(60)
        return stamp

    def tell_and_pass(node: Node) -> None:
        if node.number == store.node_of(x):
            at_lock.set()
        pass_writer_lock(node)

    monkeypatch.setattr(store, "now", slow_now)
    monkeypatch.setattr(Node, "pass_writer_lock", tell_and_pass)
    slow = threading.Thread(target=put_one, args=(store, x, b"1"), name="slow")
    slow.start()
    assert stamped.wait(60)
    put_one(store, y, b"1")
    cuts: list[dict] = []
    cutter = threading.Thread(target=lambda: cuts.append(store.cut({}, changes_max=100, bytes_max=1 << 40).positions))
    cutter.start()
    while not at_lock.is_set() and cutter.is_alive():
        cutter.join(0.01)
    go_on.set()
    slow.join()
    cutter.join()

    assert cuts == [{"0": 1, "1": 1}]


@pytest.mark.parametrize("changes_max", [1, 2, 3, 7])
def test_a_cut_never_parts_a_transaction_and_comes_to_the_end(tmp_path: Path, changes_max: int) -> None:
    store = EmbeddedStore(f"embedded:{tmp_path / 's'}?sync=off")
    borders = {0}
    for number in range(12):
        rows = {b"%d-%d" % (number, place): b"v" for place in range(1 + number % 3)}
        groups = [RowWrites(table, list(rows), lambda befores, rows=rows: list(rows.values())) for table in (1, 2)]
        borders.add(int(store.write(groups)["0"]))
    position, steps = 0, 0
    while position < store.ends()["0"]:
        cut = int(store.cut({"0": position}, changes_max=changes_max, bytes_max=1 << 40).positions["0"])
        assert cut in borders
        assert position < cut <= position + changes_max + 6  # at most the rest of a transaction more than asked
        position, steps = cut, steps + 1

    assert steps > 1


def test_a_cut_of_an_empty_store_is_empty(tmp_path: Path) -> None:
    store = EmbeddedStore(f"embedded:{tmp_path / 's'}?nodes=2")

    assert store.cut({}, changes_max=10, bytes_max=1 << 40).positions == {"0": 0, "1": 0}


def make(path: Path, *, rows: int) -> vk.Database:
    db = vk.connect(f"embedded:{path}?sync=off")
    db.execute(
        "CREATE TABLE t (k INT PRIMARY KEY, v STRING); CREATE MATERIALIZED VIEW n AS SELECT COUNT(*) AS n FROM t"
    )
    for number in range(rows):
        db.table("t").put(number, {"v": "first"})
    return db


def restore_node(path: Path, copy: Path) -> None:
    """Put an old copy of the base in place, but not of the epoch record: what a partial restore does."""
    close_environments()
    shutil.rmtree(path / "node-0")
    shutil.copytree(copy, path / "node-0")


@pytest.mark.parametrize("later", ["nothing", "another row", "fewer borders", "more borders"])
def test_a_log_that_is_not_the_committed_one_is_noticed(tmp_path: Path, later: str) -> None:
    """R9: shorter than what is committed, or with another entry where the committed one should end."""
    path = tmp_path / "s"
    db = make(path, rows=2)
    close_environments()
    shutil.copytree(path / "node-0", tmp_path / "copy")
    if later == "more borders":
        db.table("t").put_many([{"k": 10, "v": "lost"}, {"k": 11, "v": "lost"}])
    else:
        db.table("t").put(10, {"v": "lost"})
    keep_up(db)
    restore_node(path, tmp_path / "copy")
    match later:
        case "another row":
            db.table("t").put(11, {"v": "other"})
        case "fewer borders":
            db.table("t").put_many([{"k": number, "v": "other"} for number in range(20, 25)])
        case "more borders":
            for number in range(20, 25):
                db.table("t").put(number, {"v": "other"})

    with pytest.raises(LogDiverged):
        Coordinator(db.store, HereRunner(db.store)).step()


def test_a_truncated_log_is_still_the_committed_one(tmp_path: Path) -> None:
    db = make(tmp_path / "s", rows=5)
    keep_up(db)
    collect_garbage(db.store, GcSettings(log_kept_seconds=0))
    assert db.store.facts().log_entries == 1
    keep_up(db)
    db.table("t").put(9, {"v": "x"})
    keep_up(db)
    collect_garbage(db.store, GcSettings(log_kept_seconds=0))

    assert db.view("n").get() == {"n": 6}
    assert db.store.facts().log_entries == 1
    db.execute("CREATE INDEX late ON t (v)")  # filled from the rows: the log is gone
    keep_up(db)
    assert [row["k"] for row in db.view("late").scan()] == [0, 1, 2, 3, 4, 9]
