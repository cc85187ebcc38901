"""The parts of the store in HBase that need no server: addresses, filters, entries of the journal, connections that fail."""

from __future__ import annotations

import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from unittest.mock import Mock

import pyarrow as pa
import pytest
from thriftpy2.transport import TSocket, TTransportException

from viewkeeper.errors import InputError, StoreError, StoreUnavailable, ViewFailed
from viewkeeper.stores.hbase import client as connections_module
from viewkeeper.stores.hbase import records
from viewkeeper.stores.hbase.client import Connections, parse_address
from viewkeeper.stores.hbase.records import GONE, WRITTEN, JournalEntry, _apart
from viewkeeper.stores.hbase.table_requests import Site, span_of
from viewkeeper.stores.hbase.thrift_cells import KEY_BYTES_MAX, ROW_BYTES_MAX, ranges_filter, row_key


def test_a_url_names_servers_a_namespace_and_options() -> None:
    found = parse_address(
        "hbase://a:9090,b.example:1/shop?late=60&partitions=32&rootdir=file:///x&retention=7200&every=0.5"
    )

    assert (found.servers, found.namespace) == ((("a", 9090), ("b.example", 1)), "shop")
    assert (found.partitions, found.late_seconds, found.timeout_seconds) == (32, 60.0, 60.0)
    assert (found.rootdir, found.retention_seconds, found.every_seconds) == ("file:///x", 7200.0, 0.5)


@pytest.mark.parametrize(
    ("url", "text"),
    [
        ("hbase://a/shop", "is not the URL of a store in HBase"),
        ("hbase://a:1/", "is not the URL of a store in HBase"),
        ("hbase:a:1/shop", "is not the URL of a store in HBase"),
        ("hbase://a:1/sh-op", "is not the URL of a store in HBase"),
        ("hbase://a:1,/shop", "is not the URL of a store in HBase"),
        ("hbase://a:1/shop?nodes=2", "the URL option nodes is unknown"),
        ("hbase://a:1/shop?partitions=200", "partitions=200 is not a number of partitions"),
        ("hbase://a:99999/shop", "99999 is no port; use 1 to 65535"),
        ("hbase://a:1,b:0/shop", "0 is no port"),
        (
            "hbase://a:1/shop?retention=1000000001",
            "retention=1000000001 is not a number of seconds; use 0.001 to 1,000,000,000",
        ),
        ("hbase://a:1/shop?timeout=2000001", "use 0.001 to 2,000,000"),
        ("hbase://a:1/shop?patience=0.0001", "use 0.001 to 2,000,000"),
        ("hbase://a:1/shop?late=0", "late=0 is not a number of seconds"),
        ("hbase://a:1/shop?every=on", "every=on is not a number of seconds"),
    ],
)
def test_what_is_no_url_is_refused(url: str, text: str) -> None:
    with pytest.raises(InputError, match=text):
        parse_address(url)


@pytest.mark.parametrize("url", ["hbase://nobody.invalid:9090/shop", "hbase://nobody.invalid:9090,none.invalid:1/shop"])
def test_a_host_that_nobody_knows_is_an_error_at_once(monkeypatch: pytest.MonkeyPatch, url: str) -> None:
    pauses = list[float]()
    monkeypatch.setattr(connections_module, "time", Mock(wraps=time, sleep=pauses.append))
    with pytest.raises(StoreError) as raised:
        Connections(parse_address(url)).ask("listNamespaces")
    assert not isinstance(raised.value, StoreUnavailable)
    hosts = "nobody.invalid, none.invalid" if "none" in url else "nobody.invalid"
    assert len(pauses) == hosts.count(",")
    assert str(raised.value) == f"no machine is known as {hosts}; look at the URL {url}"


@pytest.mark.parametrize("reason", ["another host is known", "nobody can tell now", "it has replied"])
def test_a_host_that_may_be_known_again_is_waited_for(monkeypatch: pytest.MonkeyPatch, reason: str) -> None:
    def connect(socket_: TSocket) -> None:
        try:
            if socket_.host == "known":
                raise ConnectionRefusedError
            raise socket.gaierror(socket.EAI_AGAIN if reason == "nobody can tell now" else socket.EAI_NONAME, "")
        except OSError as error:
            raise TTransportException(TTransportException.NOT_OPEN, "could not connect") from error

    monkeypatch.setattr(TSocket, "open", connect)
    monkeypatch.setattr(connections_module, "time", Mock(wraps=time, sleep=lambda seconds: None))
    hosts = "nobody.invalid:1,known:1" if reason == "another host is known" else "nobody.invalid:1"
    connections = Connections(parse_address(f"hbase://{hosts}/shop?patience=0.1"))
    if reason == "it has replied":
        connections._give(("nobody.invalid", 1), Mock())
        connections._fail(("nobody.invalid", 1), None)
    with pytest.raises(StoreUnavailable, match="no answer from"):
        connections.ask("listNamespaces")


