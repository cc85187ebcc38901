"""The rows of `NAMESPACE:viewkeeper`, in which a store keeps its few small facts.

In: names and bytes. Out: the same. Always: a fact that others change too is replaced by test-and-set, and HBase gives the
new cell a timestamp that is not below the old one's, whatever its clocks do; the others are put blindly.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from viewkeeper.stores.hbase.connections import Connections
from viewkeeper.stores.hbase.thrift import thrift

FAMILY = b"m"
STORE, TABLES, NOTES, LOG = b"store", b"tables", b"notes", b"log"  # row keys
OUTSIDE, REGIONS = b"outside", b"regions"
PLAN = b"plan/"  # how those of plans begin


class MetaRows:
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
