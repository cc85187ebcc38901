"""Nodes that come and go: rows move with their slots, and nobody else notices (paper 1, table 1)."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import duckdb
import pyarrow as pa
import pytest

import viewkeeper as vk
from tests.support.running import HereRunner, keep_up
from viewkeeper.coordinator import coordinator
from viewkeeper.coordinator.backfill import plan_chunks
from viewkeeper.coordinator.coordinator import Coordinator
from viewkeeper.coordinator.gc import collect_garbage
from viewkeeper.errors import InputError, PositionLost, StoreBusy
from viewkeeper.model.positions import Chunk
from viewkeeper.ports.base_rows import scan_rows
from viewkeeper.settings import EpochLimits, GcSettings
from viewkeeper.stores.local import rebalance
from viewkeeper.stores.local.placement import EVERY, SLOTS, even_moves, first_slots, listed

STORES = {
    "embedded": "embedded:{folder}/s?sync=off",
    "embedded, 2 nodes": "embedded:{folder}/s?sync=off&nodes=2",
    "embedded, plain log": "embedded:{folder}/s?sync=off&nodes=2&before_images=off",
    "memory": "memory:{folder}/s",
    "memory, 2 nodes": "memory:{folder}/s?nodes=2",
    "memory, plain log": "memory:{folder}/s?nodes=2&before_images=off",
}
TEXTS = {
    "copy": "SELECT k, v FROM t",
    "sums": "SELECT v % 3 AS m, COUNT(*) AS n, SUM(v) AS s FROM t GROUP BY 1",
    "ends": "SELECT COUNT(*) AS n, MAX(v) AS hi FROM t",
}
VIEWS = "CREATE TABLE t (k INT PRIMARY KEY, v INT);" + ";".join(
    f"CREATE MATERIALIZED VIEW {name} AS {text}" for name, text in TEXTS.items()
)
ROWS = 400


@pytest.fixture(params=list(STORES.values()), ids=list(STORES))
def db(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[vk.Database]:
    with vk.connect(request.param.format(folder=tmp_path)) as database:
        yield database


def fill(db: vk.Database, rows: int = ROWS) -> None:
    db.execute(VIEWS)
    db.table("t").put_many([{"k": k, "v": k} for k in range(rows)])


def rows_of(db: vk.Database) -> dict[int, int]:
    return {row["k"]: row["v"] for row in db.table("t").scan()}


def wrong(db: vk.Database) -> list[str]:
    """Which views are not what DuckDB makes of the rows."""
    rows = rows_of(db)
    with duckdb.connect() as judge:
        judge.register(
            "t", pa.table({"k": pa.array(rows.keys(), pa.int32()), "v": pa.array(rows.values(), pa.int32())})
        )
        expected = {name: sorted(judge.sql(text).fetchall()) for name, text in TEXTS.items()}
    return [name for name, rows in expected.items() if sorted(tuple(r.values()) for r in db.view(name).scan()) != rows]


def test_slots_are_dealt_evenly_and_as_few_as_possible_move() -> None:
    assert sum(first_slots(node, 3) for node in range(3)) == EVERY
    slots = [slot % 3 for slot in range(SLOTS)]
    moves = even_moves(slots, [0, 1, 2, 3])
    assert sum(len(listed(moved)) for _, _, moved in moves) == SLOTS // 4
    assert {target for _, target, _ in moves} == {3}
    for source, target, moved in moves:
        for slot in listed(moved):
            assert slots[slot] == source
            slots[slot] = target
    assert {slots.count(node) for node in range(4)} == {64}
    assert sum(len(listed(moved)) for _, _, moved in even_moves(slots, [0, 2, 3])) == 64


def test_a_node_that_is_added_gets_its_share_of_the_rows_and_no_view_changes(db: vk.Database) -> None:
    fill(db)
    keep_up(db)
    nodes = len(db.status().nodes)

    told = db.execute("ALTER STORE ADD NODE").message

    facts = db.status().nodes
    assert told.startswith(f"node {nodes} added; ")
    assert [node.state for node in facts] == ["in use"] * (nodes + 1)
    assert max(node.slots for node in facts) - min(node.slots for node in facts) <= 1
    assert sum(node.slots for node in facts) == SLOTS
    assert sum(node.rows for node in facts) == ROWS
    assert min(node.rows for node in facts) > ROWS / 8
    assert rows_of(db) == {k: k for k in range(ROWS)}
    assert all(db.table("t").get(k) == {"k": k, "v": k} for k in range(ROWS))
    keep_up(db)
    assert wrong(db) == []
    db.table("t").put_many([{"k": k, "v": k + 1} for k in range(0, ROWS, 2)])
    db.table("t").delete_many(range(0, ROWS, 3))
    keep_up(db)
    assert wrong(db) == []


def test_a_node_that_is_removed_leaves_its_rows_to_the_others_and_its_log_to_its_end(db: vk.Database) -> None:
    fill(db)
    db.execute("ALTER STORE ADD NODE")
    token = db.table("t").put(1, {"v": 1000})
    keep_up(db)
    db.table("t").put_many([{"k": k, "v": k + 7} for k in range(ROWS)])  # on every node, and not committed

    db.execute("ALTER STORE REMOVE NODE 0")

    assert next(node for node in db.status().nodes if node.number == 0).state == "removed"
    assert rows_of(db) == {k: k + 7 for k in range(ROWS)}
    collect_garbage(db.store, GcSettings(log_kept_seconds=0))
    assert 0 in db.store.parts(1)  # its log is not committed yet
    keep_up(db)
    assert wrong(db) == []
    positions = db.store.read_frontier().positions
    collect_garbage(db.store, GcSettings(log_kept_seconds=0))
    assert 0 not in db.store.parts(1)
    db.table("t").put(5, {"v": 50})
    keep_up(db)
    assert wrong(db) == []
    db.wait_for(token, timeout=1)  # of a row that was written on a node that is gone
    with pytest.raises(PositionLost):
        list(db.store.scan_as_of(1, min(db.store.parts(1)), {stream: 0 for stream in positions}))


@pytest.mark.parametrize(("piece", "keys"), [(2_500, 500_000), (4, 500_000), (2_500, 6)])
def test_rows_that_move_in_small_pieces_all_arrive(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, piece: int, keys: int
) -> None:
    monkeypatch.setattr(rebalance, "_PIECE_ROWS", piece)
    monkeypatch.setattr(rebalance, "_KEYS_MAX", keys)
    monkeypatch.setattr(rebalance, "_LIST_ROWS", 7)
    look_up, try_piece, found, moved = rebalance._look_up, rebalance._try_piece, list[int](), list[int]()

    def note_found(*arguments: object) -> object:
        one = look_up(*arguments)
        found.append(sum(map(len, one.keys.values())))
        return one

    def note_moved(*arguments: object) -> int:
        moved.append(try_piece(*arguments))
        return moved[-1]

    monkeypatch.setattr(rebalance, "_look_up", note_found)
    monkeypatch.setattr(rebalance, "_try_piece", note_moved)
    with vk.connect(f"embedded:{tmp_path / 's'}?sync=off") as db:
        fill(db, 30)
        keep_up(db)
        told = db.execute("ALTER STORE ADD NODE").message
        facts = db.status().nodes
        assert f"{facts[1].rows} row" in told and sum(node.rows for node in facts) == 30
        db.execute("ALTER STORE REMOVE NODE 0")
        assert sum(moved) == 30
        assert (max(found) <= keys, len(found) == 2) == (True, keys > 30)
        assert (max(moved) <= piece, len(moved) == len(found)) == (True, piece > 30)
        db.table("t").delete_many(range(0, 30, 3))
        keep_up(db)
        assert rows_of(db) == {k: k for k in range(30) if k % 3}
        assert wrong(db) == []


def test_rows_with_long_keys_and_of_several_tables_move_too(db: vk.Database) -> None:
    db.execute("CREATE TABLE a (k STRING PRIMARY KEY, v INT); CREATE TABLE b (k STRING PRIMARY KEY)")
    keys = [f"{'long' * 300}{number}" for number in range(40)] + [f"{number}" for number in range(40)]
    for number, key in enumerate(keys):
        db.table("a").put(key, {"v": number})
        db.table("b").put(key, {})
    db.execute("ALTER STORE ADD NODE; ALTER STORE REMOVE NODE 0")
    assert {row["k"]: row["v"] for row in db.table("a").scan()} == {key: number for number, key in enumerate(keys)}
    assert sorted(row["k"] for row in db.table("b").scan()) == sorted(keys)
    assert all(db.table("a").get(key) == {"k": key, "v": number} for number, key in enumerate(keys))


def test_a_running_pipeline_follows_rows_to_a_new_node(tmp_path: Path) -> None:
    with vk.connect(f"memory:{tmp_path}") as db:
        fill(db)
        with db.pipeline() as pipeline:
            pipeline.start()
            for number in range(3):
                db.execute("ALTER STORE ADD NODE")
                pipeline.wait_for(db.table("t").put_many([{"k": k, "v": k * number} for k in range(ROWS)]))
                assert wrong(db) == []


def test_rows_that_move_between_two_cuts_of_one_epoch_are_in_the_views(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first cut is bounded; nothing reads the log, so a second one follows, after a move: its rows are elsewhere."""
    with vk.connect(f"memory:{tmp_path}") as db:
        fill(db)
        planned = []

        def plan_then_move(*args: object) -> tuple[Chunk, ...]:
            chunks = plan_chunks(*args)  # type: ignore[arg-type]
            if not planned:
                db.execute("ALTER STORE ADD NODE")
            planned.append(chunks)
            return chunks

        monkeypatch.setattr(coordinator, "plan_chunks", plan_then_move)
        keep_up(db)
        assert planned[0] and wrong(db) == []
        db.table("t").put_many([{"k": k, "v": 0} for k in range(ROWS)])
        keep_up(db)
        assert wrong(db) == []


