"""Tables of HBase as users have them: mapped twice, with large values, with the longest row keys, disabled in the midst."""

from __future__ import annotations

from collections.abc import Iterator
from copy import deepcopy
from pathlib import Path
from typing import Any
from unittest import mock

import pyarrow as pa
import pytest

import viewkeeper as vk
from tests.support import wal_files as wal
from tests.support.running import HereRunner, keep_up
from tests.support.small_hbase import SmallHBase
from viewkeeper.client.arguments import key_bytes
from viewkeeper.coordinator.backfill import reset_views
from viewkeeper.coordinator.coordinator import Coordinator
from viewkeeper.model.stored_rows import RowWrites
from viewkeeper.settings import EpochLimits
from viewkeeper.stores.hbase import snapshot_copy
from viewkeeper.stores.hbase.client import Refused
from viewkeeper.stores.hbase.wal.wal_log import WalLog

CELL_BYTES_MAX, ROW_KEY_BYTES_MAX = 10 << 20, 32_767  # in HBase
LONGEST = "k" * ROW_KEY_BYTES_MAX


@pytest.fixture
def hbase(tmp_path: Path) -> Iterator[SmallHBase]:
    """It refuses what is too large, as HBase does."""
    made = SmallHBase(tmp_path, servers=3)
    for name in (b"orders", b"items"):
        made.create(name, [b"f"], [b"m"])
    cells_put, scanned = made._cells_put, made._getScannerResults

    def put(table: bytes, asked: Any, not_before: int = 0) -> list[wal.Cell]:
        if any(len(cell.value or b"") > CELL_BYTES_MAX for cell in asked.columnValues):
            raise Refused("KeyValue size too large")
        return cells_put(table, asked, not_before)

    def scan(table: bytes, asked: Any, count: int) -> list[Any]:
        if max(len(asked.startRow or b""), len(asked.stopRow or b"")) > ROW_KEY_BYTES_MAX:
            raise Refused("a bound of a scan is too long")
        return scanned(table, asked, count)

    with made.replying(), mock.patch.multiple(made, _cells_put=put, _getScannerResults=scan):
        yield made


@pytest.fixture
def db(hbase: SmallHBase) -> Iterator[vk.Database]:
    with vk.connect(hbase.url) as opened:
        yield opened


def map_table(db: vk.Database, name: str = "orders", *, of: str = "", x: str = "BIGINT") -> None:
    db.execute(
        f"CREATE TABLE {name} (id STRING PRIMARY KEY, x {x}) USING hbase OPTIONS (table '{of or name}', family 'f')"
    )
    total = "SUM(x)" if x == "BIGINT" else "SUM(LENGTH(x))"
    db.execute(f"CREATE MATERIALIZED VIEW sum_{name} AS SELECT COUNT(*) AS n, {total} AS s FROM {name}")


def log(hbase: SmallHBase, row: str, stamp: int, value: bytes | None, *, table: bytes = b"orders") -> None:
    """A put, or a delete of that one version, which readers do not see yet."""
    kind = wal.DELETE if value is None else wal.PUT
    hbase.begin_write(table, [wal.Cell(row.encode(), b"f", b"x", stamp, kind, value or b"")])


def put(hbase: SmallHBase, row: str, value: int | bytes, *, table: bytes = b"orders") -> int:
    stamp = hbase.tick()
    log(hbase, row, stamp, value if isinstance(value, bytes) else b"%d" % value, table=table)
    hbase.settle()
    return stamp


def delete_version(hbase: SmallHBase, row: str, stamp: int) -> None:
    log(hbase, row, stamp, None)
    hbase.settle()


def total(db: vk.Database, name: str = "orders") -> tuple[object, ...]:
    (row,) = db.view(f"sum_{name}").scan()
    return row["n"], row["s"]


