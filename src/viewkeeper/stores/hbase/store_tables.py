"""The HBase tables of a store: the meta table with its small facts, and the register of the tables that hold records.

In: names and bytes; table ids. Out: the same bytes; names of HBase tables: `NAMESPACE:viewkeeper` is the meta table,
`NAMESPACE:view.ID` holds a view's own records, `NAMESPACE:vk.ID` others. Always: a fact that others change too is
replaced by test-and-set, and HBase gives the new cell a timestamp that is not below the old one's, whatever its clocks
do; the others are put blindly. A name is registered once its table is made, and never changes; the id of a dropped
table stays registered as dropped, so what is written to it late is nobody's. A partition is a region of its own.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from viewkeeper.errors import StoreUnavailable
from viewkeeper.stores.hbase.client import Connections, Refused
from viewkeeper.stores.hbase.thrift_cells import COLUMNS, FOREVER, RECORD, VERSIONS_MAX, thrift

FAMILY = b"m"
STORE, TABLES, NOTES, LOG = b"store", b"tables", b"notes", b"log"  # row keys
OUTSIDE, REGIONS = b"outside", b"regions"
PLAN = b"plan/"  # how those of plans begin


class MetaTable:
    """The table's rows; names are those of columns."""

    def __init__(self, connections: Connections, namespace: str) -> None:
        self._connections = connections
        self.table = f"{namespace}:viewkeeper".encode()

    def cells(self, row: bytes, *names: str) -> dict[str, Any]:
        """Those that are there, with their timestamps; without names all of the row."""
        found = self._connections.ask(*self.get_of(row, *names))
        return {cell.qualifier.decode(): cell for cell in found.columnValues}

    def get_of(self, row: bytes, *names: str) -> tuple[Any, ...]:
        """The request for them."""
        columns = [thrift().TColumn(FAMILY, name.encode()) for name in names] or [thrift().TColumn(FAMILY)]
        return "get", self.table, thrift().TGet(row=row, columns=columns)

    def read(self, row: bytes, *names: str) -> dict[str, bytes]:
        return {name: cell.value for name, cell in self.cells(row, *names).items()}

    def put(self, row: bytes, name: str, value: bytes, stamp: int | None = None) -> None:
        self.put_all(row, {name: value}, stamp)

    def put_all(self, row: bytes, values: Mapping[str, bytes], stamp: int | None = None) -> None:
        self._connections.ask("put", self.table, _put(row, values, stamp))

    def delete(self, row: bytes, names: Mapping[str, int]) -> None:
        """Delete these, as far as their timestamps are not above the given ones."""
        columns = [thrift().TColumn(FAMILY, name.encode(), timestamp=stamp) for name, stamp in names.items()]
        kind = thrift().TDeleteType.DELETE_COLUMNS
        self._connections.ask("deleteSingle", self.table, thrift().TDelete(row=row, columns=columns, deleteType=kind))

    def swap(self, row: bytes, name: str, expected: bytes, values: Mapping[str, bytes]) -> bool:
        """Put the values if the named one is as expected; b"" also expects that there is none. Sent once."""
        return self._connections.ask_once("checkAndMutate", *self._swap(row, name, expected, values))

    def swap_surely(self, row: bytes, name: str, expected: bytes, values: Mapping[str, bytes]) -> None:
        """The same, where a repetition does no harm: the named one never becomes as expected again."""
        self._connections.ask("checkAndMutate", *self._swap(row, name, expected, values))

    def _swap(self, row: bytes, name: str, expected: bytes, values: Mapping[str, bytes]) -> tuple[object, ...]:
        mutation = thrift().TMutation(put=_put(row, values))
        mutations = thrift().TRowMutations(row=row, mutations=[mutation])
        return self.table, row, FAMILY, name.encode(), thrift().TCompareOp.EQUAL, expected, mutations

    def cells_from(self, start: bytes, stop: bytes, name: str) -> dict[bytes, Any]:
        """Those of one name in a range of rows, by row."""
        scan = thrift().TScan(startRow=start, stopRow=stop, columns=[thrift().TColumn(FAMILY, name.encode())])
        found = self._connections.ask("getScannerResults", self.table, scan, 1 << 20)
        return {result.row: cell for result in found for cell in result.columnValues}


def _put(row: bytes, values: Mapping[str, bytes], stamp: int | None = None) -> Any:
    cells = [thrift().TColumnValue(FAMILY, name.encode(), value) for name, value in values.items()]
    return thrift().TPut(row=row, columnValues=cells, timestamp=stamp)


JOURNAL = 0  # the table of the journal; those of records have greater ids
_DROPPED, _ANEW = b"-", "anew"
_READY_SECONDS_MAX = 120.0
_LOOK_SECONDS = 0.1


