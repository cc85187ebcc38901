"""A real HBase replies to the adapter as is recorded; `tests/unit/stores/test_small_hbase.py` asks the small one."""

from __future__ import annotations

import time
from contextlib import closing

from tests.support.hbase_requests import Suite, recorded
from tests.support.hbase_stores import drop_namespace, new_url
from tests.support.services.admin import Admin
from tests.support.services.hbase import Cluster
from viewkeeper.stores.hbase.client import Connections, parse_address
from viewkeeper.stores.hbase.thrift_cells import thrift

COMPACTED_SECONDS_MAX = 60.0


def test_a_real_hbase_replies_as_it_is_recorded(hbase: Cluster, admin: Admin) -> None:
    url = new_url(hbase)
    address = parse_address(url)
    with closing(Connections(address)) as connections:

        def compact(table: bytes) -> None:
            """Returns when no delete is left."""
            admin.compact(table.decode())
            scan = thrift().TScan(attributes={b"_raw_": b"\xff"}, maxVersions=100, caching=100, limit=100)
            until = time.monotonic() + COMPACTED_SECONDS_MAX
            while time.monotonic() < until:
                found = connections.ask("getScannerResults", table, scan, 100)
                if not any(cell.type not in (None, 4) for result in found for cell in result.columnValues):
                    return
                time.sleep(0.5)
            raise AssertionError("the table is not compacted")

        connections.ask("createNamespace", thrift().TNamespaceDescriptor(name=address.namespace))
        try:
            assert Suite(connections, address.namespace, compact).run() == recorded()
        finally:
            drop_namespace(url)
