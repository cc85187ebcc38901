"""How views lie in HBase: what its own tools show of them, and which cells a purge leaves."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing, nullcontext
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import viewkeeper as vk
from tests.contract.conftest import Subject
from tests.contract.steps import VIEW, apply, at, rows_of
from tests.support.hbase_stores import cells_of, drop_namespace, new_store, new_url
from tests.support.services.hbase import Cluster
from viewkeeper.catalog.catalog import Catalog, ViewDefinition
from viewkeeper.errors import InputError, NotOffered, StoreError, ViewFailed
from viewkeeper.model.epochs import Inflight
from viewkeeper.model.read_frontier import ReadTimestamp
from viewkeeper.ports.records import VersionWrite
from viewkeeper.stores.hbase import records
from viewkeeper.stores.hbase.records import GONE, WRITTEN, journal_entries
from viewkeeper.stores.hbase.store import HBaseStore
from viewkeeper.stores.open import open_store

QUERY = "SELECT city, COUNT(*) AS n, SUM(amount) AS total, MAX(at) AS last FROM sales GROUP BY city"

_ALL_ENTRIES = dict.fromkeys((WRITTEN, GONE), (0, 1 << 62))


@pytest.fixture
def store(hbase: Cluster) -> Iterator[HBaseStore]:
    with new_store(hbase) as opened:
        yield opened


def a_view() -> tuple[dict, ViewDefinition, dict[bytes, bytes]]:
    """A catalog with a view, and the view's records, as another store has them."""
    with vk.connect("memory:") as db:
        db.execute("CREATE TABLE sales (id BIGINT PRIMARY KEY, city STRING, amount DECIMAL(9, 2), at TIMESTAMP)")
        db.execute(f"CREATE MATERIALIZED VIEW cities AS {QUERY}")
        sales = db.table("sales")
        sales.put(1, {"city": "Oslo", "amount": Decimal("2.50"), "at": datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)})
        sales.put(2, {"city": "Oslo", "amount": Decimal("1.00")})
        sales.put(3, {"city": "Łódź"})
        with db.pipeline() as pipeline:
            pipeline.run_available()
        view = Catalog.from_json(db.store.read_catalog()).view("cities")
        held = db.store.hold(ReadTimestamp(99, (), db.store.read_frontier()), range(db.store.partitions))
        rows = dict(held.scan(range(db.store.partitions), view.node.table, b"", None))
        held.close()
        return db.store.read_catalog(), view, rows


def write(store: HBaseStore, table: int, rows: dict[bytes, bytes | None], epoch: Inflight) -> None:
    keys = pa.array(list(rows), pa.binary())
    found = store.read_versions(table, keys, np.zeros(len(rows), int), epoch)
    new = pa.array(list(rows.values()), pa.binary())
    store.write_versions([VersionWrite(table, found, np.arange(len(rows)), new)], epoch)


def test_hbases_own_tools_show_the_columns_of_a_view(store: HBaseStore) -> None:
    catalog, view, rows = a_view()
    table = view.node.table
    assert store.swap_catalog(0, catalog)
    Subject(store).begin(at(1))
    write(store, table, rows, at(1))
    oslo, lodz = sorted(rows, key=lambda key: b"Oslo" not in key)
    shown = {column: value for column, _, value in cells_of(store, f"view.{table}", b"\x00" + oslo)}

    assert shown.pop("r:r") == b"\x01" + rows[oslo]
    assert shown == {"c:city": b"Oslo", "c:n": b"2", "c:total": b"3.50", "c:last": b"2026-01-02 03:04:05.000000Z"}
    other = {column: value for column, _, value in cells_of(store, f"view.{table}", b"\x00" + lodz)}
    assert (other["c:city"], other["c:n"], other["c:last"]) == ("Łódź".encode(), b"1", b"")
    assert store.get_record(0, table, oslo, ReadTimestamp(1, (), store.read_frontier())) == rows[oslo]


def test_one_look_tells_a_committed_record_and_none_that_may_change(store: HBaseStore) -> None:
    catalog, view, rows = a_view()
    table, subject, key = view.node.table, Subject(store), min(rows)
    assert store.swap_catalog(0, catalog)
    subject.begin(at(1))
    write(store, table, rows, at(1))
    assert store.get_committed(0, table, key) is None  # epoch 1 is not committed

    subject.begin(at(2))
    assert store.get_committed(0, table, key) == (rows[key], store.read_frontier())
    write(store, table, {key: None}, at(2))
    assert store.get_committed(0, table, key) is None

    subject.begin(at(3))
    assert store.get_committed(0, table, key) == (None, store.read_frontier())
    assert store.get_committed(0, table, b"nobody") is None