class Tables:
    """The register of a store's tables, as last read: what it lacks is read again."""

    def __init__(self, connections: Connections, rows: MetaTable, namespace: str, partitions: int) -> None:
        self._connections = connections
        self._rows = rows
        self._namespace = namespace
        self._partitions = partitions
        self._known: dict[str, bytes] = {}

    @property
    def anew(self) -> int:
        """The epoch with which views last started anew: older versions are not read."""
        return int(self._known.get(_ANEW, b"0"))

    def name_of(self, table: int) -> bytes | None:
        """The HBase table of a table; None where none was made yet, or it was dropped."""
        name = self._known.get(str(table)) or self.look().get(str(table))
        return None if name == _DROPPED else name

    def look(self) -> dict[str, bytes]:
        """Read the register."""
        self._known = self._rows.read(TABLES)
        return self._known

    def is_dropped(self, table: int) -> bool:
        """Whether it is now."""
        return self.look().get(str(table)) == _DROPPED

    def make(self, table: int, *, shows: bool) -> bytes | None:
        """The HBase table of a table, made where there is none; None where the table was dropped."""
        if str(table) in self.look():
            return self.name_of(table)
        name = f"{self._namespace}:{'view' if shows else 'vk'}.{table}".encode()
        create_table(self._connections, name, [RECORD, COLUMNS] if shows else [RECORD], self._partitions, VERSIONS_MAX)
        self._rows.swap_surely(TABLES, str(table), b"", {str(table): name})
        if self.look()[str(table)] != name:  # another one was faster, by another catalog, or dropped it
            drop_table(self._connections, name)
        return self.name_of(table)

    def drop(self, table: int) -> None:
        """From here on nobody finds it."""
        while (name := self.look().get(str(table), b"")) != _DROPPED:
            self._rows.swap_surely(TABLES, str(table), name, {str(table): _DROPPED})
        for kind in ("view", "vk"):
            drop_table(self._connections, f"{self._namespace}:{kind}.{table}".encode())

    def start_anew(self, epoch: int) -> None:
        """Remove all records; from here on those of epochs before `epoch` are not read."""
        self._rows.put(TABLES, _ANEW, b"%d" % epoch, epoch)
        for name in {name for table, name in self.look().items() if table != _ANEW and name != _DROPPED}:
            truncate_table(self._connections, name)


def is_shown(name: bytes) -> bool:
    """Whether an HBase table was made for the records of a view, with its columns beside them."""
    return b":view." in name


def create_table(connections: Connections, name: bytes, families: list[bytes], partitions: int, versions: int) -> None:
    """Make a table of HBase that keeps cells for ever, unless it is there."""
    described = [
        thrift().TColumnFamilyDescriptor(name=family, maxVersions=versions, timeToLive=FOREVER) for family in families
    ]
    table = thrift().TTableDescriptor(tableName=_table_name(name), columns=described)
    borders = [bytes((partition,)) for partition in range(1, partitions)]
    if not table_exists(connections, name):
        try:
            connections.ask_once("createTable", table, borders)
        except (Refused, StoreUnavailable):  # another one makes it, or the reply got lost
            if not table_exists(connections, name):
                raise
    until = time.monotonic() + _READY_SECONDS_MAX
    while not connections.ask("isTableAvailable", _table_name(name)):
        if time.monotonic() > until:
            raise StoreUnavailable(f"HBase does not bring {name.decode()} into use", "look at its master")
        time.sleep(_LOOK_SECONDS)


def table_exists(connections: Connections, name: bytes) -> bool:
    return connections.ask("tableExists", _table_name(name))


def is_enabled(connections: Connections, name: bytes) -> bool:
    """Whether a table is in use; Refused where there is none."""
    return connections.ask("isTableEnabled", _table_name(name))


def describe_table(connections: Connections, name: bytes) -> Any:
    """The description of a table that exists."""
    return connections.ask("getTableDescriptor", _table_name(name))


def drop_table(connections: Connections, name: bytes) -> None:
    """Remove a table, if it is there; one that another process is removing is left to it."""
    with suppress(Refused):
        if table_exists(connections, name):
            _disable(connections, name)
            connections.ask("deleteTable", _table_name(name))


def truncate_table(connections: Connections, name: bytes) -> None:
    _disable(connections, name)
    connections.ask("truncateTable", _table_name(name), True)


def _disable(connections: Connections, name: bytes) -> None:
    with suppress(Refused):  # it is disabled already
        connections.ask("disableTable", _table_name(name))


def _table_name(name: bytes) -> Any:
    namespace, _, qualifier = name.rpartition(b":")
    return thrift().TTableName(ns=namespace or b"default", qualifier=qualifier)
