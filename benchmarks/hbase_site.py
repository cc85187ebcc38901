"""The HBase of the benchmarks: real servers on this machine, tables of its users, and what each server has used.

In: nothing, where `make services` runs one; else one is started for the question. Out: URLs of stores, tables, CPU
seconds. Always: tables and namespaces are the benchmark's own, and dropped after it; base tables are written as their
users write them, over Thrift, never through us.
"""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from benchmarks.processes import cpu_of
from benchmarks.workload import Step
from tests.support.services.__main__ import FOLDER
from tests.support.services.hbase import Cluster, free_port_base, started

SERVERS = 3
REGIONS = 12  # of a base table
BATCH = 1_000
FAMILY = b"f"
_SPREAD = 2_654_435_761  # odd, so no two numbers below 2 ** 32 have the same key


@dataclass(frozen=True, slots=True)
class HBase:
    """A running cluster."""

    cluster: Cluster

    def url(self, namespace: str) -> str:
        layout = self.cluster.layout
        servers = ",".join(f"127.0.0.1:{port}" for port in layout.thrift_ports())
        return f"hbase://{servers}/{namespace}?rootdir=file://{layout.root}"

    def client(self) -> Any:
        return self.cluster.client()

    def create(self, name: str) -> None:
        """A user's table, in regions that the keys of `key_of` fill evenly."""
        types = self.cluster.types
        described = types.TTableDescriptor(
            tableName=types.TTableName(ns=b"default", qualifier=name.encode()),
            columns=[types.TColumnFamilyDescriptor(name=FAMILY)],
        )
        borders = [b"%08x" % ((1 << 32) * place // REGIONS) for place in range(1, REGIONS)]
        with self.client() as client:
            client.createTable(described, borders)

    def drop(self, *, tables: Sequence[str] = (), namespaces: Sequence[str] = ()) -> None:
        types = self.cluster.types
        with self.client() as client:
            names = [types.TTableName(ns=b"default", qualifier=name.encode()) for name in tables]
            for namespace in namespaces:
                names += client.getTableNamesByNamespace(namespace)
            for name in names:
                client.disableTable(name)
                client.deleteTable(name)
            for namespace in namespaces:
                client.deleteNamespace(namespace)

    def puts(self, keys: Sequence[str], rows: Mapping[str, Sequence[str]]) -> list[Any]:
        """Puts of whole rows, as Thrift has them."""
        types = self.cluster.types
        columns = [(name.encode(), values) for name, values in rows.items()]
        return [
            types.TPut(
                row=key.encode(),
                columnValues=[types.TColumnValue(FAMILY, name, values[place].encode()) for name, values in columns],
            )
            for place, key in enumerate(keys)
        ]

    def put(self, client: Any, table: str, puts: Sequence[Any], size: int = BATCH) -> None:
        for start in range(0, len(puts), size):
            client.putMultiple(table.encode(), puts[start : start + size])

    def write_step(self, client: Any, table: str, step: Step) -> int:
        """The puts of a step, then its deletes; returns how many operations that were."""
        self.put(client, table, self.puts(keys_of(step.puts), values_of(step.x, step.y)))
        gone = [self.cluster.types.TDelete(row=key.encode()) for key in keys_of(step.deletes)]
        if gone:
            client.deleteMultiple(table.encode(), gone)
        return len(step.puts) + len(step.deletes)

    def rows(self, client: Any, table: str, columns: Sequence[str], size: int = 10_000) -> Iterator[tuple]:
        """The rows of a base table, as a client reads them: key and columns as text."""
        types, start = self.cluster.types, b""
        wanted = [types.TColumn(FAMILY, name.encode()) for name in columns]
        while True:
            scan = types.TScan(startRow=start, columns=wanted, caching=size, limit=size)
            found = client.getScannerResults(table.encode(), scan, size)
            for result in found:
                cells = {cell.qualifier.decode(): cell.value.decode() for cell in result.columnValues}
                yield result.row.decode(), *(cells.get(name) for name in columns)
            if len(found) < size:
                return
            start = found[-1].row + b"\x00"

    def to_arrow(self, table: str, columns: Mapping[str, pa.DataType]) -> pa.Table:
        """The same as a table, for the judge."""
        with self.client() as client:
            found = list(zip(*self.rows(client, table, list(columns)), strict=True)) or [()] * (1 + len(columns))
        arrays = {"k": pa.array(found[0], pa.string())}
        for (name, kind), values in zip(columns.items(), found[1:], strict=True):
            arrays[name] = pa.array(values, pa.string()).cast(kind)
        return pa.table(arrays)

    def cpu_seconds(self) -> dict[str, float]:
        """What the servers have used so far, by kind."""
        found: dict[str, float] = {}
        for name in self.cluster.layout.names():
            kind, pid = name.partition("-")[0], self.cluster.processes.pid(name)
            found[kind] = found.get(kind, 0.0) + (cpu_of(pid) if pid else 0.0)
        return found


@contextmanager
def running() -> Iterator[HBase]:
    """The cluster of `make services`, if it has enough region servers; else a new one, gone afterwards."""
    found = Cluster.find(FOLDER)
    if found and found.running() == found.layout.names() and found.layout.region_servers >= SERVERS:
        yield HBase(found)
        return
    with tempfile.TemporaryDirectory(prefix="viewkeeper-bench-") as folder:
        options = {"port_base": free_port_base(), "region_servers": SERVERS}
        with started(Path(folder) / "hbase", **options) as cluster:
            yield HBase(cluster)


def new_name(prefix: str) -> str:
    """A name of a table or namespace that nobody has."""
    return f"{prefix}{time.time_ns() // 1_000_000 % 10**10}_{os.getpid()}"


def keys_of(numbers: np.ndarray) -> list[str]:
    """Row keys that are spread over all regions, whatever the numbers are."""
    return [f"{number * _SPREAD & 0xFFFFFFFF:08x}" for number in numbers.tolist()]


def values_of(x: np.ndarray, y: np.ndarray) -> dict[str, list[str]]:
    """The columns x, a group, and y, a number, as text."""
    return {"x": [f"x{value:05d}" for value in x.tolist()], "y": list(map(str, y.tolist()))}
