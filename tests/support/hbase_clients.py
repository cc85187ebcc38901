"""Clients of an HBase who know nothing of views: they write to two tables, and rows are read as they see them.

In: a running HBase. Out: tables `t` and `u` (k, g, x) under names of their own; writers that go on in threads, and pause.
Always: what a client has no reply to may be written or not, so rows are read when all are paused. Single versions are deleted
in even rows, and old timestamps are written to odd ones: HBase tells nobody what the two together uncover. Where regions
are compacted, rows with old timestamps have no deletes: a compaction removes deletes, and HBase tells nobody which.
"""

from __future__ import annotations

import random
import threading
import uuid
from collections.abc import Container, Iterator
from contextlib import contextmanager
from typing import Any

from thriftpy2.thrift import TException

from tests.support.services.hbase import Cluster

ROWS = 60
GROUPS, NUMBERS = (b"a", b"b", b"c"), (b"1", b"5", b"7", b"40")
BORDERS = (b"h", b"p")
_PAUSE_SECONDS = 0.005
Row = tuple[str, str | None, str | None]


class Clients:
    """Two tables of HBase, in three regions each, and those who write to them."""

    def __init__(self, hbase: Cluster, seed: int, *, compacted: bool = False) -> None:
        self._hbase, self._types, self._seed, self._compacted = hbase, hbase.types, seed, compacted
        mark = uuid.uuid4().hex[:8]
        self.tables = {name: f"{name}{mark}" for name in "tu"}
        self.writes = self.without_reply = 0
        for table in self.tables.values():
            self.create(table)

    def create(self, table: str) -> None:
        types = self._types
        family = types.TColumnFamilyDescriptor(name=b"f", maxVersions=3)
        name = types.TTableName(ns=b"default", qualifier=table.encode())
        with self._hbase.client() as client:
            client.createTable(types.TTableDescriptor(tableName=name, columns=[family]), list(BORDERS))

    def write(self, count: int, *, seed: int = 0) -> None:
        """So many random writes."""
        draw = random.Random(f"{self._seed} {seed}")
        with self._hbase.client() as client:
            for _ in range(count):
                self._one(client, draw)

    @contextmanager
    def writing(self, threads: int = 2) -> Iterator[None]:
        """Until the block ends, threads write; what fails is tried no more."""
        stop = threading.Event()

        def go_on(number: int) -> None:
            draw = random.Random(f"{self._seed} thread {number} {self.writes}")
            while not stop.is_set():
                try:
                    with self._hbase.client() as client:
                        while not stop.wait(_PAUSE_SECONDS):
                            self._one(client, draw)
                except (TException, OSError, EOFError):
                    self.without_reply += 1
                    stop.wait(0.2)

        writers = [threading.Thread(target=go_on, args=(number,)) for number in range(threads)]
        for writer in writers:
            writer.start()
        try:
            yield
        finally:
            stop.set()
            for writer in writers:
                writer.join()

    def _one(self, client: Any, draw: random.Random) -> None:
        types, number = self._types, draw.randrange(ROWS)
        table, row = self.tables[draw.choice("ttu")].encode(), b"%c%d" % (ord("a") + number % 26, number)
        cells = {b"g": draw.choice(GROUPS), b"x": draw.choice(NUMBERS)}
        what, keeps_all = draw.random(), self._compacted and number % 4 == 1
        if what < 0.75 or keeps_all:
            chosen = cells if what < 0.4 else dict([draw.choice(sorted(cells.items()))])
            is_old = what > 0.7 and (keeps_all or (number % 2 == 1 and not self._compacted))
            stamp = draw.randrange(1, 1 << 40) if is_old else None
            values = [types.TColumnValue(b"f", *cell) for cell in chosen.items()]
            client.put(table, types.TPut(row=row, columnValues=values, timestamp=stamp))
        else:
            kinds = types.TDeleteType
            column = [types.TColumn(b"f", draw.choice((b"g", b"x")))]
            delete = types.TDelete(row=row, columns=column, deleteType=kinds.DELETE_COLUMNS)
            if what > 0.9:
                delete = types.TDelete(row=row)
            elif what > 0.82 and number % 2 == 0:
                delete = types.TDelete(row=row, columns=column, deleteType=kinds.DELETE_COLUMN)
            client.deleteSingle(table, delete)
        self.writes += 1

    def rows(self, name: str) -> list[Row]:
        """The rows of a table as a client sees them."""
        with self._hbase.client() as client:
            found = client.getScannerResults(self.tables[name].encode(), self._types.TScan(), 10_000)
        cells = [{cell.qualifier: cell.value.decode() for cell in one.columnValues} for one in found]
        return [(one.row.decode(), c.get(b"g"), c.get(b"x")) for one, c in zip(found, cells, strict=True)]

    def cells(self, name: str, keys: Container[object]) -> list[str]:
        """All that HBase has of these rows, deletes and hidden versions too."""
        types = self._types
        scan = types.TScan(maxVersions=1_000, attributes={b"_raw_": b"\xff"})
        with self._hbase.client() as client:
            found = client.getScannerResults(self.tables[name].encode(), scan, 10_000)
        return [
            f"{name} {one.row!r} {cell.qualifier!r} at {cell.timestamp}, type {cell.type}: {cell.value!r}"
            for one in found
            if one.row.decode() in keys
            for cell in one.columnValues
        ]

    def ddl(self, name: str) -> str:
        mapping = f"USING hbase OPTIONS (table '{self.tables[name]}')"
        return f"CREATE TABLE {name} (k STRING PRIMARY KEY, g STRING, x INT) {mapping}"
