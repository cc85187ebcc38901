"""Requests of HBase's adapter and the replies to them, one suite for a real HBase and for the small one.

In: a way to ask, and one to compact a table. Out: what each step was replied, as text. Always: the replies that must come are
recorded in `hbase_requests.txt`, one line for each step; timestamps are the writer's own wherever they are shown.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa

from viewkeeper.errors import StoreUnavailable
from viewkeeper.stores.hbase.client import Refused
from viewkeeper.stores.hbase.store_tables import MetaTable, create_table
from viewkeeper.stores.hbase.thrift_cells import VERSIONS_MAX, Puts, delete_of, get_of, ranges_filter, thrift, times

RECORDED = Path(__file__).with_suffix(".txt")
ALL = 1 << 62
Ask = Callable[..., Any]
Replied = Iterator[tuple[str, str]]


def recorded() -> dict[str, str]:
    lines = RECORDED.read_text(encoding="utf-8").splitlines()
    return dict(line.split(": ", 1) for line in lines)


class Suite:
    """The requests, in a namespace that exists."""

    def __init__(self, connections: Any, namespace: str, compact: Callable[[bytes], None]) -> None:
        self._connections, self._compact = connections, compact
        self._versions, self._facts = f"{namespace}:versions".encode(), f"{namespace}:facts".encode()
        self._rows = MetaTable(connections, namespace)
        self._rows.table = self._facts

    def run(self) -> dict[str, str]:
        """Of each step its reply."""
        create_table(self._connections, self._versions, [b"r", b"c"], 2, VERSIONS_MAX)
        create_table(self._connections, self._facts, [b"m"], 1, 1)
        parts = (self._tables, self._versioned, self._deleted, self._scanned, self._swapped, self._absent)
        return {title: reply for part in parts for title, reply in part()}

    def _tables(self) -> Replied:
        families = [thrift().TColumnFamilyDescriptor(name=b"r")]
        described = thrift().TTableDescriptor(tableName=_name(self._versions), columns=families)
        yield "a table that is there is not made again", self._ask("createTable", described, [])
        yield "it exists", self._ask("tableExists", _name(self._versions))
        yield "it is enabled", self._ask("isTableEnabled", _name(self._versions))
        yield "one that is enabled is not deleted", self._ask("deleteTable", _name(self._versions))
        regions = self._connections.ask("getAllRegionLocations", self._versions)
        yield "its regions begin at", repr(sorted(one.regionInfo.startKey or b"" for one in regions))
        families = self._connections.ask("getTableDescriptor", _name(self._versions)).columns
        yield "its families", repr(sorted((one.name, one.maxVersions) for one in families))

    def _versioned(self) -> Replied:
        """Epochs as timestamps; a put of many rows, in our own bytes."""
        for epoch in (5, 7, 6):
            self._put(epoch, {b"\x00a": b"%d" % epoch, b"\x01b": b"%d" % epoch})
        self._put(8, {b"\x00a": b""})
        yield "the newest version", self._get(b"\x00a", 0, ALL, 1)
        yield "versions as of an epoch", self._get(b"\x00a", 0, 6, 2)
        yield "all versions", self._get(b"\x00a", 0, ALL, VERSIONS_MAX)
        yield "versions since an epoch", self._get(b"\x00a", 7, ALL, VERSIONS_MAX)
        yield "an epoch that wrote none", self._get(b"\x00a", 0, 4, 1)
        yield "a row that never was", self._get(b"\x00x", 0, ALL, 1)
        self._put(6, {b"\x00a": b"again"})
        yield "of two puts with one timestamp the last", self._get(b"\x00a", 6, 6, 3)
        gets = [get_of(row, times(0, 7), 1) for row in (b"\x01b", b"\x00x", b"\x00a")]
        yield "many rows, in their order", self._ask("getMultiple", self._versions, gets)
        every = thrift().TGet(row=b"\x01b", maxVersions=1)
        yield "all columns, each by its newest", self._ask("get", self._versions, every)

    def _deleted(self) -> Replied:
        self._ask("deleteMultiple", self._versions, [delete_of(b"\x00a", 6)])
        yield "a delete hides what is not newer", self._get(b"\x00a", 0, ALL, VERSIONS_MAX)
        self._put(4, {b"\x00a": b"late"})
        self._put(6, {b"\x00a": b"late too"})
        yield "and what is put later below it", self._get(b"\x00a", 0, ALL, VERSIONS_MAX)
        yield "a raw scan tells all", self._scan(b"\x00a", b"\x00b", columns=[thrift().TColumn(b"r")], raw=True)
        self._compact(self._versions)
        yield "a compaction takes both", self._scan(b"\x00a", b"\x00b", columns=[thrift().TColumn(b"r")], raw=True)
        self._put(6, {b"\x00a": b"later still"})
        yield "after it a late put is seen", self._get(b"\x00a", 0, ALL, VERSIONS_MAX)
        yield "deletes reply", self._ask("deleteMultiple", self._versions, [delete_of(b"\x00none", 6)])

    def _scanned(self) -> Replied:
        self._put(9, {b"\x00%c" % letter: b"row" for letter in b"cdefg"})
        yield "a page", self._scan(b"\x00c", b"\x01", limit=2)
        yield "its next", self._scan(b"\x00d\x00", b"\x01", limit=2)
        yield "as of an epoch without rows", self._scan(b"\x00c", b"\x01", until=8)
        yield "over regions", self._scan(b"\x00g", b"\x02")
        yield "backwards", self._scan(b"\x00g", b"\x00d", limit=2, reversed=True)
        yield "backwards from the end", self._scan(b"", b"\x00f", reversed=True)
        ranges = ranges_filter([(b"\x00c", b"\x00d"), (b"\x00f", b"\x00f\x00"), (b"\x01", b"\x02")])
        yield "ranges", self._scan(b"\x00c", b"\x02", ranges=ranges)

    def _swapped(self) -> Replied:
        rows, row = self._rows, b"store"
        yield "a swap of what is not there", repr(rows.swap(row, "v", b"", {"v": b"1", "w": b"one"}))
        yield "and again", repr(rows.swap(row, "v", b"", {"v": b"1", "w": b"two"}))
        yield "with another value", repr(rows.swap(row, "v", b"0", {"v": b"2"}))
        yield "with its value", repr(rows.swap(row, "v", b"1", {"v": b"2", "w": b"three"}))
        yield "what it put", repr(sorted(rows.read(row).items()))
        rows.put(row, {"v": b"ahead"}, 1 << 45)
        yield "a timestamp that is ahead", repr(rows.swap(row, "v", b"ahead", {"v": b"behind"}))
        yield "is no matter", repr((rows.read(row, "v"), rows.cells(row, "v")["v"].timestamp >= 1 << 45))
        rows.put(row, {"a/1": b"", "a/2": b"x"}, 5)
        rows.put(row, {"a/1": b"older"}, 4)
        yield "the newest of a fact", repr(sorted(rows.read(row, "a/1", "a/2").items()))
        versions = thrift().TGet(row=row, columns=[thrift().TColumn(b"m", b"a/1")], maxVersions=9)
        yield "a family of one version has one", self._ask("get", self._facts, versions)
        rows.delete(row, {"a/1": 5, "a/2": 4})
        yield "deleted up to a timestamp", repr(sorted(rows.read(row, "a/1", "a/2").items()))
        mutate = ("checkAndMutate", self._facts, row, b"m", b"v", thrift().TCompareOp.NOT_EQUAL)
        put = thrift().TPut(row=row, columnValues=[thrift().TColumnValue(b"m", b"n", b"yes")])
        one = thrift().TRowMutations(row=row, mutations=[thrift().TMutation(put=put)])
        yield "what is there differs from nothing", self._ask(*mutate, b"", one)
        absent = thrift().TRowMutations(row=b"no", mutations=[thrift().TMutation(put=_with_row(put, b"no"))])
        yield "what is not there does not", self._ask("checkAndMutate", self._facts, b"no", *mutate[3:], b"", absent)

    def _absent(self) -> Replied:
        gone = self._versions + b"2"
        yield "a get of no table", self._ask("get", gone, get_of(b"a", times(0, 1), 1))
        yield "no table exists", self._ask("tableExists", _name(gone))
        yield "whether no table is enabled", self._ask("isTableEnabled", _name(gone))
        self._ask("disableTable", _name(self._versions))
        yield "a get of a table that is disabled", self._get(b"\x00a", 0, ALL, 1)
        yield "disabled twice", self._ask("disableTable", _name(self._versions))
        self._ask("truncateTable", _name(self._versions), True)
        yield "truncated, it is enabled and empty", self._scan(b"", b"\x02")
        for name in (self._versions, self._facts):
            self._ask("disableTable", _name(name))
            yield f"{name.rpartition(b':')[2].decode()} is deleted", self._ask("deleteTable", _name(name))

    def _ask(self, request: str, *arguments: object) -> str:
        try:
            return _shown(self._connections.ask_once(request, *arguments))
        except Refused:
            return "refused"
        except StoreUnavailable:
            return "unavailable"

    def _put(self, epoch: int, rows: dict[bytes, bytes]) -> None:
        keys, values = pa.array(list(rows), pa.binary()), pa.array(list(rows.values()), pa.binary())
        texts = pa.array([b"text " + value for value in rows.values()], pa.binary())
        self._connections.ask_once("putMultiple", self._versions, Puts(epoch, keys, values, ((b"shown", texts),)))

    def _get(self, row: bytes, since: int, until: int, versions: int) -> str:
        return self._ask("get", self._versions, get_of(row, times(since, until), versions))

    def _scan(
        self,
        start: bytes,
        stop: bytes,
        *,
        limit: int = 100,
        until: int = ALL,
        reversed: bool = False,
        ranges: bytes | None = None,
        columns: list[Any] | None = None,
        raw: bool = False,
    ) -> str:
        scan = thrift().TScan(startRow=start, stopRow=stop, caching=limit, limit=limit, reversed=reversed)
        scan.columns, scan.filterBytes = columns or [thrift().TColumn(b"r", b"r")], ranges
        if raw:
            scan.attributes, scan.maxVersions = {b"_raw_": b"\xff"}, VERSIONS_MAX
        else:
            scan.timeRange = times(0, until)
        return self._ask("getScannerResults", self._versions, scan, limit)


def _with_row(put: Any, row: bytes) -> Any:
    return thrift().TPut(row=row, columnValues=put.columnValues)


def _name(table: bytes) -> Any:
    namespace, _, own = table.rpartition(b":")
    return thrift().TTableName(ns=namespace, qualifier=own)


def _shown(reply: Any) -> str:
    if isinstance(reply, list):
        return f"[{', '.join(map(_shown, reply))}]"
    if hasattr(reply, "columnValues"):
        return f"{reply.row!r} {[_cell(cell) for cell in reply.columnValues]}"
    return repr(reply)


def _cell(cell: Any) -> str:
    kind = {None: "", 4: "", 8: " delete", 12: " delete column", 14: " delete family"}[cell.type]
    stamp = cell.timestamp if cell.timestamp < 1 << 40 else "now"
    return f"{cell.family.decode()}:{cell.qualifier.decode()}@{stamp}{kind} {cell.value!r}"
