"""Rows that a table of HBase had before it was mapped, and those that others write while they are staged: none is lost.

Over a small HBase in this process, so that others write exactly when the test says.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from unittest import mock

import pytest

import viewkeeper as vk
from tests.support import wal_files as wal
from tests.support.running import HereRunner, Interrupted, RunThenDie, keep_up
from tests.support.small_hbase import SmallHBase
from viewkeeper.coordinator.backfill import reset_views
from viewkeeper.coordinator.coordinator import Coordinator
from viewkeeper.errors import Fenced, NewerFormat, PipelineRunning, PositionLost
from viewkeeper.events import Committed
from viewkeeper.model import epochs
from viewkeeper.model.positions import Cut
from viewkeeper.ports.meta import change_epoch_record
from viewkeeper.settings import EpochLimits
from viewkeeper.stores.hbase import meta, snapshot_copy
from viewkeeper.stores.hbase.meta import PipelineLease

WHOLE = (None, None, 1, 1 << 62)  # of a row all columns, at any time


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
    reset_views(db.store)
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
    with mock.patch("viewkeeper.stores.hbase.snapshot_copy._CHUNK_ROWS", 1):  # each in a chunk that waits
        pipeline = Coordinator(db.store, HereRunner(db.store), limits=EpochLimits(changes=1))
        pipeline.step()
        newer = put(hbase, "a", 5, table=b"items", stamp=hbase.tick() + 100)
        pipeline.step()
        delete_version(hbase, "a", newer, table=b"items")
        pipeline.step()
        put(hbase, "a", 7, table=b"items")
        pipeline.catch_up()
    assert (total(db), total(db, "items")) == ((8, 8), (1, 7))


def test_what_a_deleted_version_uncovers_is_not_the_version_itself_however_late_readers_see_the_delete(
    hbase: SmallHBase, db: vk.Database
) -> None:
    map_table(db)
    put(hbase, "a", 3)
    deleted = put(hbase, "a", 5)
    keep_up(db)
    with mock.patch.object(snapshot_copy.time, "sleep", lambda seconds: None):
        hbase.begin_write(b"orders", [wal.Cell(b"a", b"f", b"x", deleted, wal.DELETE, b"")])
        keep_up(db)
    assert total(db) == (1, 3)
    hbase.settle()
    put(hbase, "b", 1)
    keep_up(db)
    assert total(db) == (2, 4)


def test_what_writes_that_nobody_sees_yet_uncover_is_waited_for(hbase: SmallHBase, db: vk.Database) -> None:
    """A version is deleted, another one put, and deleted too: until all is seen, the first one seems to be uncovered."""
    map_table(db)
    put(hbase, "a", 3)
    first = put(hbase, "a", 5)
    pipeline = keep_up(db)
    second = hbase.tick()
    hbase.begin_write(b"orders", [wal.Cell(b"a", b"f", b"x", first, wal.DELETE, b"")])
    hbase.begin_write(b"orders", [wal.Cell(b"a", b"f", b"x", second, wal.PUT, b"7")])
    hbase.begin_write(b"orders", [wal.Cell(b"a", b"f", b"x", second, wal.DELETE, b"")])
    with mock.patch.object(snapshot_copy.time, "sleep", lambda seconds: None):
        pipeline.catch_up()
    assert total(db) == (1, 3)


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


def begun(hbase: SmallHBase, db: vk.Database) -> tuple[str, ...]:
    """Some rows are staged and in an epoch whose pipeline dies after the work; returns the chunks that it named."""
    put(hbase, "a", 1)
    put(hbase, "n", 1)
    map_table(db)
    with suppress(Interrupted):
        Coordinator(db.store, RunThenDie(HereRunner(db.store))).step()
    inflight = db.store.read_epoch_record().inflight
    assert inflight is not None and len(inflight.stop.staged) == 2  # a chunk of each region
    return inflight.stop.staged


def test_an_epoch_reads_its_chunks_as_often_as_it_is_run_and_they_go_when_it_is_committed(
    hbase: SmallHBase, db: vk.Database
) -> None:
    named = begun(hbase, db)
    put(hbase, "a", 5)
    assert db.store.staged() == dict.fromkeys(named, db.table("orders").schema.id)
    read = [batch for _, batch in db.store.read_staged(named)]
    with vk.connect(hbase.url) as other:
        assert [batch for _, batch in other.store.read_staged(named)] == read
        (done, *_) = keep_up_all(other)
        assert done.changes == 2 and other.store.staged() == {}
        with pytest.raises(PositionLost, match=f"chunk {named[0]} of the rows that were staged is gone"):
            list(other.store.read_staged(named))
    assert total(db) == (2, 6)


def keep_up_all(db: vk.Database) -> list[Committed]:
    return Coordinator(db.store, HereRunner(db.store)).catch_up()


def test_chunks_whose_epoch_was_committed_by_one_that_died_are_deleted_and_not_taken_again(
    hbase: SmallHBase, db: vk.Database
) -> None:
    named = begun(hbase, db)
    with mock.patch.object(db.store, "drop_staged", side_effect=Interrupted), suppress(Interrupted):
        keep_up(db)
    assert set(db.store.staged()) == set(db.store.read_epoch_record().taken) == set(named)
    put(hbase, "b", 1)
    with vk.connect(hbase.url) as other, mock.patch.object(other.store, "read_staged") as read:
        keep_up(other)
        assert not read.called and other.store.staged() == {}
    assert (total(db), db.store.read_epoch_record().taken) == ((3, 3), ())


def test_an_epoch_is_committed_even_if_its_chunks_cannot_be_deleted_then(hbase: SmallHBase, db: vk.Database) -> None:
    named = begun(hbase, db)
    pipeline = Coordinator(db.store, HereRunner(db.store))
    with mock.patch.object(db.store, "drop_staged", side_effect=vk.StoreUnavailable("it does not reply")):
        done = pipeline.step()
    assert done is not None and set(db.store.staged()) == set(named)
    pipeline.step()
    assert db.store.staged() == {}


def test_an_epoch_that_is_given_up_leaves_its_chunks_to_the_next_one(hbase: SmallHBase, db: vk.Database) -> None:
    named = begun(hbase, db)
    owner = db.store.read_epoch_record().owner
    change_epoch_record(db.store, lambda record: epochs.abort(record, owner))
    assert set(db.store.staged()) == set(named)
    keep_up(db)
    assert (total(db), db.store.staged()) == ((2, 2), {})


def test_of_two_who_stage_the_same_part_one_goes_on_after_the_other(
    hbase: SmallHBase, db: vk.Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("viewkeeper.stores.hbase.snapshot_copy._CHUNK_ROWS", 1)
    for row in "abc":
        put(hbase, row, 1)
    map_table(db)
    table = db.table("orders").schema
    with vk.connect(hbase.url) as other:
        copy = other.store._staging  # in this thread, which has the small HBase to itself
        (first, _) = copy.parts(table, rows_max=1)
        done = at(hbase, "checkAndMutate", b"views:staged", lambda: copy.stage_part(first))
        while not db.store.stage(table, rows_max=2):
            pass
    batches = [batch for _, batch in db.store.read_staged(list(db.store.staged()))]
    assert done and [len(batch) for batch in batches] == [1, 1, 1]
    keep_up(db)
    assert total(db) == (3, 3)


def test_what_was_staged_for_a_copy_that_is_over_is_taken_in_by_nobody(hbase: SmallHBase, db: vk.Database) -> None:
    map_table(db)
    put(hbase, "a", 1)
    assert db.store.stage(db.table("orders").schema, rows_max=9) and db.store.staged()
    hbase.begin_write(b"orders", [wal.Cell(b"a", b"f", b"", hbase.tick(), wal.DELETE_FAMILY, b"")])
    hbase.settle()
    hbase.tables[b"orders"].compact(hbase.ms)  # nobody can tell what was deleted
    reset_views(db.store)
    assert db.store.staged() == {}
    keep_up(db)
    assert total(db) == (0, None)
    assert not hbase.tables[b"views:staged"].visible(struct.pack(">IIH", db.table("orders").schema.id, 1, 0), *WHOLE)


def test_a_chunk_that_is_put_once_more_when_it_is_committed_stays_away(hbase: SmallHBase, db: vk.Database) -> None:
    map_table(db)
    keep_up(db)
    requests = list[tuple[object, ...]]()
    real = hbase.reply

    def reply(*request: object) -> object:
        requests.append(request)
        return real(*request)

    with mock.patch.object(hbase, "reply", reply):
        delete_version(hbase, "a", put(hbase, "a", 5))
        keep_up(db)
    (again,) = [request for request in requests if request[:2] == ("put", b"views:staged")]
    hbase.tick()
    real(*again)
    assert (db.store.staged(), total(db)) == ({}, (0, None))


@pytest.mark.parametrize(("stored", "error"), [(None, vk.StoreError), (b"1", vk.StoreError), (b"9", NewerFormat)])
def test_a_store_of_another_format_is_refused(
    hbase: SmallHBase, db: vk.Database, stored: bytes | None, error: type[vk.StoreError]
) -> None:
    if stored is None:
        db.store._rows.delete(b"store", {"format": hbase.tick()})
    else:
        db.store._rows.put(b"store", {"format": stored})
    with pytest.raises(error, match=f"has format {int(stored or b'1')}; this ViewKeeper reads 2: "):
        vk.connect(hbase.url)


def test_rows_are_counted_as_far_as_that_is_quick_and_then_by_the_delta(
    hbase: SmallHBase, db: vk.Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(5):
        put(hbase, f"a{number}", 1)
    map_table(db)
    keep_up(db)
    table = db.table("orders").schema.id
    hbase.tables[b"orders"].rows.pop(b"a4")  # so that the two counts differ
    counts = {}
    for most in (3, 4, 5, 50_000):
        monkeypatch.setattr("viewkeeper.stores.hbase.base_rows._COUNTED", most)
        counts[most] = sum(db.store.parts(table).values())

    assert counts == {3: 5, 4: 5, 5: 4, 50_000: 4}


def test_a_row_key_as_long_as_hbase_has_is_read_and_a_longer_one_is_not_asked_for(
    hbase: SmallHBase, db: vk.Database
) -> None:
    map_table(db)
    longest = "k" * ((1 << 15) - 1)
    put(hbase, longest, 7)
    put(hbase, "a", 1)
    asked: list[str] = []
    hbase.reached = lambda request, table: asked.append(request) if table == b"orders" else None
    table = db.table("orders")

    assert table.get_many([longest + "k", longest, "", "a"]) == [
        None,
        {"id": longest, "x": 7},
        None,
        {"id": "a", "x": 1},
    ]
    assert asked == ["getMultiple"]
    assert (table.get(longest + "k"), asked) == (None, ["getMultiple"])


def test_a_value_as_large_as_hbase_takes_is_put_and_a_larger_one_is_refused(
    hbase: SmallHBase, db: vk.Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    db.execute("CREATE TABLE t (id STRING PRIMARY KEY, x STRING) USING hbase OPTIONS (table 'orders', family 'f')")
    monkeypatch.setattr("viewkeeper.stores.hbase.base_writes.ROW_BYTES_MAX", 100)
    db.table("t").put("a", {"x": "x" * 100})
    with pytest.raises(vk.BadRow, match="table t: a value has 101 bytes; HBase takes up to 100"):
        db.table("t").put("a", {"x": "y" * 101})

    assert list(db.table("t").scan()) == [{"id": "a", "x": "x" * 100}]


@pytest.mark.parametrize(("silent_ms", "is_taken"), [(59_999, False), (60_000, True), (90_000, True)])
def test_a_claim_of_another_machine_lasts_for_a_minute_after_its_last_beat(
    hbase: SmallHBase, db: vk.Database, monkeypatch: pytest.MonkeyPatch, silent_ms: int, is_taken: bool
) -> None:
    monkeypatch.setattr(meta.platform, "node", lambda: "elsewhere")
    first = PipelineLease(db.store._rows, take_over=False, instead_of=None)
    monkeypatch.setattr(meta.platform, "node", lambda: "here")
    now = (hbase.ms + silent_ms) / 1_000
    monkeypatch.setattr(meta, "time", mock.Mock(wraps=meta.time, time=lambda: now))
    if is_taken:
        PipelineLease(db.store._rows, take_over=False, instead_of=None)
        with pytest.raises(Fenced, match="another pipeline took this store over"):
            first.beat()
    else:
        with pytest.raises(PipelineRunning):
            PipelineLease(db.store._rows, take_over=False, instead_of=None)
        first.beat()


@pytest.mark.parametrize(("seconds", "looks"), [(0.9, 0), (1.0, 1), (5.0, 1)])
def test_what_is_committed_is_read_with_a_frontier_of_less_than_a_second_ago(
    hbase: SmallHBase, db: vk.Database, monkeypatch: pytest.MonkeyPatch, seconds: float, looks: int
) -> None:
    map_table(db)
    put(hbase, "a", 1)
    with vk.connect(hbase.url) as other:
        keep_up(other)
        now, asked = 100.0, list[object]()
        monkeypatch.setattr(meta, "time", mock.Mock(wraps=meta.time, monotonic=lambda: now))
        view = db.view("sum_orders")
        assert view.get() == {"n": 1, "s": 1}
        hbase.reached = lambda request, table: asked.append(table)
        now += seconds
        assert view.get() == {"n": 1, "s": 1}
        assert asked.count(b"views:viewkeeper") == looks

        hbase.reached = lambda request, table: None
        put(hbase, "b", 4)
        keep_up(other)
        assert view.get() == {"n": 2, "s": 5}, "the version is newer than the read frontier"
