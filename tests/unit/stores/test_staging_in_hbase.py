"""Rows that a table of HBase had before it was mapped, and those that others write while they are staged: none is lost.

Over a small HBase in this process, so that others write exactly when the test says.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from unittest import mock

import pytest

import viewkeeper as vk
from tests.support import wal_files as wal
from tests.support.running import HereRunner, Interrupted, RunThenDie, keep_up
from tests.support.small_hbase import SmallHBase
from viewkeeper.coordinator.anew import start_views_anew
from viewkeeper.coordinator.coordinator import Coordinator
from viewkeeper.model.positions import Cut
from viewkeeper.settings import EpochLimits


@pytest.fixture
def hbase(tmp_path: Path) -> Iterator[SmallHBase]:
    made = SmallHBase(tmp_path)
    for name in (b"orders", b"items"):
        made.create(name, [b"f"], [b"m"])
    with made.replying():
        yield made


@pytest.fixture
def db(hbase: SmallHBase) -> Iterator[vk.Database]:
    with vk.connect(hbase.url) as opened:
        yield opened


def put(hbase: SmallHBase, row: str, x: int, *, table: bytes = b"orders", stamp: int | None = None) -> int:
    """Returns its timestamp."""
    stamp = hbase.tick() if stamp is None else stamp
    hbase.begin_write(table, [wal.Cell(row.encode(), b"f", b"x", stamp, wal.PUT, str(x).encode())])
    hbase.settle()
    return stamp


def delete_version(hbase: SmallHBase, row: str, stamp: int, *, table: bytes = b"orders") -> None:
    hbase.begin_write(table, [wal.Cell(row.encode(), b"f", b"x", stamp, wal.DELETE, b"")])
    hbase.settle()


def at(hbase: SmallHBase, request: str, asked: bytes, act: Callable[[], object]) -> list[bool]:
    """Act ahead of the first such request to a table; returns a list that is filled then."""
    done: list[bool] = []

    def reached(*found: object) -> None:
        if found == (request, asked) and not done:
            done.append(True)
            act()

    hbase.reached = reached
    return done


def map_table(db: vk.Database, name: str = "orders") -> None:
    db.execute(
        f"CREATE TABLE {name} (id STRING PRIMARY KEY, x BIGINT) USING hbase OPTIONS (table '{name}', family 'f')"
    )
    db.execute(f"CREATE MATERIALIZED VIEW sum_{name} AS SELECT COUNT(*) AS n, SUM(x) AS s FROM {name}")


def total(db: vk.Database, name: str = "orders") -> tuple[object, ...]:
    (row,) = db.view(f"sum_{name}").scan()
    return row["n"], row["s"]


def write_some(hbase: SmallHBase, table: bytes = b"orders") -> None:
    for row in ("a", "b", "z"):
        put(hbase, row, 10, table=table)


def test_what_is_written_while_the_first_rows_are_staged_is_in_the_view(hbase: SmallHBase, db: vk.Database) -> None:
    put(hbase, "a", 1)
    put(hbase, "n", 1)
    map_table(db)
    done = at(hbase, "checkAndMutate", b"views:staged", lambda: write_some(hbase))  # the rows have been read
    keep_up(db)
    assert done and total(db) == (4, 31)


@pytest.mark.parametrize("is_first", [True, False])
def test_what_is_logged_and_not_visible_yet_when_a_staging_begins_is_in_the_view(
    hbase: SmallHBase, db: vk.Database, is_first: bool
) -> None:
    if not is_first:
        map_table(db, "items")
        keep_up(db)
    hbase.begin_write(b"orders", [wal.Cell(b"a", b"f", b"x", hbase.tick(), wal.PUT, b"7")])
    if not is_first:  # the store reads logs already, and all that is in them is committed
        hbase.begin_write(b"items", [wal.Cell(b"i", b"f", b"x", hbase.tick(), wal.PUT, b"5")])
        keep_up(db)
    map_table(db)
    keep_up(db)
    assert total(db) == (1, 7)


def test_a_table_that_is_mapped_later_loses_nothing_that_is_written_while_it_is_staged(
    hbase: SmallHBase, db: vk.Database
) -> None:
    map_table(db)
    keep_up(db)
    put(hbase, "a", 1, table=b"items")
    map_table(db, "items")
    done = at(hbase, "checkAndMutate", b"views:staged", lambda: write_some(hbase, b"items"))
    keep_up(db)
    assert done and total(db, "items") == (3, 30)


def test_a_rebuild_loses_nothing_that_is_written_while_tables_are_staged_anew(
    hbase: SmallHBase, db: vk.Database
) -> None:
    map_table(db)
    put(hbase, "a", 1)
    keep_up(db)
    start_views_anew(db.store)
    done = at(hbase, "checkAndMutate", b"views:staged", lambda: write_some(hbase))
    keep_up(db)
    assert done and total(db) == (3, 30)


def test_a_version_that_was_deleted_before_its_table_was_mapped_stays_deleted(
    hbase: SmallHBase, db: vk.Database
) -> None:
    """The pipeline has looked at that part of the log before, for other tables."""
    map_table(db)
    put(hbase, "o", 1)
    pipeline = keep_up(db)
    delete_version(hbase, "a", put(hbase, "a", 5, table=b"items"), table=b"items")
    pipeline.step()
    map_table(db, "items")
    pipeline.catch_up()
    assert total(db, "items") == (0, None)


def test_a_version_that_was_deleted_stays_deleted_if_its_table_is_mapped_between_cut_and_plan(
    hbase: SmallHBase, db: vk.Database
) -> None:
    map_table(db)
    pipeline = keep_up(db)
    delete_version(hbase, "a", put(hbase, "a", 5, table=b"items"), table=b"items")
    put(hbase, "o", 1)
    real = db.store.cut

    def cut(*args: object, **limits: int) -> Cut:
        found = real(*args, **limits)
        if len(db.catalog().tables) == 1:
            map_table(db, "items")
        return found

    with mock.patch.object(db.store, "cut", cut):
        pipeline.catch_up()
    assert (total(db), total(db, "items")) == ((1, 1), (0, None))


def test_an_epoch_in_flight_passes_over_a_table_that_was_mapped_since(hbase: SmallHBase, db: vk.Database) -> None:
    map_table(db)
    keep_up(db)
    put(hbase, "a", 1, table=b"items")
    put(hbase, "a", 1)
    with suppress(Interrupted):
        Coordinator(db.store, RunThenDie(HereRunner(db.store))).step()
    map_table(db, "items")
    keep_up(db)
    assert (total(db), total(db, "items")) == ((1, 1), (1, 1))


def test_a_put_after_a_deleted_version_and_older_than_it_is_seen_whatever_an_epoch_has_room_for(
    hbase: SmallHBase, db: vk.Database
) -> None:
    map_table(db)
    map_table(db, "items")
    for number in range(8):
        put(hbase, f"b{number}", 1)
    with mock.patch("viewkeeper.stores.hbase.staging._CHUNK_ROWS", 1):  # each in a chunk that waits
        pipeline = Coordinator(db.store, HereRunner(db.store), limits=EpochLimits(changes=1))
        pipeline.step()
        newer = put(hbase, "a", 5, table=b"items", stamp=hbase.tick() + 100)
        pipeline.step()
        delete_version(hbase, "a", newer, table=b"items")
        pipeline.step()
        put(hbase, "a", 7, table=b"items")
        pipeline.catch_up()
    assert (total(db), total(db, "items")) == ((8, 8), (1, 7))


def test_reading_begins_at_a_log_that_has_just_been_rolled(hbase: SmallHBase, db: vk.Database) -> None:
    """An epoch that another process has begun has nothing of that log."""
    put(hbase, "a", 1)
    map_table(db)
    for server in hbase.servers:
        server.roll()
    with suppress(Interrupted):
        Coordinator(db.store, RunThenDie(HereRunner(db.store))).step()
    with vk.connect(hbase.url) as other:
        keep_up(other)
        assert total(other) == (1, 1)


def test_a_new_store_has_four_partitions_and_one_that_is_there_keeps_its_own(hbase: SmallHBase) -> None:
    url = hbase.url.replace("partitions=2&", "")
    with vk.connect(url.replace("/views", "/fresh")) as fresh:
        assert fresh.store.partitions == 4
    with vk.connect(f"{url}&partitions=8") as made:
        assert made.store.partitions == 8
    with vk.connect(url) as again:
        assert again.store.partitions == 8