def test_a_reader_goes_by_a_frontier_it_knows_and_sees_what_others_committed_since(store: HBaseStore) -> None:
    subject, keys, alone = Subject(store), (b"even", b"odd", b"first"), 0
    with closing(open_store(store.url)) as reader:
        asked = _asked(reader)
        for number in range(1, 13):
            aborted = (6,) if number > 6 else ()
            epoch = at(number, aborted=aborted)
            subject.begin(epoch)
            for written in ({}, {b"odd" if number % 2 else b"even": b"%d" % number}, {b"first": b"1"}):
                if written and (number == 1 or b"first" not in written):
                    apply(subject, epoch, written)
                frontier = store.read_frontier()
                for key in keys:
                    del asked[:]
                    found = reader.get_committed(0, VIEW, key)
                    alone += found is not None and asked == ["get"]
                    now = store.get_record(0, VIEW, key, ReadTimestamp(frontier.committed, frontier.aborted, frontier))
                    assert found is None or (found[0] == now and found[1].committed <= frontier.committed)
    assert alone > 30, "most looks are one plain get"


def _asked(store: HBaseStore) -> list[str]:
    """The requests that a store sends from here on."""
    sent: list[str] = []
    send = store._site.connections._ask_once

    def note(requests: Sequence[tuple[Any, ...]]) -> list[Any]:
        sent.extend(request[0] for request in requests)
        return send(requests)

    store._site.connections._ask_once = note
    return sent


def test_a_view_that_another_process_dropped_is_told_as_dropped(hbase: Cluster) -> None:
    url = new_url(hbase)
    try:
        with vk.connect(url) as db, vk.connect(url) as other:
            catalog, view, rows = a_view()
            assert db.store.swap_catalog(0, catalog)
            Subject(db.store).begin(at(1))
            write(db.store, view.node.table, rows, at(1))
            opened = other.view("cities")
            db.execute("DROP MATERIALIZED VIEW cities")
            db.store.drop(view.node.table)
            with pytest.raises(InputError, match="cities"):
                opened.get("Oslo")
    finally:
        drop_namespace(url)


def test_a_record_that_is_gone_shows_nothing_of_its_past(store: HBaseStore) -> None:
    catalog, view, rows = a_view()
    table = view.node.table
    assert store.swap_catalog(0, catalog)
    for epoch in (1, 2):
        Subject(store).begin(at(epoch))
        write(store, table, dict.fromkeys(rows) if epoch == 2 else rows, at(epoch))
    newest = [value for _, epoch, value in cells_of(store, f"view.{table}", b"\x00" + min(rows)) if epoch == 2]

    assert newest == [b""] * (1 + len(view.shown))
    assert rows_of(Subject(store), at(3), list(rows)) == [None] * len(rows)


