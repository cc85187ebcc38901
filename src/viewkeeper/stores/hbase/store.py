"""The store in HBase: views, epoch record and catalog in HBase tables, over Thrift 2.

In: a URL. Out: an open store, made of parts that keep one port each. Always: all of a store is in one HBase namespace.
"""

from __future__ import annotations

import time

from viewkeeper.errors import InputError, StoreError, StoreUnavailable
from viewkeeper.ports.admin import Facts
from viewkeeper.ports.store import Capabilities, Store
from viewkeeper.stores.catalog_json import CatalogText
from viewkeeper.stores.hbase.base_writes import BaseWrites
from viewkeeper.stores.hbase.client import PARTITIONS, Address, Connections, Refused, parse_address
from viewkeeper.stores.hbase.meta import make_facts, read_facts
from viewkeeper.stores.hbase.store_tables import FAMILY, MetaTable, create_table, table_exists
from viewkeeper.stores.hbase.table_requests import Site
from viewkeeper.stores.hbase.thrift_cells import thrift

_POLL_SECONDS = 0.05


class HBaseStore(BaseWrites, Store):
    def __init__(self, url: str, *, create: bool = True, read_only: bool = False) -> None:
        address = parse_address(url)
        connections = Connections(address)
        try:
            incarnation, partitions = _facts(connections, address, create=create)
        except BaseException:
            connections.close()
            raise
        self._site = Site(address, connections, incarnation, partitions)
        self._catalog_text = CatalogText()
        self._now = 0
        super().__init__()

    @property
    def url(self) -> str:
        return self._site.address.url

    @property
    def incarnation(self) -> str:
        return self._site.incarnation

    def is_current(self) -> bool:
        try:
            found = read_facts(self._site.rows)
        except Refused:  # its table is gone
            return False
        return found is not None and found[0] == self.incarnation

    @property
    def capabilities(self) -> Capabilities:
        return Capabilities(
            before_images=False,
            atomic_group="row",
            held_reads=False,
            many_processes=True,
            is_writable=True,
            poll_seconds=_POLL_SECONDS,
            epoch_seconds=self._site.address.every_seconds,
            bytes_moved=40.0,  # on three replicas, each byte is logged, flushed and compacted several times
        )

    def facts(self) -> Facts:
        """`bytes_used` is what HBase has flushed of the store's tables; its latest writes are in the logs only."""
        entries, outside = self._wals.log_entries(), self._changed_outside_log()
        used = self._wals.folder.bytes_in(f"data/{self._site.address.namespace}")
        return Facts(used, entries, self._warnings(), changed_outside_log=outside)

    def drop(self, table: int) -> None:
        super().drop(table)
        self._chunks.forget(table)  # of a mapped table only what was staged is ours

    def now(self) -> int:
        """This machine's clock; it must agree with those of all machines that use the store."""
        self._now = max(self._now, time.time_ns())
        return self._now

    def close(self) -> None:
        self._site.connections.close()


def _facts(connections: Connections, address: Address, *, create: bool) -> tuple[str, int]:
    """The store's incarnation and its number of partitions; makes a store where there is none."""
    rows = MetaTable(connections, address.namespace)
    found = read_facts(rows) if table_exists(connections, rows.table) else None
    if found is None:
        if not create:
            raise StoreError(f"there is no store at {address.url}", "connect without read_only to make one")
        _make(connections, rows, address)
        found = read_facts(rows)
        assert found is not None
    if address.partitions not in (None, found[1]):
        raise InputError(
            f"the store was made with {found[1]} partitions, not {address.partitions}",
            "that is fixed when the store is made: leave ?partitions out",
        )
    return found


def _make(connections: Connections, rows: MetaTable, address: Address) -> None:
    if address.namespace not in connections.ask("listNamespaces"):
        try:
            connections.ask_once("createNamespace", thrift().TNamespaceDescriptor(name=address.namespace))
        except (Refused, StoreUnavailable):  # another one makes it, or the reply got lost
            if address.namespace not in connections.ask("listNamespaces"):
                raise
    create_table(connections, rows.table, [FAMILY], 1, 1)
    make_facts(rows, address.partitions or PARTITIONS)