def test_the_last_node_stays_and_one_that_is_not_there_is_not_removed(db: vk.Database) -> None:
    fill(db, 10)
    with pytest.raises(InputError, match="has no node 7"):
        db.execute("ALTER STORE REMOVE NODE 7")
    for node in range(len(db.status().nodes) - 1):
        db.execute(f"ALTER STORE REMOVE NODE {node}")
    with pytest.raises(InputError, match="is the last one"):
        db.execute(f"ALTER STORE REMOVE NODE {len(db.status().nodes) - 1}")
    assert rows_of(db) == {k: k for k in range(10)}


def test_a_store_opened_again_has_the_nodes_that_it_had(tmp_path: Path) -> None:
    url = f"embedded:{tmp_path / 's'}?sync=off"
    with vk.connect(url) as db:
        fill(db)
        db.execute("ALTER STORE ADD NODE; ALTER STORE ADD NODE; ALTER STORE REMOVE NODE 1")
        keep_up(db)
        collect_garbage(db.store, GcSettings(log_kept_seconds=0))
        db.compact()
        assert sorted(folder.name for folder in (tmp_path / "s").glob("node-*")) == ["node-0", "node-2"]
        db.backup(tmp_path / "b")
    vk.restore(tmp_path / "b", f"embedded:{tmp_path / 'again'}?sync=off")
    for name in ("s", "again"):
        with vk.connect(f"embedded:{tmp_path / name}?sync=off") as db:
            assert [node.number for node in db.status().nodes] == [0, 2]
            assert rows_of(db) == {k: k for k in range(ROWS)}
            db.execute("ALTER STORE ADD NODE")  # numbers are not used twice
            db.table("t").put(0, {"v": 9})
            keep_up(db)
            assert wrong(db) == []
            assert [node.number for node in db.status().nodes] == [0, 2, 3]