def test_a_table_that_is_mapped_once_more_behind_a_backlog_shows_what_deleted_versions_uncover(
    hbase: SmallHBase, db: vk.Database
) -> None:
    map_table(db)
    keep_up(db)
    pipeline = Coordinator(db.store, HereRunner(db.store), limits=EpochLimits(changes=2))
    for number in range(4):
        hbase.ms += 100
        put(hbase, f"b{number}", 1)
    hbase.ms += 100
    delete_version(hbase, "a", put(hbase, "a", 5))
    pipeline.step()
    assert total(db)[0] < 4
    map_table(db, "again", of="orders")
    pipeline.catch_up()
    assert (total(db), total(db, "again")) == ((4, 4), (4, 4))


def test_a_put_and_the_delete_of_its_version_that_nobody_sees_yet_hide_no_earlier_put(
    hbase: SmallHBase, db: vk.Database
) -> None:
    map_table(db)
    put(hbase, "z", 1)
    pipeline = keep_up(db)
    lower, upper = hbase.tick(), hbase.tick()
    log(hbase, "a", lower, b"3")
    log(hbase, "a", upper, b"5")
    log(hbase, "a", upper, None)
    with mock.patch.object(snapshot_copy.time, "sleep", lambda seconds: None):
        pipeline.catch_up()
    assert total(db) == (2, 4)


def test_a_delete_from_before_its_table_was_truncated_is_not_waited_for(hbase: SmallHBase, db: vk.Database) -> None:
    map_table(db)
    put(hbase, "b", 1)
    pipeline = keep_up(db)
    delete_version(hbase, "a", put(hbase, "a", 5))
    hbase.tables[b"orders"].clear()
    put(hbase, "c", 1)
    pipeline.catch_up()
    assert db.view("sum_orders").get()["n"] == 2  # until a repair, as status says


@pytest.mark.parametrize(("rows", "size"), [(2_000, 6_000), (3, 4 << 20), (2, (5 << 20) + 1)])
def test_rows_of_which_a_chunk_would_be_larger_than_a_cell_of_hbase_are_staged(
    hbase: SmallHBase, db: vk.Database, rows: int, size: int
) -> None:
    for number in range(rows):
        log(hbase, f"a{number:05}", hbase.tick(), b"v" * size)
    hbase.settle()
    map_table(db, x="STRING")
    keep_up(db)
    assert total(db) == (rows, rows * size)


def test_a_staged_row_that_no_chunk_holds_is_left_out_until_it_is_put_again(hbase: SmallHBase, db: vk.Database) -> None:
    put(hbase, "a", b"v" * CELL_BYTES_MAX)
    put(hbase, "b", b"w")
    map_table(db, x="STRING")
    pipeline = keep_up(db)
    assert total(db) == (1, 1)
    put(hbase, "a", b"ww")
    pipeline.catch_up()
    assert total(db) == (2, 3)


def test_large_values_under_many_deleted_versions_are_read_again(hbase: SmallHBase, db: vk.Database) -> None:
    map_table(db, x="STRING")
    pipeline = keep_up(db)
    stamps = {}
    for number in range(1_200):
        log(hbase, row := f"a{number:05}", hbase.tick(), b"v" * 10_000)
        log(hbase, row, stamp := hbase.tick(), b"w")
        stamps[row] = stamp
    hbase.settle()
    pipeline.catch_up()
    for row, stamp in stamps.items():
        log(hbase, row, stamp, None)
    hbase.settle()
    pipeline.catch_up()
    assert total(db) == (1_200, 12_000_000)


