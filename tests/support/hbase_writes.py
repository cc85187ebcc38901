"""Writes to HBase through Thrift 2, each with a timestamp of its own, and what the log must then hold of them.

Always: one write at a time for each writer, so that the order of its writes is the order of their timestamps. A write whose
answer was an error may be in the log or not.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from thriftpy2.thrift import TException

from tests.support.services.hbase import Cluster

PUT, DELETE, DELETE_FAMILY_VERSION, DELETE_COLUMN, DELETE_FAMILY = 4, 8, 10, 12, 14

Logged = tuple[bytes, bytes, bytes, int, int, bytes]  # row, family, qualifier, timestamp, kind, value


@dataclass(slots=True)
class Writer:
    """Writes random puts and deletes to `rows` rows of a table."""

    cluster: Cluster
    table: str
    seed: int
    rows: int = 40
    acknowledged: list[Logged] = field(default_factory=list)
    doubtful: list[Logged] = field(default_factory=list)
    stamp: int = 0

    def write(self, client: Any, count: int = 1) -> None:
        """That many operations; raises what the client raises, with the operation among the doubtful ones."""
        rng = random.Random(self.seed * 1_000_003 + self.stamp)
        for _ in range(count):
            cells, call = self._operation(rng)
            try:
                call(client)
            except (TException, OSError, EOFError):
                self.doubtful += cells
                raise
            self.acknowledged += cells

    def _operation(self, rng: random.Random) -> tuple[list[Logged], Callable[[Any], object]]:
        kind = rng.choice([PUT, PUT, PUT, PUT, "many", DELETE, DELETE_COLUMN, DELETE_FAMILY, DELETE_FAMILY_VERSION])
        if kind == "many":
            rows = rng.sample(range(self.rows), 10)
            cells = [self._put(rng, self._row(row)) for row in rows]
            return cells, lambda client: client.putMultiple(self._table, [self._thrift_put([cell]) for cell in cells])
        row = self._row(rng.randrange(self.rows))
        if kind == PUT:
            cells = [self._put(rng, row)]
            return cells, lambda client: client.put(self._table, self._thrift_put(cells))
        whole_family = kind in (DELETE_FAMILY, DELETE_FAMILY_VERSION)
        self.stamp += 1
        cell = (row, rng.choice([b"f", b"g"]), b"" if whole_family else b"q1", self.stamp, int(kind), b"")
        return [cell], lambda client: client.deleteSingle(self._table, self._thrift_delete(cell))

    @property
    def _table(self) -> bytes:
        return self.table.encode()

    def _row(self, number: int) -> bytes:
        """Rows of every region, some of them not text."""
        return (
            bytes([ord("a") + number % 26])
            + b"-%d-%d" % (self.seed, number)
            + (b"\x00\xff" if number % 3 == 0 else b"")
        )

    def _put(self, rng: random.Random, row: bytes) -> Logged:
        self.stamp += 1
        qualifier, value = rng.choice([b"q1", b"q2", b"\x01"]), rng.randbytes(rng.choice([0, 5, 200]))
        return row, rng.choice([b"f", b"g"]), qualifier, self.stamp, PUT, value

    def _thrift_put(self, cells: list[Logged]) -> object:
        types = self.cluster.types
        values = [
            types.TColumnValue(family=family, qualifier=qualifier, value=value, timestamp=stamp)
            for _, family, qualifier, stamp, _, value in cells
        ]
        return types.TPut(row=cells[0][0], columnValues=values)

    def _thrift_delete(self, cell: Logged) -> object:
        row, family, qualifier, stamp, kind, _ = cell
        types = self.cluster.types
        names = types.TDeleteType
        wanted = {
            DELETE: names.DELETE_COLUMN,
            DELETE_COLUMN: names.DELETE_COLUMNS,
            DELETE_FAMILY: names.DELETE_FAMILY,
            DELETE_FAMILY_VERSION: names.DELETE_FAMILY_VERSION,
        }
        column = types.TColumn(family=family, qualifier=qualifier or None, timestamp=stamp)
        return types.TDelete(row=row, columns=[column], deleteType=wanted[kind])


@contextmanager
def writing(writers: list[Writer]) -> Iterator[None]:
    """All of them write, each over a connection of its own and past errors, until the block ends."""
    stop = threading.Event()

    def work(writer: Writer) -> None:
        while not stop.is_set():
            try:
                with writer.cluster.client() as client:
                    while not stop.is_set():
                        writer.write(client)
            except (TException, OSError, EOFError):
                continue

    threads = [threading.Thread(target=work, args=(writer,)) for writer in writers]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        stop.set()
        for thread in threads:
            thread.join()
