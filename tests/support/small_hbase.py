"""A small HBase in this process: the requests of Thrift 2 that ViewKeeper sends, and the WAL files that HBase would write.

In: requests, as `Connections` sends them, and writes of other clients. Out: replies, and WALs in a folder. Always: each
mutation is in a WAL before it is done; a cell is hidden by deletes as HBase hides it. A write of another client may be logged
some moments before readers see it (`begin_write`, `settle`). `reached` is called ahead of every request: whatever others do
between two requests of a store can be made to happen there.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest import mock

from tests.support import wal_files as wal
from tests.support.wal_files import DELETE, DELETE_COLUMN, DELETE_FAMILY, DELETE_FAMILY_VERSION, PUT, Entry, Server
from viewkeeper.stores.hbase import basewrites, staging
from viewkeeper.stores.hbase.connections import Connections, Refused
from viewkeeper.stores.hbase.puts import Puts
from viewkeeper.stores.hbase.thrift import thrift

START_MS = 1_794_937_834_150
CLUSTER = "a-small-hbase"
_KINDS = (DELETE, DELETE_COLUMN, DELETE_FAMILY, DELETE_FAMILY_VERSION)  # by TDeleteType
_OPEN = b"HBASE::REGION_EVENT::REGION_OPEN"


@dataclass(frozen=True, slots=True)
class Stored:
    """A cell, a delete among them; `sequence` rises with each entry of the log."""

    cell: wal.Cell
    sequence: int

    @property
    def place(self) -> tuple[bytes, bytes]:
        return self.cell.family, self.cell.qualifier


@dataclass(slots=True)
class Table:
    described: Any
    borders: list[bytes]
    number: int
    is_enabled: bool = True
    rows: dict[bytes, list[Stored]] = field(default_factory=dict)

    def region(self, row: bytes) -> str:
        """The encoded name of the region that holds a row."""
        return f"{self.number:016x}{sum(border <= row for border in self.borders):016x}"


class SmallHBase:
    """Two region servers and what is in their tables."""

    def __init__(self, root: Path, *, servers: int = 2) -> None:
        (root / "hbase.id").write_text(CLUSTER)
        self.root, self.ms, self.sequence = root, START_MS + 1_000, 0
        self.servers = [Server(root, f"rs{number},16020,{START_MS}", START_MS + 50) for number in range(servers)]
        for server in self.servers:
            server.roll()
        self.tables: dict[bytes, Table] = {}
        self.reached: Callable[[str, Any], None] = lambda request, asked: None  # a request and its first argument
        self._namespaces, self._homes = ["default"], dict[str, Server]()
        self._unseen: list[tuple[bytes, list[Stored]]] = []  # logged, and not visible yet
        self._made, self._lock = 0, threading.RLock()

    @property
    def url(self) -> str:
        return f"hbase://localhost:9090/views?partitions=2&rootdir={self.root.as_uri()}"

    @contextmanager
    def replying(self) -> Iterator[None]:
        """All stores of this process that are in HBase are in this one; who waits for a write to be visible has waited."""

        def ask(connections: Connections, requests: Sequence[tuple[Any, ...]]) -> list[Any]:
            return [self.reply(*request) for request in requests]

        clock = mock.Mock(wraps=staging.time, sleep=self.sleep)
        with (
            mock.patch.object(Connections, "_ask_once", ask),
            mock.patch.object(staging, "time", clock),
            mock.patch.object(basewrites, "time", clock),
            mock.patch.object(staging, "_AT_ONCE", 1),  # so that requests come in one order
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
        if seconds >= staging.VISIBLE_SECONDS:
            self.settle()

    def move(self, table: bytes, row: bytes) -> None:
        """Open a row's region at the other server."""
        region = self.tables[table].region(row)
        server = self._home(region)
        self._homes[region] = self.servers[(self.servers.index(server) + 1) % len(self.servers)]
        self.sequence += 1
        cell = wal.Cell(b"METAROW", b"METAFAMILY", _OPEN, self.ms, PUT, wal.number(1, 0))
        self._home(region).write(Entry(region, _in_wal(table), self.sequence, self.ms, (cell,)))

    def tick(self) -> int:
        """A time that no write has had."""
        self.ms += 1
        return self.ms

    def seen(self, table: bytes) -> dict[bytes, dict[tuple[bytes, bytes], bytes]]:
        """The rows of a table, and of each the newest values of its cells."""
        rows = {row: self._visible(self.tables[table], row, None, None, 1) for row in sorted(self.tables[table].rows)}
        return {row: {(c.family, c.qualifier): c.value for c in cells} for row, cells in rows.items() if cells}

    def written(self, table: bytes, row: bytes) -> list[Stored]:
        """All cells of a row, visible or not."""
        unseen = [one for name, cells in self._unseen if name == table for one in cells if one.cell.row == row]
        return [*self.tables[table].rows.get(row, ()), *unseen]

    # requests for rows

    def _get(self, table: bytes, get: Any) -> Any:
        cells = self._visible(self._known(table), get.row, get.columns, get.timeRange, get.maxVersions or 1)
        return thrift().TResult(row=get.row if cells else None, columnValues=cells)

    def _getMultiple(self, table: bytes, gets: Sequence[Any]) -> list[Any]:
        return [self._get(table, get) for get in gets]

    def _getScannerResults(self, table: bytes, scan: Any, count: int) -> list[Any]:
        known, ranges = self._known(table), _ranges(scan.filterBytes)
        start, stop = scan.startRow or b"", scan.stopRow
        rows = sorted(known.rows, reverse=bool(scan.reversed))
        if scan.reversed:
            rows = [row for row in rows if (not start or row <= start) and (stop is None or row > stop)]
        else:
            rows = [row for row in rows if row >= start and (not stop or row < stop)]
        if ranges is not None:
            rows = [row for row in rows if any(low <= row < high for low, high in ranges)]
        found, is_raw = [], b"_raw_" in (scan.attributes or {})
        for row in rows:
            if is_raw:
                cells = _raw(known.rows[row], {column.family for column in scan.columns})
            else:
                cells = self._visible(known, row, scan.columns, scan.timeRange, scan.maxVersions or 1)
            if cells:
                found.append(thrift().TResult(row=row, columnValues=cells))
            if len(found) == min(count, scan.limit or count):
                break
        return found

    def _put(self, table: bytes, put: Any) -> None:
        self._change(table, _cells_put(put, self.ms))

    def _putMultiple(self, table: bytes, puts: Any) -> None:
        if isinstance(puts, Puts):
            for at, row in enumerate(puts.rows.to_pylist()):
                shown = [(b"c", name, texts[at].as_py()) for name, texts in puts.columns]
                values = [(b"r", b"r", puts.values[at].as_py()), *shown]
                self._change(table, [wal.Cell(row, *one[:2], puts.epoch, PUT, one[2] or b"") for one in values])
            return
        for put in puts:
            self._put(table, put)

    def _deleteSingle(self, table: bytes, delete: Any) -> None:
        self._change(table, self._cells_deleted(table, delete))

    def _deleteMultiple(self, table: bytes, deletes: Sequence[Any]) -> list[Any]:
        for delete in deletes:
            self._deleteSingle(table, delete)
        return []

    def _mutateRow(self, table: bytes, mutations: Any) -> None:
        found: list[wal.Cell] = []
        for one in mutations.mutations:
            found += _cells_put(one.put, self.ms) if one.put else self._cells_deleted(table, one.deleteSingle)
        self._change(table, found)

    def _checkAndMutate(
        self, table: bytes, row: bytes, family: bytes, name: bytes, op: int, value: bytes, new: Any
    ) -> Any:
        column = [thrift().TColumn(family, name)]
        there = next((cell.value for cell in self._visible(self._known(table), row, column, None, 1)), b"")
        is_met = (there == value) == (op == thrift().TCompareOp.EQUAL)
        if is_met:
            self._mutateRow(table, new)
        return is_met

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
        del self.tables[_name(name)]

    def _truncateTable(self, name: Any, keeps_splits: bool) -> None:
        self.tables[_name(name)].rows.clear()
        self.tables[_name(name)].is_enabled = True

    def _disableTable(self, name: Any) -> None:
        self._known(_name(name)).is_enabled = False

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

    def _home(self, region: str) -> Server:
        return self._homes.setdefault(region, self.servers[len(self._homes) % len(self.servers)])

    def _change(self, table: bytes, cells: Sequence[wal.Cell]) -> None:
        self.settle(table)  # what was logged before is visible before
        self._known(table)
        self._store(table, self._log(table, cells))

    def _log(self, table: bytes, cells: Sequence[wal.Cell]) -> list[Stored]:
        region = self._known(table).region(cells[0].row)
        self.sequence += 1
        self._home(region).write(Entry(region, _in_wal(table), self.sequence, self.ms, tuple(cells)))
        return [Stored(cell, self.sequence) for cell in cells]

    def _store(self, table: bytes, cells: Sequence[Stored]) -> None:
        for one in cells:
            self.tables[table].rows.setdefault(one.cell.row, []).append(one)

    def _cells_deleted(self, table: bytes, delete: Any) -> list[wal.Cell]:
        if not delete.columns:
            families = [family.name for family in self._known(table).described.columns]
            stamp = self.ms if delete.timestamp is None else delete.timestamp
            return [wal.Cell(delete.row, family, b"", stamp, DELETE_FAMILY, b"") for family in families]
        kind = _KINDS[thrift().TDeleteType.DELETE_COLUMNS if delete.deleteType is None else delete.deleteType]
        return [
            wal.Cell(delete.row, one.family, one.qualifier or b"", one.timestamp or self.ms, kind, b"")
            for one in delete.columns
        ]

    def _visible(self, table: Table, row: bytes, columns: Any, times: Any, versions: int) -> list[Any]:
        """The cells of a row that no delete hides, newest first, up to so many of each column."""
        stored = table.rows.get(row, ())
        deletes = [one.cell for one in stored if one.cell.kind != PUT]
        found = []
        for place in sorted({one.place for one in stored if one.cell.kind == PUT}):
            if columns and not any(place[0] == c.family and c.qualifier in (None, place[1]) for c in columns):
                continue
            newest = {one.cell.timestamp: one.cell for one in stored if one.place == place and one.cell.kind == PUT}
            shown = [cell for cell in newest.values() if not any(_hides(delete, cell) for delete in deletes)]
            if times is not None:
                shown = [cell for cell in shown if times.minStamp <= cell.timestamp < times.maxStamp]
            found += sorted(shown, key=lambda cell: -cell.timestamp)[:versions]
        return [_column_value(cell) for cell in found]