def test_the_longest_row_keys_are_left_out_and_stop_nothing(
    hbase: SmallHBase, db: vk.Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(snapshot_copy, "_CHUNK_ROWS", 1)
    last = "\x7f" * ROW_KEY_BYTES_MAX
    for row in ("a", LONGEST, "l", last):
        put(hbase, row, 1)
    map_table(db)
    pipeline = keep_up(db)
    assert total(db) == (2, 2)
    for row in (LONGEST, last):
        delete_version(hbase, row, put(hbase, row, 5))
    pipeline.catch_up()
    assert total(db) == (2, 2)
    with mock.patch("viewkeeper.stores.hbase.table_requests._ROWS_MAX", 2):
        assert [row["id"] for row in db.table("orders").scan()] == ["a", "l"]


def test_a_disabled_table_of_which_a_version_was_deleted_stops_no_other(hbase: SmallHBase, db: vk.Database) -> None:
    map_table(db)
    map_table(db, "items")
    put(hbase, "a", 1)
    pipeline = keep_up(db)
    delete_version(hbase, "a", put(hbase, "a", 5))
    hbase.tables[b"orders"].is_enabled = False
    put(hbase, "i", 1, table=b"items")
    pipeline.catch_up()
    assert total(db, "items") == (1, 1)


def test_a_table_that_is_disabled_before_it_is_staged_stops_no_other(hbase: SmallHBase, db: vk.Database) -> None:
    map_table(db)
    put(hbase, "a", 1)
    pipeline = keep_up(db)
    map_table(db, "items")
    hbase.tables[b"items"].is_enabled = False
    put(hbase, "b", 1)
    pipeline.catch_up()
    assert total(db) == (2, 2)
    hbase.tables[b"items"].is_enabled = True
    put(hbase, "i", 1, table=b"items")
    pipeline.catch_up()
    assert total(db, "items") == (1, 1)


@pytest.mark.parametrize("is_imported", [False, True], ids=["an older cell", "another one of the same time"])
def test_a_repair_takes_over_cells_that_are_no_newer_than_those_that_it_knows(
    hbase: SmallHBase, db: vk.Database, is_imported: bool
) -> None:
    """A table that was restored or made anew has them; what is put from then on may have lower numbers in its log."""
    map_table(db)
    schema = db.table("orders").schema
    stamp = put(hbase, "a", 3)
    then = deepcopy(hbase.tables[b"orders"].rows)
    if is_imported:
        log(hbase, "a", stamp, b"5")
        hbase.settle()
    else:
        put(hbase, "a", 5)
    hbase.sequence += 1_000
    put(hbase, "b", 1)
    keep_up(db)
    hbase.tables[b"orders"].rows[b"a"], hbase.sequence = then[b"a"], 1
    key = key_bytes("orders", schema.key_columns, ["a"])
    for _ in range(2):
        db.store.write([RowWrites(schema.id, [key], lambda rows: rows, repeats=True)], apart=True)  # as a repair does
        keep_up(db)
        assert total(db) == (2, 4)
    hbase.ms += 1_000
    put(hbase, "a", 7)
    keep_up(db)
    assert total(db) == (2, 8)


@pytest.mark.parametrize("sizes", [(8_200, 4_000), (3_000, 3_000, 3_000)], ids=["one is large", "all are"])
def test_cells_that_are_staged_again_are_in_chunks_that_hbase_takes(
    hbase: SmallHBase, db: vk.Database, sizes: tuple[int, ...]
) -> None:
    map_table(db, x="STRING")
    values = {f"a{place}": b"v" * (size << 10) for place, size in enumerate(sizes)}
    for row, value in values.items():
        put(hbase, row, value)
    newer = {row: put(hbase, row, b"w") for row in values}
    keep_up(db)
    for row, stamp in newer.items():
        log(hbase, row, stamp, None)
    keep_chunk, chunks = snapshot_copy.StagedChunks.put, list[pa.Table]()

    def keep(self: object, key: object, cells: pa.Table) -> None:
        chunks.append(cells)
        keep_chunk(self, key, cells)

    with mock.patch.object(snapshot_copy.StagedChunks, "put", keep):
        keep_up(db)
    assert sum(map(len, chunks)) == len(sizes) and max(chunk.nbytes for chunk in chunks) < 10 << 20
    assert total(db) == (len(sizes), sum(map(len, values.values())))


def test_a_delete_that_was_compacted_with_its_version_is_not_waited_for(hbase: SmallHBase, db: vk.Database) -> None:
    map_table(db)
    put(hbase, "a", 3)
    deleted = put(hbase, "a", 5)
    pipeline = keep_up(db)
    delete_version(hbase, "a", deleted)
    hbase.tables[b"orders"].compact(hbase.ms)
    with mock.patch.object(snapshot_copy.time, "sleep", lambda seconds: None):
        pipeline.catch_up()
    assert total(db) == (1, 3)


def test_a_value_that_no_client_put_is_never_put_to_await_writers(hbase: SmallHBase, db: vk.Database) -> None:
    """The test-and-set that HBase is asked for is met by no row, whether the row is there or not."""
    map_table(db)
    kept = put(hbase, "a", 3)
    for row in ("a", "gone"):
        delete_version(hbase, row, put(hbase, row, 5))
    keep_up(db)
    for row in ("a", "gone"):
        delete_version(hbase, row, put(hbase, row, 7))
    hbase.tables[b"orders"].compact(hbase.ms)
    keep_up(db)
    assert hbase.seen(b"orders") == {b"a": {(b"f", b"x"): b"3"}}
    assert [stored.cell.timestamp for stored in hbase.written(b"orders", b"a")] == [kept]
    assert hbase.written(b"orders", b"gone") == []


def test_what_a_deleted_version_uncovers_is_read_also_where_the_table_cannot_be_written(
    hbase: SmallHBase, db: vk.Database
) -> None:
    map_table(db)
    put(hbase, "a", 3)
    delete_version(hbase, "a", put(hbase, "a", 5))
    reply = hbase.reply

    def refusing(*request: Any) -> Any:
        if request[0] == "checkAndMutate" and request[1] == b"orders":
            raise Refused("the table is read-only")
        return reply(*request)

    with mock.patch.object(hbase, "reply", refusing):
        keep_up(db)
    assert total(db) == (1, 3)


def test_a_delete_that_is_there_twice_uncovers_what_was_put_between(hbase: SmallHBase, db: vk.Database) -> None:
    """The second one, and the put before it, cannot be seen yet, while the first one can."""
    map_table(db)
    stamp = put(hbase, "a", 3)
    delete_version(hbase, "a", stamp)
    pipeline = keep_up(db)
    log(hbase, "a", stamp + 100, b"9")
    log(hbase, "a", stamp, None)
    with mock.patch.object(snapshot_copy.time, "sleep", lambda seconds: None):
        pipeline.catch_up()
    assert total(db) == (1, 9)


def test_a_repair_leaves_what_a_client_puts_meanwhile(hbase: SmallHBase, db: vk.Database) -> None:
    map_table(db)
    put(hbase, "a", 1)
    pipeline = keep_up(db)
    schema, done = db.table("orders").schema, []

    def reached(request: str, asked: object) -> None:
        if (request, asked) == ("putMultiple", b"orders") and not done:
            done.append(put(hbase, "a", 9))
            hbase.tick()

    hbase.reached = reached
    key = key_bytes("orders", schema.key_columns, ["a"])
    db.store.write([RowWrites(schema.id, [key], lambda rows: rows, repeats=True)], apart=True)  # as a repair does
    pipeline.catch_up()
    assert done and hbase.seen(b"orders")[b"a"] == {(b"f", b"x"): b"9"}
    assert total(db) == (1, 9)


def test_a_server_that_logs_its_last_while_it_is_noted_as_ended_is_read_to_its_end(
    hbase: SmallHBase, db: vk.Database
) -> None:
    """The server has no region any more; between the scan of its log and the look at what has ended, it ends."""
    region, idle = hbase.tables[b"orders"].region(b"a"), hbase.servers[2]
    hbase._homes[region] = idle
    map_table(db)
    put(hbase, "a", 1)
    pipeline = keep_up(db)
    hbase._homes = {name: hbase.servers[0] if home is idle else home for name, home in hbase._homes.items()}
    hbase.move(b"orders", b"a")
    hbase._homes[region] = hbase.servers[0]
    real, done = WalLog._end, []

    def end(self: WalLog, tails: Any, start: Any) -> None:
        if not done and {tail.stream: tail.end for tail in tails}[idle.name] == start.get(idle.name):
            done.append(True)
            idle.write(wal.TRAILER)
            for number in range(len(idle.files)):
                idle.archive(number)
            idle.folder.rmdir()
        real(self, tails, start)

    with mock.patch.object(WalLog, "_end", end):
        for row in "bcdefgh":
            put(hbase, row, 1)
            pipeline.catch_up()
    assert done and total(db) == (8, 8)
    for file in idle.files:  # all of it is read, and HBase deletes it after ten minutes
        file.unlink()
    put(hbase, "z", 1)
    pipeline.catch_up()
    assert total(db) == (9, 9)


def fill(hbase: SmallHBase, db: vk.Database, count: int) -> None:
    db.execute("CREATE TABLE orders (id STRING PRIMARY KEY, x BIGINT) USING hbase OPTIONS (table 'orders', family 'f')")
    db.execute("CREATE MATERIALIZED VIEW v AS SELECT id, x FROM orders WHERE x > 0")
    for number in range(count):
        put(hbase, f"a{number:04}", 1)
    keep_up(db)


@pytest.mark.parametrize("is_pinned", [False, True])
def test_a_snapshot_over_which_views_are_filled_anew_is_stale(
    hbase: SmallHBase, db: vk.Database, is_pinned: bool
) -> None:
    fill(hbase, db, 6)
    with vk.connect(hbase.url) as other, other.snapshot() as snapshot:
        view = snapshot.view("v")
        assert len(list(view.scan())) == 6
        if is_pinned:
            view._held[0].keep()
        reset_views(db.store)
        keep_up(db)
        for read in (lambda: list(view.scan()), lambda: view.get("a0001")):
            with pytest.raises(vk.StaleRead):
                read()
        other.store._site.tables.look()
        with pytest.raises(vk.StaleRead):
            list(view.scan())


def test_a_scan_in_whose_midst_views_are_filled_anew_is_stale(hbase: SmallHBase, db: vk.Database) -> None:
    fill(hbase, db, 700)
    with vk.connect(hbase.url) as other:
        rows = other.view("v").scan()
        next(rows)
        reset_views(db.store)
        keep_up(db)
        with pytest.raises(vk.StaleRead):
            list(rows)


def test_a_put_from_before_views_were_filled_anew_shows_nothing_when_it_is_done_late(
    hbase: SmallHBase, db: vk.Database
) -> None:
    fill(hbase, db, 2)
    sent: list[tuple[Any, ...]] = []
    reply = hbase.reply

    def replied(*request: Any) -> Any:
        sent.extend([request] if request[0] == "putMultiple" and request[1].startswith(b"views:view.") else [])
        return reply(*request)

    with vk.connect(hbase.url) as other:
        with mock.patch.object(hbase, "reply", replied):
            put(hbase, "c", 1)
            keep_up(db)
        assert len(list(other.view("v").scan())) == 3  # it knows the store's tables as they were before
        hbase.begin_write(b"orders", [wal.Cell(b"c", b"f", b"", hbase.tick(), wal.DELETE_FAMILY, b"")])
        hbase.settle()
        reset_views(db.store)
        keep_up(db)
        put(hbase, "d", 1)
        keep_up(db)
        for request in sent:
            reply(*request)
        for one in (db, other):
            assert [row["id"] for row in one.view("v").scan()] == ["a0000", "a0001", "d"]
            assert one.view("v").get("c") is None
