"""Tables of HBase whose users know nothing of views: how they are made, mapped, and read by a plain Thrift client.

In: a running HBase. Out: the statements that map the tables, and their rows as any client sees them. Always: nothing of
ViewKeeper's codecs or readers is used; a row is there if a mapped cell is, and left out if one of these is not readable.
"""

from __future__ import annotations

import re
import struct
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import pyarrow as pa
from thriftpy2.thrift import TException

from tests.support.services.hbase import Cluster

FAMILIES = (b"f", b"d")
VERSIONS = 3
_SCANNED = 5_000  # rows at once
_ATTEMPTS = 5


@dataclass(frozen=True, slots=True)
class Column:
    """A mapped cell: its SQL type, where it is, and how a client reads it; ValueError where it is none of the type."""

    sql: str
    cell: str
    arrow: pa.DataType
    read: Callable[[bytes], object]
    encoding: str = "text"

    @property
    def place(self) -> tuple[bytes, bytes]:
        family, _, qualifier = self.cell.partition(":")
        return family.encode(), qualifier.encode()


def _read_int(value: bytes) -> int:
    if not re.fullmatch(rb"-?[0-9]+", value):
        raise ValueError(value)
    return int(value)


def _read_long(value: bytes) -> int:
    if len(value) != 8:
        raise ValueError(value)
    return int(struct.unpack(">q", value)[0])


def _text(cell: str) -> Column:
    return Column("STRING", cell, pa.string(), bytes.decode)


def _int(cell: str) -> Column:
    return Column("INT", cell, pa.int32(), _read_int)


_LONG = Column("BIGINT", "d:n", pa.int64(), _read_long, "bytes")
_L = {
    "j": _text("f:j"),
    "x": _int("f:x"),
    "f": Column("DOUBLE", "f:f", pa.float64(), float),
    "a": Column("DECIMAL(38,0)", "d:a", pa.decimal128(38, 0), lambda value: Decimal(value.decode())),
    "s": _text("d:s"),
}
_R = {"j": _text("f:j"), "y": _int("f:y"), "n": _LONG}
_BIG = {"g": _text("f:g"), "v": _int("f:v")}
# The mapped tables: whose rows they show, and which columns. Three are mappings of `l`; clients write to `l`, `r`, `big`.
MAPPINGS: dict[str, tuple[str, dict[str, Column]]] = {
    "l": ("l", _L),
    "r": ("r", _R),
    "big": ("big", _BIG),
    "narrow": ("l", {"x": _L["x"]}),
    "wide": ("l", {name: _L[name] for name in ("s", "a", "j")}),
}
BORDERS = {"l": [b"h", b"p"], "r": [b"m"], "big": [b"%02x" % (place * 32) for place in range(1, 8)]}
Rows = dict[bytes, dict[tuple[bytes, bytes], bytes]]


@dataclass(frozen=True, slots=True)
class UserTables:
    """The tables `l`, `r` and `big` of one soak, under names of their own."""

    cluster: Cluster
    mark: str

    def name(self, table: str) -> str:
        return f"{table}{self.mark}"

    @property
    def names(self) -> dict[str, str]:
        return {table: self.name(table) for table in BORDERS}

    def create(self) -> None:
        types = self.cluster.types
        families = [types.TColumnFamilyDescriptor(name=family, maxVersions=VERSIONS) for family in FAMILIES]
        with self.cluster.client() as client:
            for table, borders in BORDERS.items():
                client.createTable(types.TTableDescriptor(tableName=self._thrift(table), columns=families), borders)

    def drop(self) -> None:
        with self.cluster.client() as client:
            for table in BORDERS:
                client.disableTable(self._thrift(table))
                client.deleteTable(self._thrift(table))

    def mapping(self, mapped: str) -> str:
        """The statement that maps one of MAPPINGS."""
        table, columns = MAPPINGS[mapped]
        listed = ", ".join(f"{name} {column.sql}" for name, column in columns.items())
        cells = "".join(
            f", {name}.cell '{column.cell}', {name}.encoding '{column.encoding}'" for name, column in columns.items()
        )
        options = f"USING hbase OPTIONS (table '{self.name(table)}'{cells})"
        return f"CREATE TABLE {mapped} (k STRING PRIMARY KEY, {listed}) {options}"

    def rows(self, table: str) -> Rows:
        """The newest cells of all rows, as a client scans them; servers may still be on their way back, so it insists."""
        for attempt in range(1, _ATTEMPTS + 1):
            try:
                with self.cluster.client() as client:
                    return {
                        row: {(cell.family, cell.qualifier): cell.value for cell in cells}
                        for row, cells in self._scan(client, table)
                    }
            except (TException, OSError, EOFError):
                if attempt == _ATTEMPTS:
                    raise
                threading.Event().wait(1.0)
        raise AssertionError("not reached")

    def _scan(self, client: Any, table: str) -> Iterator[tuple[bytes, list[Any]]]:
        types, start = self.cluster.types, b""
        while True:
            scan = types.TScan(startRow=start, caching=_SCANNED, limit=_SCANNED)
            found = client.getScannerResults(self.name(table).encode(), scan, _SCANNED)
            yield from ((result.row, result.columnValues) for result in found)
            if len(found) < _SCANNED:
                return
            start = found[-1].row + b"\x00"

    def _thrift(self, table: str) -> Any:
        return self.cluster.types.TTableName(ns=b"default", qualifier=self.name(table).encode())


def shown(mapped: str, rows: Rows) -> pa.Table:
    """What a mapping makes of rows."""
    columns = MAPPINGS[mapped][1]
    found: dict[str, list[object]] = {"k": [], **{name: [] for name in columns}}
    for row, cells in rows.items():
        values = _values(columns, cells)
        if values is not None:
            for name, value in zip(found, (row.decode(), *values), strict=True):
                found[name].append(value)
    kinds = {"k": pa.string(), **{name: column.arrow for name, column in columns.items()}}
    return pa.table({name: pa.array(values, kinds[name]) for name, values in found.items()})


def _values(columns: Mapping[str, Column], cells: Mapping[tuple[bytes, bytes], bytes]) -> list[object] | None:
    try:
        values = [column.read(cells[column.place]) if column.place in cells else None for column in columns.values()]
    except ValueError:
        return None
    return values if any(value is not None for value in values) else None
