"""Stores in a real HBase, each in a namespace of its own that ends with its test."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from contextlib import closing, contextmanager

from tests.support.services.configuration import ADDRESS
from tests.support.services.hbase import Cluster
from viewkeeper.stores.hbase.client import Connections, parse_address
from viewkeeper.stores.hbase.store_tables import drop_table
from viewkeeper.stores.hbase.thrift_cells import thrift
from viewkeeper.stores.open import open_store


def new_url(cluster: Cluster, options: str = "partitions=4&late=60") -> str:
    servers = ",".join(f"{ADDRESS}:{port}" for port in cluster.layout.thrift_ports())
    return f"hbase://{servers}/test_{uuid.uuid4().hex[:12]}?{options}&rootdir=file://{cluster.layout.root}"


@contextmanager
def new_store(cluster: Cluster, options: str = "partitions=4&late=60") -> Iterator[object]:
    """An open store in a new namespace."""
    url = new_url(cluster, options)
    try:
        with closing(open_store(url)) as store:
            yield store
    finally:
        drop_namespace(url)


def drop_namespace(url: str) -> None:
    """Remove a store, all of it."""
    address = parse_address(url)
    with closing(Connections(address)) as connections:
        for name in connections.ask("getTableNamesByNamespace", address.namespace):
            drop_table(connections, f"{address.namespace}:".encode() + name.qualifier)
        connections.ask("deleteNamespace", address.namespace)


def cells_of(store: object, name: str, row: bytes) -> list[tuple[str, int, bytes]]:
    """(column, timestamp, value) of all cells of a row of HBase, as its own tools show them."""
    table = f"{store._site.address.namespace}:{name}".encode()
    found = store._site.connections.ask("get", table, thrift().TGet(row=row, maxVersions=1_000))
    return [
        (f"{cell.family.decode()}:{cell.qualifier.decode()}", cell.timestamp, cell.value) for cell in found.columnValues
    ]