def test_logs_may_be_kept_for_as_long_as_hbase_can() -> None:
    """2,147,483 seconds are what the servers of our own tests are set to."""
    assert parse_address("hbase://a:1/shop?retention=2147483").retention_seconds == 2_147_483


def test_an_entry_of_the_journal_is_read_as_it_was_written_and_sorts_by_kind_and_epoch() -> None:
    entries = [
        JournalEntry(partition, kind, epoch, table, key)
        for partition in (0, 3)
        for kind in (WRITTEN, GONE)
        for epoch in (1, 255, 256, 1 << 40)
        for table in (1, 700)
        for key in (b"", b"\x00", b"\xff")
    ]

    assert [JournalEntry.of(entry.row) for entry in entries] == entries
    assert sorted(entry.row for entry in entries) == [entry.row for entry in entries]


def test_a_filter_of_ranges_has_the_bytes_that_hbase_reads() -> None:
    """Filter{1: name, 2: {1: RowRange{1: start, 2: true, 3: stop, 4: false}}}."""
    name = b"org.apache.hadoop.hbase.filter.MultiRowRangeFilter"
    row_range = b"\x0a\x01a\x10\x01\x1a\xc8\x01" + b"b" * 200 + b"\x20\x00"
    body = b"\x0a\xd2\x01" + row_range

    assert ranges_filter([(b"a", b"b" * 200)]) == b"\x0a\x32" + name + b"\x12\xd5\x01" + body


def test_prefixes_are_joined_while_one_scan_meets_them_in_their_order() -> None:
    prefixes = [b"a", b"b", b"ba", b"c", b"c", b"b", b"d"]

    assert list(_apart(prefixes)) == [(0, [b"a", b"b"]), (2, [b"ba", b"c"]), (4, [b"c"]), (5, [b"b", b"d"])]
    assert list(_apart([])) == []
    many = [b"%05d" % number for number in range(1_200)]
    assert [len(group) for _, group in _apart(many)] == [500, 500, 200]


class Hanging:
    """A server that takes connections and ends them with a reply that is no Thrift; `count` are the connections so far."""

    def __init__(self, reply: bytes = b"") -> None:
        self.count, self.reply = 0, reply
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        threading.Thread(target=self._run, daemon=True).start()

    def _run(self) -> None:
        while True:
            try:
                taken, _ = self.listener.accept()
            except OSError:
                return
            with taken, suppress(OSError):
                taken.recv(1 << 16)
                self.count += 1
                taken.sendall(self.reply)
                taken.shutdown(socket.SHUT_WR)
                while taken.recv(1 << 16):  # what is not read would make it a reset, and the reply be lost
                    pass

    def close(self) -> None:
        self.listener.shutdown(socket.SHUT_RDWR)
        self.listener.close()


def test_what_may_be_repeated_is_and_a_test_and_set_is_sent_once() -> None:
    pytest.importorskip("thriftpy2")
    with closing(Hanging()) as server:
        address = parse_address(f"hbase://127.0.0.1:{server.port}/shop?patience=4")
        with closing(Connections(address)) as connections:
            with pytest.raises(StoreUnavailable, match="no answer from"):
                connections.ask_once("listNamespaces")
            once = server.count
            with pytest.raises(StoreUnavailable):
                connections.ask("listNamespaces")
        with pytest.raises(InputError, match="closed"):
            connections.ask("listNamespaces")

    assert once == 1 and server.count > 2


def test_each_attempt_is_preceded_by_what_must_be() -> None:
    """A VALIDATE that has run out is made again before a put is repeated."""
    pytest.importorskip("thriftpy2")
    calls: list[int] = []

    def allow() -> None:
        calls.append(1)
        if len(calls) == 3:
            raise InputError("stop")

    with closing(Hanging()) as server:
        address = parse_address(f"hbase://127.0.0.1:{server.port}/shop")
        with closing(Connections(address)) as connections, pytest.raises(InputError, match="stop"):
            connections.ask("listNamespaces", before=allow)

    assert (len(calls), server.count) == (3, 2)