def _hides(delete: wal.Cell, cell: wal.Cell) -> bool:
    if delete.family != cell.family:
        return False
    is_older = cell.timestamp <= delete.timestamp
    if delete.kind in (DELETE, DELETE_FAMILY_VERSION):
        is_older = cell.timestamp == delete.timestamp
    return is_older and (delete.kind in (DELETE_FAMILY, DELETE_FAMILY_VERSION) or delete.qualifier == cell.qualifier)


def _raw(stored: Sequence[Stored], families: set[bytes]) -> list[Any]:
    """All cells, newest first within a column; of several with one timestamp deletes come first, then what was put last."""
    wanted = [one for one in stored if one.cell.family in families]
    ordered = sorted(wanted, key=lambda one: (one.place, -one.cell.timestamp, -one.cell.kind, -one.sequence))
    return [_column_value(one.cell) for one in ordered]


def _column_value(cell: wal.Cell) -> Any:
    return thrift().TColumnValue(cell.family, cell.qualifier, cell.value, cell.timestamp, None, cell.kind)


def _cells_put(put: Any, ms: int) -> list[wal.Cell]:
    """Two values of one cell in a put: the last counts, as it is stored later."""
    stamp = ms if put.timestamp is None else put.timestamp
    return [
        wal.Cell(put.row, c.family, c.qualifier, stamp if c.timestamp is None else c.timestamp, PUT, c.value)
        for c in put.columnValues
    ]


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