@pytest.mark.parametrize("statement", ["ADD NODE", "REMOVE NODE 0"])
def test_a_store_of_the_format_before_is_opened_and_changes_its_number_with_its_nodes(
    tmp_path: Path, statement: str
) -> None:
    url, file = f"embedded:{tmp_path / 's'}?sync=off", tmp_path / "s" / "store.json"
    with vk.connect(f"{url}&nodes=2") as db:
        fill(db)
    file.write_text(file.read_text().replace('"format": 5', '"format": 4'))
    with vk.connect(url) as db, vk.connect(url) as other:
        assert rows_of(db) == {k: k for k in range(ROWS)}
        assert '"format": 4' in file.read_text()
        db.execute(f"ALTER STORE {statement}")
        assert '"format": 5' in file.read_text()
        assert rows_of(other) == {k: k for k in range(ROWS)}
    with vk.connect(url) as db:
        assert rows_of(db) == {k: k for k in range(ROWS)}


def test_a_store_of_the_format_before_with_three_nodes_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "s" / "store.json"
    vk.connect(f"embedded:{tmp_path / 's'}?sync=off&nodes=3").close()
    file.write_text(file.read_text().replace('"format": 5', '"format": 4'))
    with pytest.raises(vk.StoreError, match="has format 4"):
        vk.connect(f"embedded:{tmp_path / 's'}")


