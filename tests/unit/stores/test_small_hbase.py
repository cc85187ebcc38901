"""The small HBase replies to the adapter's requests as a real one: `tests/services/test_small_hbase.py` asks that one."""

from __future__ import annotations

from contextlib import closing

from tests.support.hbase_requests import Suite, recorded
from tests.support.small_hbase import SmallHBase
from viewkeeper.stores.hbase.client import Connections, parse_address


def test_the_small_hbase_replies_as_it_is_recorded() -> None:
    hbase = SmallHBase(None)

    def compact(table: bytes) -> None:
        hbase.tables[table].compact(hbase.ms)

    with hbase.replying(), closing(Connections(parse_address("hbase://small:9090/requests"))) as connections:
        assert Suite(connections, "requests", compact).run() == recorded()