def test_a_purge_leaves_the_versions_that_readers_need_and_tombstones_until_no_put_is_under_way(
    store: HBaseStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(records, "OLDER_MAX", 0)  # nothing surplus stays
    subject, kept = Subject(store), f"vk.{VIEW}"
    history = [{b"a": b"1", b"b": b"1"}, {b"a": b"2", b"b": None}, {b"a": b"3"}, {b"a": b"4"}, {}]
    for epoch, rows in enumerate(history, 1):
        subject.begin(at(epoch, floor=max(0, epoch - 2)))
        if rows:
            apply(subject, at(epoch), rows)
        subject.end(aborted=())

    assert [epoch for _, epoch, _ in cells_of(store, kept, b"\x00a")] == [4, 3]
    assert [epoch for _, epoch, _ in cells_of(store, kept, b"\x00b")] == [2, 1]  # they go together
    monkeypatch.setattr(records, "PUT_SECONDS", -1_000.0)  # T + R have passed
    subject.begin(at(6, floor=4))
    subject.end(aborted=())
    subject.begin(at(7, floor=5))
    subject.end(aborted=())
    assert [epoch for _, epoch, _ in cells_of(store, kept, b"\x00a")] == [4]
    assert cells_of(store, kept, b"\x00b") == []
    assert not any(journal_entries(store._site, _ALL_ENTRIES))
    assert rows_of(subject, at(7), [b"a", b"b"]) == [b"4", None]


@pytest.mark.parametrize("is_known", [True, False], ids=["by one process", "by many"])
@pytest.mark.parametrize("kept", [1, 3])
def test_old_versions_go_a_few_at_a_time_with_a_writer_or_by_the_journal(
    store: HBaseStore, kept: int, is_known: bool
) -> None:
    """Whether the newest version is one that all readers see, or not; and whether a writer remembers it, or reads it."""
    left, is_listed = [], False
    for number in range(1, 14):
        with nullcontext(store) if is_known else closing(open_store(store.url)) as opened:
            subject, epoch = Subject(opened), at(number, floor=max(0, number - kept))
            subject.begin(epoch)
            apply(subject, epoch, {b"a": b"%d" % number})
            is_listed |= any(journal_entries(store._site, _ALL_ENTRIES))
            subject.end(aborted=())
            assert rows_of(subject, at(number + 1), [b"a"]) == [b"%d" % number]
        left.append([stamp for _, stamp, _ in cells_of(store, f"vk.{VIEW}", b"\x00a")])

    assert all(stamps == list(range(number, stamps[-1] - 1, -1)) for number, stamps in enumerate(left, 1))
    seen = {1: [1, 2, 3, 4, 2, 3, 4, 2, 3, 4, 2, 3, 4], 3: [1, 2, 3, 4, 5, 6, 7, 4, 5, 6, 7, 4, 5]}
    assert [len(stamps) for stamps in left] == seen[kept]
    assert is_listed == (kept == 3)


def test_tables_are_made_when_they_are_first_written_and_keep_every_version_for_ever(store: HBaseStore) -> None:
    from viewkeeper.stores.hbase.thrift_cells import thrift

    namespace = store._site.address.namespace.encode()

    def names() -> set[bytes]:
        return {one.qualifier for one in store._site.connections.ask("getTableNamesByNamespace", namespace.decode())}

    assert names() == {b"viewkeeper"}
    Subject(store).begin(at(1))
    apply(Subject(store), at(1), {b"a": b"1"})
    assert names() == {b"viewkeeper", b"vk.%d" % VIEW}
    made = thrift().TTableName(ns=namespace, qualifier=b"vk.%d" % VIEW)
    (family,) = store._site.connections.ask("getTableDescriptor", made).columns
    assert family.maxVersions == family.timeToLive == (1 << 31) - 1
    regions = store._site.connections.ask("getAllRegionLocations", namespace + b":vk.%d" % VIEW)
    assert sorted(one.regionInfo.startKey for one in regions) == [b"", b"\x01", b"\x02", b"\x03"]


def test_what_hbase_cannot_hold_fails_its_view_alone(store: HBaseStore) -> None:
    Subject(store).begin(at(1))
    for rows, text in (
        ({b"k" * 40_000: b"1"}, "a key of 40,000 bytes"),
        ({b"k": bytes(11 << 20)}, "a row of 11,534,336"),
    ):
        with pytest.raises(ViewFailed, match=text):
            apply(Subject(store), at(1), rows)
    apply(Subject(store), at(1), {b"k" * 32_700: bytes(9 << 20), b"small": b"1"})

    assert rows_of(Subject(store), at(2), [b"k" * 32_700, b"small"]) == [bytes(9 << 20), b"1"]


def test_a_store_is_opened_as_it_was_made(store: HBaseStore) -> None:
    url = store.url.partition("?")[0]
    with pytest.raises(InputError, match="made with 4 partitions, not 5"):
        open_store(f"{url}?partitions=5")
    with pytest.raises(StoreError, match="there is no store at"):
        open_store(f"{url}_other", create=False)
    assert store.is_current()
    assert store.facts().bytes_used >= 0
    with pytest.raises(NotOffered):
        store.alone()
    with closing(open_store(url)) as without_logs, pytest.raises(InputError, match="rootdir"):
        without_logs.ends()


def test_a_store_that_is_gone_is_noticed_by_who_has_it_open(hbase: Cluster) -> None:
    url = new_url(hbase)
    with closing(open_store(url)) as store:
        assert store.is_current()
        drop_namespace(url)
        assert not store.is_current()
        with closing(open_store(url)) as anew:
            assert (store.is_current(), anew.is_current()) == (False, True)
        drop_namespace(url)