def test_another_open_store_notices_at_once(tmp_path: Path) -> None:
    url = f"embedded:{tmp_path / 's'}?sync=off"
    with vk.connect(url) as db, vk.connect(url) as other:
        fill(db)
        table = other.table("t")
        assert table.get(3)
        db.execute("ALTER STORE ADD NODE")
        assert [table.get(k) for k in range(ROWS)] == [{"k": k, "v": k} for k in range(ROWS)]
        assert table.get(ROWS) is None
        db.execute("ALTER STORE REMOVE NODE 0")
        table.put_many([{"k": k, "v": -k} for k in range(ROWS + 1)])
        assert rows_of(db) == rows_of(other) == {k: -k for k in range(ROWS + 1)}
        keep_up(other)
        assert wrong(db) == []


def test_rows_that_have_come_to_one_node_are_a_group_to_an_open_store_that_knows_them_on_two(db: vk.Database) -> None:
    fill(db, 40)
    while len(db.store.parts(1)) < 2:
        db.execute("ALTER STORE ADD NODE")
    with vk.connect(db.url) as other:
        assert len(other.store.parts(1)) == 2
        db.execute("ALTER STORE REMOVE NODE 1")
        with other.write() as group:
            for k in range(40):
                group.put("t", k, {"v": -k})
        assert rows_of(db) == {k: -k for k in range(40)}


def test_an_epoch_has_the_changes_of_a_row_from_one_stream(db: vk.Database) -> None:
    """Written at one node, moved, written at the other: in two epochs, whatever their size."""
    fill(db, 50)
    keep_up(db)
    for round_ in range(3):
        db.table("t").put_many([{"k": k, "v": 10 * round_ + 1} for k in range(50)])
        db.execute("ALTER STORE ADD NODE")
        db.table("t").delete_many(range(0, 50, 2))
        db.table("t").put_many([{"k": k, "v": 10 * round_ + 2} for k in range(0, 50, 4)])
    seen: list[dict[bytes, set[str]]] = []
    start = db.store.read_epoch_record().positions
    while start != (stop := db.store.cut(start, changes_max=1_000_000, bytes_max=1 << 40).positions):
        seen.append({})
        for stream, end in stop.items():
            for _, batch in db.store.read_log(stream, start.get(stream, 0), end):
                for key in batch["key"].to_pylist():
                    seen[-1].setdefault(key, set()).add(stream)
        start = stop
    assert start == db.store.ends()
    assert len(seen) >= 4
    assert all(len(streams) == 1 for epoch in seen for streams in epoch.values())
    keep_up(db)
    assert wrong(db) == []


@pytest.mark.parametrize("db", [url for url in STORES.values() if "before_images=off" not in url], indirect=True)
def test_a_table_is_read_as_of_any_cut_across_moves(db: vk.Database) -> None:
    """With before-images: a plain log cannot be undone."""
    fill(db, 100)
    cuts = []
    for round_ in range(3):
        cut = db.store.cut({}, changes_max=1 << 40, bytes_max=1 << 40)
        while cut.positions != db.store.ends():
            cut = db.store.cut(cut.positions, changes_max=1 << 40, bytes_max=1 << 40)
        cuts.append((cut.positions, sorted(scan_rows(db.store, 1, b"", None))))
        db.execute("ALTER STORE ADD NODE")
        db.table("t").put_many([{"k": k, "v": round_} for k in range(round_, 100, 5)])
        db.table("t").delete(round_ * 7)
    for positions, rows in cuts:
        found = [
            pair
            for part in db.store.parts(1)
            for batch in db.store.scan_as_of(1, part, positions)
            for pair in zip(batch["key"].to_pylist(), batch["row"].to_pylist(), strict=True)
        ]
        assert sorted(found) == rows


