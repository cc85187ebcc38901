"""Processes over a small HBase: each an open store of its own, with the adapter's own memory of records and read frontiers.

In: a world's seed and options. Out: stores whose views, epoch record, catalog and claim are in a hostile small HBase, by the
adapter that users run. Always: base tables and their log are those of a memory store, which all processes share and which
always answers; base tables in HBase, which others write, are in `mapped.py`. A process that crashes is gone with its memory;
one that is stopped is used by nobody else meanwhile.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from unittest import mock

from tests.support.hostile_hbase import OPTIONS, HostileHBase
from viewkeeper.client.database import Database
from viewkeeper.errors import RowsMoved
from viewkeeper.model.epochs import EpochRecord, record_from_json
from viewkeeper.ports.store import Capabilities
from viewkeeper.stores.catalog_json import CatalogText
from viewkeeper.stores.hbase.client import Connections, parse_address
from viewkeeper.stores.hbase.records import RecordsPart
from viewkeeper.stores.hbase.snapshot_reads import ReadsPart
from viewkeeper.stores.hbase.store import _facts
from viewkeeper.stores.hbase.store_tables import STORE
from viewkeeper.stores.hbase.table_requests import Site
from viewkeeper.stores.kv.kernel import OrderedMap
from viewkeeper.stores.local.memory_store import MemoryStore
from viewkeeper.stores.local.meta import Meta
from viewkeeper.stores.local.placement import fills_from

NAMESPACE, PARTITIONS = "views", 4
META = f"{NAMESPACE}:viewkeeper".encode()
URL = f"hbase://small:9090/{NAMESPACE}?partitions={PARTITIONS}&{OPTIONS}"
FREE_MAX = 3


class WatchedHBase(HostileHBase):
    """Sees each epoch record that is swapped in; refuses one that would fill views from rows that have moved since."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.swapped: Callable[[EpochRecord], None] = lambda record: None
        self.may_have_moved: Callable[[int], bool] = lambda instant: False

    def _checkAndMutate(self, table: bytes, row: bytes, *test: Any) -> bool:
        mutations = test[-1]
        cells = {cell.qualifier: cell.value for one in mutations.mutations for cell in one.put.columnValues}
        if (table, row) != (META, STORE) or b"record" not in cells:
            return super()._checkAndMutate(table, row, *test)
        record = record_from_json(json.loads(cells[b"record"]))
        instant = fills_from(record)
        if instant is not None and self.may_have_moved(instant):
            return False
        is_done = super()._checkAndMutate(table, row, *test)
        if is_done:
            self.swapped(record)
        return is_done

    def record(self) -> EpochRecord:
        """The epoch record as it is, without a request."""
        return record_from_json(json.loads(self._fact(b"record")))

    def _fact(self, name: bytes) -> bytes:
        cells = self.tables[META].visible(STORE, None, None, 1, self.ms)
        return next(cell.value for cell in cells if cell.qualifier == name)


class _Placement(Meta):
    """Of a memory store's meta only where rows are; the epoch record is in HBase."""

    def __init__(self, meta: Meta, nodes: int, hbase: WatchedHBase) -> None:
        super().__init__(lambda: meta.kernel, nodes)
        self._hbase = hbase

    def read_epoch_record(self) -> EpochRecord:
        return self._hbase.record()

    def epoch_record_in(self, meta: OrderedMap) -> EpochRecord:
        return self._hbase.record()


class ProcessStore(RecordsPart, ReadsPart, MemoryStore):
    """The store as one process has it open."""

    def __init__(self, url: str, hbase: WatchedHBase, reading: Callable[[], None]) -> None:
        MemoryStore.__init__(self, url)
        self.meta, self.hbase = _Placement(self.meta, self.layout.nodes, hbase), hbase
        address = parse_address(URL)
        connections = Connections(address)
        self._site = Site(address, connections, *_facts(connections, address, create=True))
        self._catalog_text, self._reading = CatalogText(), reading
        RecordsPart.__init__(self)

    @property
    def capabilities(self) -> Capabilities:
        return Capabilities(
            before_images=self.layout.before_images,
            atomic_group="node",
            held_reads=False,
            is_writable=True,
            many_processes=True,
            poll_seconds=0.05,
        )

    def read_versions(self, *args: Any) -> Any:
        self._reading()
        return super().read_versions(*args)

    def drop(self, table: int) -> None:
        super().drop(table)
        for node in self.nodes:
            node.drop_rows(table)

    def swap_epoch_record(self, expected_version: int, record: EpochRecord) -> bool:
        instant = fills_from(record)
        if instant is not None and self.meta.read_placement().may_have_moved(instant):
            raise RowsMoved("rows have moved to another node since the epoch was planned", "it is planned again")
        return super().swap_epoch_record(expected_version, record)


class Processes:
    """Those of one world; `first` is the one of its users and readers."""

    def __init__(self, hbase: WatchedHBase, options: str, seed: int) -> None:
        self.hbase, self._random = hbase, random.Random(f"processes {seed}")
        self.reading: Callable[[], None] = lambda: None
        self._url = f"memory:hbase-{seed}-{id(self)}?{options}"
        self.first = self._open()
        self.hbase.may_have_moved = lambda instant: self.first.meta.read_placement().may_have_moved(instant)
        self._free: list[ProcessStore] = []
        self._all = [self.first]

    def _open(self) -> ProcessStore:
        """Nobody else does anything meanwhile: who opens a memory store has a lock."""
        with self.hbase.calm(), mock.patch.object(self.hbase, "between", lambda: None):
            return ProcessStore(self._url, self.hbase, lambda: self.reading())

    @contextmanager
    def one(self) -> Iterator[ProcessStore]:
        """A process that nobody else uses: one that did something before, or a new one."""
        if self._free and self._random.random() < 0.9:
            store = self._free.pop(self._random.randrange(len(self._free)))
        else:
            store = self._open()
            self._all.append(store)
        yield store  # whoever raises has crashed, or does not know what it has
        if len(self._free) < FREE_MAX:
            self._free.append(store)

    def close(self) -> None:
        for store in self._all:
            store.close()


@contextmanager
def calm_process(options: str = "nodes=1") -> Iterator[ProcessStore]:
    """The only process of an HBase in which nothing befalls anybody; `options` are those of its base tables."""
    hbase = WatchedHBase(1)
    with hbase.serving():
        processes = Processes(hbase, options, 1)
        yield processes.first
        processes.close()


@contextmanager
def calm_database(options: str = "nodes=1") -> Iterator[Database]:
    """The same, with a database over it."""
    with calm_process(options) as store, Database(store, read_only=False) as db:
        yield db
