"""The HBase tables of a store: the meta table with its small facts, and the register of the tables that hold records.

In: names and bytes; table ids. Out: the same bytes; names of HBase tables: `NAMESPACE:viewkeeper` is the meta table,
`NAMESPACE:view.ID` holds a view's own records, `NAMESPACE:vk.ID` others. Always: a fact that others change too is
replaced by test-and-set (HBase never gives the new cell a lower timestamp than the old one's); other facts are put
blindly. A name is registered once its table is made, and never changes; the id of a dropped table stays registered as
dropped, so late writes find no table. A partition is a region of its own.
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
    """The rows of the meta table; names are column names."""

    def __init__(self, connections: Connections, namespace: str) -> None:
        self._connections = connections
        self.table = f"{namespace}:viewkeeper".encode()

    def cells(self, row: bytes, *names: str) -> dict[str, Any]:
        """The cells that the row has of these names, or of all."""
        found = self._connections.ask(*self.get_of(row, *names))
        return {cell.qualifier.decode(): cell for cell in found.columnValues}

    def get_of(self, row: bytes, *names: str) -> tuple[Any, ...]:
        columns = [thrift().TColumn(FAMILY, name.encode()) for name in names] or [thrift().TColumn(FAMILY)]
        return "get", self.table, thrift().TGet(row=row, columns=columns)

    def read(self, row: bytes, *names: str) -> dict[str, bytes]:
        return {name: cell.value for name, cell in self.cells(row, *names).items()}

    def put(self, row: bytes, values: Mapping[str, bytes], stamp: int | None = None) -> None:
        self._connections.ask("put", self.table, _put(row, values, stamp))

    def delete(self, row: bytes, names: Mapping[str, int]) -> None:
        """Delete the cells of these names up to the given timestamps."""
        columns = [thrift().TColumn(FAMILY, name.encode(), timestamp=stamp) for name, stamp in names.items()]
        kind = thrift().TDeleteType.DELETE_COLUMNS
        self._connections.ask("deleteSingle", self.table, thrift().TDelete(row=row, columns=columns, deleteType=kind))

    def swap(
        self, row: bytes, name: str, expected: bytes, values: Mapping[str, bytes], *, repeats: bool = False
    ) -> bool:
        """Put the values if the named one is as expected; b"" also expects that there is none.

        `repeats`: send it again where the reply got lost. Only right where the named one never gets that value again.
        """
        ask = self._connections.ask if repeats else self._connections.ask_once
        mutations = thrift().TRowMutations(row=row, mutations=[thrift().TMutation(put=_put(row, values))])
        test = FAMILY, name.encode(), thrift().TCompareOp.EQUAL, expected
        return ask("checkAndMutate", self.table, row, *test, mutations)

    def cells_from(self, start: bytes, stop: bytes, name: str) -> dict[bytes, Any]:
        """The cells of one name in a range of rows, by row."""
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
    """The register of a store's tables as last read; a table that it lacks has it read again."""

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
        self._known = self._rows.read(TABLES)
        return self._known

    def is_dropped(self, table: int) -> bool:
        """Whether the register, read now, has it as dropped."""
        return self.look().get(str(table)) == _DROPPED

    def make(self, table: int, *, shows: bool) -> bytes | None:
        """The HBase table of a table, made where there is none; None where the table was dropped."""
        if str(table) in self.look():
            return self.name_of(table)
        name = f"{self._namespace}:{'view' if shows else 'vk'}.{table}".encode()
        create_table(self._connections, name, [RECORD, COLUMNS] if shows else [RECORD], self._partitions, VERSIONS_MAX)
        self._rows.swap(TABLES, str(table), b"", {str(table): name}, repeats=True)
        if self.look()[str(table)] != name:  # another one was faster, by another catalog, or dropped it
            drop_table(self._connections, name)
        return self.name_of(table)

    def drop(self, table: int) -> None:
        """Register the table as dropped, and remove its HBase table."""
        while (name := self.look().get(str(table), b"")) != _DROPPED:
            self._rows.swap(TABLES, str(table), name, {str(table): _DROPPED}, repeats=True)
        for kind in ("view", "vk"):
            drop_table(self._connections, f"{self._namespace}:{kind}.{table}".encode())

    def start_anew(self, epoch: int) -> list[int]:
        """From here on versions of epochs before `epoch` are not read; returns the tables that may have some."""
        self._rows.put(TABLES, {_ANEW: b"%d" % epoch}, epoch)
        return [int(table) for table, name in self.look().items() if table != _ANEW and name != _DROPPED]


def is_shown(name: bytes) -> bool:
    """Whether an HBase table holds the records of a view, and its columns beside them."""
    return b":view." in name


def create_table(connections: Connections, name: bytes, families: list[bytes], partitions: int, versions: int) -> None:
    """Make an HBase table that keeps cells for ever, unless it is there; wait until it can be used."""
    described = [
        thrift().TColumnFamilyDescriptor(name=family, maxVersions=versions, timeToLive=FOREVER) for family in families
    ]
    table = thrift().TTableDescriptor(tableName=table_name(name), columns=described)
    borders = [bytes((partition,)) for partition in range(1, partitions)]
    if not table_exists(connections, name):
        try:
            connections.ask_once("createTable", table, borders)
        except (Refused, StoreUnavailable):  # another one makes it, or the reply got lost
            if not table_exists(connections, name):
                raise
    until = time.monotonic() + _READY_SECONDS_MAX
    while not connections.ask("isTableAvailable", table_name(name)):
        if time.monotonic() > until:
            raise StoreUnavailable(f"HBase does not bring {name.decode()} into use", "look at its master")
        time.sleep(_LOOK_SECONDS)


def table_exists(connections: Connections, name: bytes) -> bool:
    return connections.ask("tableExists", table_name(name))


def drop_table(connections: Connections, name: bytes) -> None:
    """Remove a table, if it is there and no other process is removing it."""
    with suppress(Refused):
        if table_exists(connections, name):
            with suppress(Refused):  # it is disabled already
                connections.ask("disableTable", table_name(name))
            connections.ask("deleteTable", table_name(name))


def table_name(name: bytes) -> Any:
    namespace, _, qualifier = name.rpartition(b":")
    return thrift().TTableName(ns=namespace or b"default", qualifier=qualifier)