@pytest.mark.parametrize("reply", [b"HTTP/1.1 400 Bad Request\r\n\r\n", b"\x00" * 400, b"\xff" * 400])
def test_a_server_that_is_not_thrift_is_told_at_once(reply: bytes) -> None:
    pytest.importorskip("thriftpy2")
    with closing(Hanging(reply)) as server:
        address = parse_address(f"hbase://127.0.0.1:{server.port}/shop")
        with (
            closing(Connections(address)) as connections,
            pytest.raises(StoreError, match="is no Thrift 2 server") as told,
        ):
            connections.ask("listNamespaces")

    assert "hbase thrift2 start" in (told.value.hint or "") and server.count == 1


@pytest.mark.parametrize(
    ("nice", "servers", "count", "at_once"),
    [(0, 1, 6, 3), (5, 1, 6, 3), (19, 1, 6, 1), (0, 1, 3, 1), (0, 2, 5, 5), (0, 2, 6, 6), (0, 2, 12, 6)],
)
def test_few_requests_and_those_of_low_priority_are_made_one_at_a_time(
    nice: int, servers: int, count: int, at_once: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    under_way, most, together, threads = [], [], threading.Barrier(at_once), set()

    def ask(site: Site, table: int, request: str, batch: int, **options: object) -> int:
        threads.add(threading.get_ident())
        under_way.append(batch)
        most.append(len(under_way))
        together.wait(60)
        under_way.remove(batch)
        return 2 * batch

    monkeypatch.setattr(Site, "ask", ask)
    monkeypatch.setattr("os.getpriority", lambda which, who: nice)
    address = parse_address(f"hbase://{','.join(f'127.0.0.1:{port + 1}' for port in range(servers))}/shop")
    site = Site(address, Connections(address), "once", 1)
    assert site.ask_each(7, "putMultiple", range(count)) == [2 * batch for batch in range(count)]
    assert max(most) == at_once
    assert (threads == {threading.get_ident()}) == (at_once == 1)


@pytest.mark.parametrize(("count", "kept"), [(2, 2), (3, 3), (4, 3), (7, 3)])
def test_a_few_idle_connections_are_kept_and_used_again(count: int, kept: int, monkeypatch: pytest.MonkeyPatch) -> None:
    together, made = threading.Barrier(count), list[Mock]()

    def connect(connections: Connections, server: object) -> Mock:
        made.append(Mock())
        return made[-1]

    def reply(client: Mock, requests: object) -> list[str]:
        together.wait(60)
        return ["done"]

    monkeypatch.setattr(connections_module, "_IDLE_MAX", 3)
    monkeypatch.setattr(connections_module, "_replies", reply)
    monkeypatch.setattr(Connections, "_connect", connect)
    connections = Connections(parse_address("hbase://127.0.0.1:1/shop"))
    for connected in (count, count + count - kept):
        with ThreadPoolExecutor(count) as pool:
            assert list(pool.map(connections.ask_once, ["listNamespaces"] * count)) == ["done"] * count
        assert len(made) == connected
        assert sum(not client.close.called for client in made) == kept
    connections.close()
    assert all(client.close.call_count == 1 for client in made)


@pytest.mark.parametrize("more", [0, 1, 9])
def test_a_bound_longer_than_a_row_key_is_cut_and_the_same_rows_are_between(more: int) -> None:
    longest = (1 << 15) - 1
    bound = b"k" * (longest - 1 + more)
    assert [len(cut) for cut in span_of(7, bound, bound)] == [longest] * 2
    assert span_of(7, bound, None) == (b"\x07" + b"k" * (longest - 1), b"\x08")
    for key in (b"", b"k", b"k" * KEY_BYTES_MAX, b"k" * 9 + b"a", b"k" * 9 + b"z"):
        first, stop = span_of(7, bound, bound)
        assert (row_key(7, key) >= first, row_key(7, key) < stop) == (key >= bound, key < bound)


def test_a_record_as_large_as_hbase_takes_is_written_and_a_larger_one_stops_its_view() -> None:
    largest, keys = ROW_BYTES_MAX, pa.array([b"k", b"l"])
    records._require_room(7, keys, pa.array([b"", bytes(largest)]))
    records._require_room(7, keys, pa.array([None, None], pa.binary()))
    with pytest.raises(ViewFailed, match=f"a row of {largest + 1:,} bytes is more than the {largest:,}"):
        records._require_room(7, keys, pa.array([b"", bytes(largest + 1)]))