def half_filled(db: vk.Database) -> Coordinator:
    """A view of which a part is filled, and what fills it."""
    coordinator = Coordinator(db.store, HereRunner(db.store), limits=EpochLimits(rows=100))
    assert coordinator.step() is not None
    return coordinator


def test_no_row_moves_while_a_view_is_being_filled(tmp_path: Path) -> None:
    with vk.connect(f"embedded:{tmp_path / 's'}?sync=off&busy_timeout=0.2") as db:
        fill(db)
        coordinator = half_filled(db)
        assert db.store.read_epoch_record().filling
        with pytest.raises(StoreBusy, match="being filled"):
            db.execute("ALTER STORE ADD NODE")
        with pytest.raises(InputError, match="ADD NODE was interrupted"):
            db.execute("ALTER STORE REMOVE NODE 0")
        assert [node.state for node in db.status().nodes] == ["in use", "being added"]
        coordinator.catch_up()
        assert wrong(db) == []

        db.execute("ALTER STORE ADD NODE")  # goes on with the same node

        assert [node.state for node in db.status().nodes] == ["in use", "in use"]
        keep_up(db)
        assert wrong(db) == []


def test_an_epoch_that_was_planned_before_a_move_fills_nothing_from_the_rows_that_moved(
    db: vk.Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The fill is planned over the nodes of before, then rows move, then the epoch begins: it must be planned anew."""
    fill(db)
    coordinator = Coordinator(db.store, HereRunner(db.store), limits=EpochLimits(rows=100))
    begin, added = coordinator._begin, []

    def begin_late(planned: object) -> object:
        if not added:
            added.append(db.execute("ALTER STORE ADD NODE"))
        return begin(planned)

    monkeypatch.setattr(coordinator, "_begin", begin_late)
    coordinator.catch_up()

    assert added
    assert wrong(db) == []
    assert coordinator.has_reached(db.store.ends())


def beside(db: vk.Database, work: Callable[[], object]) -> None:
    """Run `work` while threads update every row again and again, each with a number that grows."""
    enough, start = threading.Event(), threading.Barrier(3)
    failures: list[BaseException] = []

    def update(first: int) -> None:
        start.wait()
        number = 0
        try:
            while not enough.is_set() or number < 3:
                number += 1
                for k in range(first, 60, 2):
                    db.table("t").put(k, {"v": number})
                    found = db.table("t").get(k)
                    assert found == {"k": k, "v": number}
        except BaseException as error:
            failures.append(error)

    writers = [threading.Thread(target=update, args=(first,)) for first in (0, 1)]
    for writer in writers:
        writer.start()
    start.wait()
    try:
        work()
    finally:
        enough.set()
        for writer in writers:
            writer.join()
    assert failures == []


def test_rows_that_are_written_while_nodes_come_and_go_keep_their_order_and_none_is_lost(db: vk.Database) -> None:
    db.execute(VIEWS)
    db.table("t").put_many([{"k": k, "v": 0} for k in range(60)])
    coordinator = keep_up(db)
    seen: list[tuple[int, dict[int, int]]] = []

    def alter() -> None:
        first = max(db.store.parts(1)) + 1
        for number in range(2):
            db.execute("ALTER STORE ADD NODE")
            while len(seen) < 4 * (number + 1) and coordinator.step() is not None:
                seen.append((db.epoch, {row["k"]: row["v"] for row in db.view("copy").scan()}))
            assert len(rows_of(db)) == 60
            db.execute(f"ALTER STORE REMOVE NODE {first + number}")

    beside(db, alter)
    while coordinator.step() is not None:
        seen.append((db.epoch, {row["k"]: row["v"] for row in db.view("copy").scan()}))
    assert wrong(db) == []
    for (_, earlier), (_, later) in zip(seen, seen[1:], strict=False):
        assert earlier.keys() == later.keys()
        assert all(earlier[k] <= later[k] for k in earlier)
