"""A small HBase in this process: the requests of Thrift 2 that ViewKeeper sends, and the WAL files that HBase would write.

In: requests, as `Connections` sends them, and writes of other clients. Out: replies, and WALs in a folder. Always: each
mutation is in a WAL before it is done, if there is a folder; rows are those of `hbase_rows.py`. A write of another client may
be logged some moments before readers see it (`begin_write`, `settle`). `reached` is called ahead of every request: whatever
others do between two requests of a store can be made to happen there. `hostile_hbase.py` puts a bad network before it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial, partialmethod
from pathlib import Path
from typing import Any
from unittest import mock

from tests.support import wal_files as wal
from tests.support.hbase_rows import Stored, Table, raw_cells
from tests.support.wal_files import DELETE, DELETE_COLUMN, DELETE_FAMILY, DELETE_FAMILY_VERSION, PUT, Entry, Server
from viewkeeper.errors import InputError
from viewkeeper.stores.hbase import base_writes, snapshot_copy
from viewkeeper.stores.hbase.client import Connections, Refused
from viewkeeper.stores.hbase.thrift_cells import Puts, thrift

START_MS = 1_794_937_834_150
CLUSTER = "a-small-hbase"
_KINDS = (DELETE, DELETE_COLUMN, DELETE_FAMILY, DELETE_FAMILY_VERSION)  # by TDeleteType
_OPEN = b"HBASE::REGION_EVENT::REGION_OPEN"


Mutation = Callable[[], None]  # of one row, done when it is called


class SmallHBase:
    """Two region servers and what is in their tables; without a folder they write no logs."""

    def __init__(self, root: Path | None, *, servers: int = 2) -> None:
        self.root, self.ms, self.sequence = root, START_MS + 1_000, 0
        if root is not None:
            (root / "hbase.id").write_text(CLUSTER)
        folder = root or Path()
        self.servers = [Server(folder, f"rs{number},16020,{START_MS}", START_MS + 50) for number in range(servers)]
        for server in self.servers if root is not None else ():
            server.roll()
        self.tables: dict[bytes, Table] = {}
        self.reached: Callable[[str, Any], None] = lambda request, asked: None  # a request and its first argument
        self._namespaces, self._homes = ["default"], dict[str, Server]()
        self._unseen: list[tuple[bytes, list[Stored]]] = []  # logged, and not visible yet
        self._made, self._lock = 0, threading.RLock()

    @property
    def url(self) -> str:
        assert self.root is not None
        return f"hbase://localhost:9090/views?partitions=2&rootdir={self.root.as_uri()}"

    @contextmanager
    def replying(self) -> Iterator[None]:
        """All stores of this process that are in HBase are in this one; who waits for a write to be visible has waited."""

        def ask(connections: Connections, requests: Sequence[tuple[Any, ...]]) -> list[Any]:
            if connections._is_closed:
                raise InputError("the database is closed", "connect again")
            return [self.reply(*request) for request in requests]

        clock = mock.Mock(wraps=snapshot_copy.time, sleep=self.sleep)
        with (
            mock.patch.object(Connections, "_ask_once", ask),
            mock.patch.object(snapshot_copy, "time", clock),
            mock.patch.object(base_writes, "time", clock),
            mock.patch.object(snapshot_copy, "_PARTS_AT_ONCE", 1),  # so that requests come in one order
        ):
            yield

    def reply(self, request: str, *arguments: Any) -> Any:
        with self._lock:
            self.reached(request, arguments[0] if arguments else None)
            return getattr(self, f"_{request}")(*arguments)

    # what other clients do

    def create(self, name: bytes, families: Sequence[bytes], borders: Sequence[bytes] = ()) -> None:
        described = [thrift().TColumnFamilyDescriptor(name=family) for family in families]
        namespace, _, own = name.rpartition(b":")
        table_name = thrift().TTableName(ns=namespace or b"default", qualifier=own)
        self._createTable(thrift().TTableDescriptor(tableName=table_name, columns=described), list(borders))

    def begin_write(self, table: bytes, cells: Sequence[wal.Cell]) -> None:
        """Log cells of one row; readers see them when they have settled."""
        self._unseen.append((table, self._log(table, cells)))

    def settle(self, only: bytes | None = None) -> None:
        """Readers see what was logged, of all tables or of one."""
        for table, cells in self._unseen:
            if only in (None, table):
                self._store(table, cells)
        self._unseen = [one for one in self._unseen if only not in (None, one[0])]

    def sleep(self, seconds: float) -> None:
        if seconds >= snapshot_copy.VISIBLE_SECONDS:
            self.settle()

    def move(self, table: bytes, row: bytes) -> None:
        """Open a row's region at the other server."""
        region = self.tables[table].region(row)
        server = self.home(region)
        self._homes[region] = self.servers[(self.servers.index(server) + 1) % len(self.servers)]
        self.sequence += 1
        cell = wal.Cell(b"METAROW", b"METAFAMILY", _OPEN, self.ms, PUT, wal.number(1, 0))
        self._write(region, table, (cell,))

    def tick(self) -> int:
        """A time that no write has had."""
        self.ms += 1
        return self.ms

    def seen(self, table: bytes) -> dict[bytes, dict[tuple[bytes, bytes], bytes]]:
        """The rows of a table, and of each the newest values of its cells."""
        known = self.tables[table]
        rows = {row: known.visible(row, None, None, 1, self.ms) for row in known.keys}
        return {row: {(c.family, c.qualifier): c.value for c in cells} for row, cells in rows.items() if cells}

    def written(self, table: bytes, row: bytes) -> list[Stored]:
        """All cells of a row, visible or not."""
        unseen = [one for name, cells in self._unseen if name == table for one in cells if one.cell.row == row]
        known = self.tables[table].rows.get(row)
        return [*(known.stored if known else ()), *unseen]

    # requests for rows

    def _get(self, table: bytes, get: Any) -> Any:
        cells = self._served(table).visible(get.row, get.columns, get.timeRange, get.maxVersions or 1, self.ms)
        return thrift().TResult(row=get.row if cells else None, columnValues=_replied(cells))

    def _getMultiple(self, table: bytes, gets: Sequence[Any]) -> list[Any]:
        return [self._get(table, get) for get in gets]

    def _getScannerResults(self, table: bytes, scan: Any, count: int) -> list[Any]:
        known, ranges = self._served(table), _ranges(scan.filterBytes)
        start, stop = scan.startRow or b"", scan.stopRow
        rows = known.walk_back(start, stop) if scan.reversed else known.walk(start, stop)
        if ranges is not None:
            rows = (row for row in rows if any(low <= row < high for low, high in ranges))
        found, is_raw = [], b"_raw_" in (scan.attributes or {})
        for row in rows:
            if is_raw:
                cells = raw_cells(known.rows[row], {column.family for column in scan.columns})
            else:
                cells = known.visible(row, scan.columns, scan.timeRange, scan.maxVersions or 1, self.ms)
            if cells:
                found.append(thrift().TResult(row=row, columnValues=_replied(cells)))
            if len(found) == min(count, scan.limit or count):
                break
        return found

    def mutations(self, request: str, table: bytes, asked: Any) -> list[tuple[bytes, Mutation]]:
        """What a request does to each row, by the row; each may be done by itself, and late."""
        match request:
            case "put":
                return [(asked.row, lambda: self._change(table, self._cells_put(table, asked)))]
            case "deleteSingle":
                return [(asked.row, lambda: self._change(table, self._cells_deleted(table, asked)))]
            case "mutateRow":
                return [(asked.row, lambda: self._mutate(table, asked))]
            case "putMultiple" if isinstance(asked, Puts):
                return [(cells[0].row, partial(self._change, table, cells)) for cells in _versions_put(asked)]
        single = {"putMultiple": "put", "deleteMultiple": "deleteSingle"}[request]
        return [one for part in asked for one in self.mutations(single, table, part)]

    def _mutate_each(self, request: str, table: bytes, asked: Any) -> None:
        for _, mutate in self.mutations(request, table, asked):
            mutate()

    _put = partialmethod(_mutate_each, "put")
    _putMultiple = partialmethod(_mutate_each, "putMultiple")
    _deleteSingle = partialmethod(_mutate_each, "deleteSingle")
    _mutateRow = partialmethod(_mutate_each, "mutateRow")

    def _deleteMultiple(self, table: bytes, deletes: Sequence[Any]) -> list[Any]:
        self._mutate_each("deleteMultiple", table, deletes)
        return []

    def _checkAndMutate(
        self, table: bytes, row: bytes, family: bytes, name: bytes, op: int, value: bytes, new: Any
    ) -> Any:
        """What is put has a timestamp that is not below that of the cell that was tested. It waits for the row's writers."""
        self.settle(table)
        column = [thrift().TColumn(family, name)]
        there = next(iter(self._served(table).visible(row, column, None, 1, self.ms)), None)
        is_met = ((there.value if there else b"") == value) == (op == thrift().TCompareOp.EQUAL)
        if is_met:
            self._mutate(table, new, there.timestamp if there else 0)
        return is_met

    def _mutate(self, table: bytes, mutations: Any, not_before: int = 0) -> None:
        found: list[wal.Cell] = []
        for one in mutations.mutations:
            cells = self._cells_put(table, one.put, not_before) if one.put else None
            found += self._cells_deleted(table, one.deleteSingle) if cells is None else cells
        self._change(table, found)

    # requests for tables

    def _createTable(self, described: Any, borders: list[bytes]) -> None:
        name = _name(described.tableName)
        if name in self.tables:
            raise Refused(f"{name.decode()} exists")
        self._made += 1
        self.tables[name] = Table(described, sorted(borders or []), self._made)

    def _isTableAvailable(self, name: Any) -> bool:
        return _name(name) in self.tables

    _tableExists = _isTableAvailable

    def _isTableEnabled(self, name: Any) -> bool:
        return self._known(_name(name)).is_enabled

    def _getTableDescriptor(self, name: Any) -> Any:
        return self._known(_name(name)).described

    def _deleteTable(self, name: Any) -> None:
        self._require_disabled(name)
        del self.tables[_name(name)]

    def _truncateTable(self, name: Any, keeps_splits: bool) -> None:
        self._require_disabled(name).clear()
        self.tables[_name(name)].is_enabled = True

    def _disableTable(self, name: Any) -> None:
        self._served(_name(name)).is_enabled = False

    def _require_disabled(self, name: Any) -> Table:
        if (known := self._known(_name(name))).is_enabled:
            raise Refused(f"{_name(name).decode()} is in use")
        return known

    def _listNamespaces(self) -> list[str]:
        return list(self._namespaces)

    def _createNamespace(self, described: Any) -> None:
        self._namespaces.append(described.name)

    def _getClusterId(self) -> str:
        return CLUSTER

    def _getAllRegionLocations(self, table: bytes) -> list[Any]:
        starts = [b"", *self._known(table).borders]
        infos = [thrift().THRegionInfo(regionId=1, tableName=table, startKey=start) for start in starts]
        return [thrift().THRegionLocation(regionInfo=info) for info in infos]

    # rows

    def _known(self, table: bytes) -> Table:
        if table not in self.tables:
            raise Refused(f"there is no table {table.decode()}")
        return self.tables[table]

    def _served(self, table: bytes) -> Table:
        """A table whose rows can be read and written."""
        if not (known := self._known(table)).is_enabled:
            raise Refused(f"{table.decode()} is disabled")
        return known

    def home(self, region: str) -> Server:
        return self._homes.setdefault(region, self.servers[len(self._homes) % len(self.servers)])

    def _change(self, table: bytes, cells: Sequence[wal.Cell]) -> None:
        self.settle(table)  # what was logged before is visible before
        self._served(table)
        self._store(table, self._log(table, cells))

    def _log(self, table: bytes, cells: Sequence[wal.Cell]) -> list[Stored]:
        region = self._known(table).region(cells[0].row)
        self.sequence += 1
        self._write(region, table, cells)
        return [Stored(cell, self.sequence) for cell in cells]

    def _write(self, region: str, table: bytes, cells: Sequence[wal.Cell]) -> None:
        server = self.home(region)
        if self.root is not None:
            server.write(Entry(region, _in_wal(table), self.sequence, self.ms, tuple(cells)))

    def _store(self, table: bytes, cells: Sequence[Stored]) -> None:
        self.tables[table].store(cells)

    def now_ms(self, table: bytes, row: bytes) -> int:
        """By the clock of the server that has the row."""
        return self.ms

    def _cells_put(self, table: bytes, put: Any, not_before: int = 0) -> list[wal.Cell]:
        """Two values of one cell in a put: the last counts, as it is stored later."""
        stamp = max(not_before, self.now_ms(table, put.row)) if put.timestamp is None else put.timestamp
        return [
            wal.Cell(put.row, c.family, c.qualifier, stamp if c.timestamp is None else c.timestamp, PUT, c.value)
            for c in put.columnValues
        ]

    def _cells_deleted(self, table: bytes, delete: Any) -> list[wal.Cell]:
        now = self.now_ms(table, delete.row)
        if not delete.columns:
            families = [family.name for family in self._known(table).described.columns]
            stamp = now if delete.timestamp is None else delete.timestamp
            return [wal.Cell(delete.row, family, b"", stamp, DELETE_FAMILY, b"") for family in families]
        kind = _KINDS[thrift().TDeleteType.DELETE_COLUMNS if delete.deleteType is None else delete.deleteType]
        return [
            wal.Cell(delete.row, one.family, one.qualifier or b"", one.timestamp or now, kind, b"")
            for one in delete.columns
        ]


def _versions_put(puts: Puts) -> Iterator[list[wal.Cell]]:
    rows, values = puts.rows.to_pylist(), puts.values.to_pylist()
    shown = [(name, texts.to_pylist()) for name, texts in puts.columns]
    for at, row in enumerate(rows):
        columns = [wal.Cell(row, b"c", name, puts.epoch, PUT, texts[at] or b"") for name, texts in shown]
        yield [wal.Cell(row, b"r", b"r", puts.epoch, PUT, values[at] or b""), *columns]


def _replied(cells: Sequence[wal.Cell]) -> list[Any]:
    make = thrift().TColumnValue
    return [make(cell.family, cell.qualifier, cell.value, cell.timestamp, None, cell.kind) for cell in cells]


def _name(name: Any) -> bytes:
    return name.qualifier if name.ns in (None, b"default") else name.ns + b":" + name.qualifier


def _in_wal(table: bytes) -> str:
    return table.decode().removeprefix("default:")


def _ranges(value: bytes | None) -> list[tuple[bytes, bytes]] | None:
    """Those of a MultiRowRangeFilter, from its protobuf."""
    if value is None:
        return None
    (body,) = [found for number, found in _fields(value) if number == 2]
    each = [dict(_fields(one)) for _, one in _fields(body)]
    return [(one.get(1, b""), one.get(3, b"")) for one in each]


def _fields(value: bytes) -> Iterator[tuple[int, Any]]:
    at = 0
    while at < len(value):
        key, at = _varint(value, at)
        size, at = _varint(value, at)
        if key & 7 == 2:
            yield key >> 3, value[at : at + size]
            at += size
        else:
            yield key >> 3, size


def _varint(value: bytes, at: int) -> tuple[int, int]:
    found = shift = 0
    while True:
        found |= (value[at] & 0x7F) << shift
        shift, at = shift + 7, at + 1
        if value[at - 1] < 0x80:
            return found, at
