"""Requests to the HBase tables of an open store: single ones, batches, gets of many records, and scans page by page.

In: a table's id; a request, row keys, or a span of them and the epochs to see. Out: HBase's results. Always: a table
that was never made, or was dropped by any process, has no records. A page of a scan is one request, so it may be
repeated, at another server too, and nothing is held open between two; pages grow and shrink with the size of rows.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from viewkeeper.stores.hbase.client import Address, Connections, Refused
from viewkeeper.stores.hbase.store_tables import MetaTable, Tables
from viewkeeper.stores.hbase.thrift_cells import BATCH_RECORDS, get_of, in_batches, record_column, row_key, thrift

_AT_ONCE = 3  # requests to each Thrift server: while it does one, another is made here
_FEW = 4  # requests: so many are sent one after the other, which leaves HBase to writers of base rows
_LOW = 10  # the nice value from which a process sends any number one after the other


class Site:
    """The connections of an open store, its facts and its tables."""

    def __init__(self, address: Address, connections: Connections, incarnation: str, partitions: int) -> None:
        self.address = address
        self.connections = connections
        self.incarnation = incarnation
        self.partitions = partitions
        self.rows = MetaTable(connections, address.namespace)
        self.tables = Tables(connections, self.rows, address.namespace, partitions)

    def ask(
        self,
        table: int,
        request: str,
        *arguments: object,
        absent: Any = None,
        before: Callable[[], object] | None = None,
    ) -> Any:
        """The reply to a request to a table's HBase table, repeated if need be; `absent` where there is none."""
        found = self.ask_after((), table, request, *arguments, before=before)
        return absent if found is None else found[0]

    def ask_after(
        self,
        ahead: Sequence[tuple[Any, ...]],
        table: int,
        request: str,
        *arguments: object,
        before: Callable[[], object] | None = None,
    ) -> list[Any] | None:
        """The replies to other requests, and to a later one to a table's HBase table; None where there is no table."""
        name = self.tables.name_of(table)
        if name is None:
            return None
        attempts = 0

        def look() -> None:
            nonlocal attempts
            attempts += 1
            if attempts > 1 and self.tables.is_dropped(table):
                raise _Dropped
            if before is not None:
                before()

        try:
            return self.connections.ask_in_turn(*ahead, (request, name, *arguments), before=look)
        except _Dropped:
            return None
        except Refused:
            if self.tables.is_dropped(table):
                return None
            raise

    def ask_each(
        self,
        table: int,
        request: str,
        batches: Iterable[Any],
        *,
        make: Callable[[Any], Any] = lambda batch: batch,
        absent: Any = None,
        before: Callable[[], object] | None = None,
    ) -> list[Any]:
        """The replies to a request for each of the batches, several at a time, over all Thrift servers.

        `make` makes the request's argument of a batch when it is sent: ten thousands of structs would cost Python's garbage
        collector more time than the work itself.
        """

        def ask(batch: Any) -> Any:
            return self.ask(table, request, make(batch), absent=absent, before=before)

        waiting = list(batches)
        if len(waiting) <= _FEW or os.getpriority(os.PRIO_PROCESS, 0) >= _LOW:
            return [ask(batch) for batch in waiting]
        with ThreadPoolExecutor(min(len(waiting), _AT_ONCE * len(self.address.servers))) as pool:
            return list(pool.map(ask, waiting))


class _Dropped(Exception):
    """Another process dropped the table, as was seen after a request failed."""


_FIRST_ROWS, _ROWS_MAX = 200, 5_000
_PAGE_BYTES = 4 << 20
ROW_KEY_BYTES_MAX = 32_767  # in HBase, of bounds of scans too
_ROW_KEY_MAX = (1 << 15) - 1
KEYS_ONLY = b"KeyOnlyFilter() AND FirstKeyOnlyFilter()"
Ask = Callable[[Any], list]  # the results of one scan, which has bounds and a limit


@dataclass(frozen=True, slots=True)
class VersionRange:
    """Which versions of records to read: of which epochs, how many of each; `ranges` is a filter."""

    time_range: Any
    versions: int = 1
    ranges: bytes | None = None


def span_of(partition: int, start: bytes, stop: bytes | None) -> tuple[bytes, bytes]:
    """The row keys start <= key < stop of a partition; None is its end. Bounds are cut to the length that HBase takes."""
    first = row_key(partition, start)[:_ROW_KEY_MAX]
    return first, bytes((partition + 1,)) if stop is None else row_key(partition, stop)[:_ROW_KEY_MAX]


def gets(site: Site, table: int, rows: Sequence[bytes], look: VersionRange) -> Iterator[Any | None]:
    """The result of each row, in their order; None where there is no table."""
    batches = list(in_batches(rows, BATCH_RECORDS))

    def make(batch: Sequence[bytes]) -> list[Any]:
        return [get_of(row, look.time_range, look.versions) for row in batch]

    for batch, found in zip(batches, site.ask_each(table, "getMultiple", batches, make=make), strict=True):
        yield from [None] * len(batch) if found is None else found


def pages(
    site: Site, table: int, span: tuple[bytes, bytes], look: VersionRange, *, first: int = _FIRST_ROWS
) -> Iterator[list]:
    """The results of a span, ascending."""
    return walk(asked(site, table, look), span, first=first)


def walk(ask: Ask, span: tuple[bytes, bytes | None], *, first: int = _FIRST_ROWS) -> Iterator[list]:
    """Pages of start <= row < stop, ascending; a stop of None is the end of the table."""
    (start, stop), size = span, first
    while stop is None or start < stop:
        found = ask(thrift().TScan(startRow=start, stopRow=stop, caching=size, limit=size))
        if found:
            yield found
        if len(found) < size or not (start := after(found[-1].row)):
            return
        size = _next_size(found)


def walk_back(ask: Ask, span: tuple[bytes, bytes | None]) -> Iterator[list]:
    """Pages of start <= row < stop, descending; HBase includes the first row of such a scan and excludes the last."""
    (start, stop), size = span, _FIRST_ROWS
    while stop is None or start < stop:
        last = _before(start) if start else None
        found = ask(thrift().TScan(startRow=stop, stopRow=last, caching=size, limit=size, reversed=True))
        inside = [result for result in found if start <= result.row and (stop is None or result.row < stop)]
        if inside:
            yield inside
        if len(found) < size or found[-1].row < start:
            return
        stop, size = found[-1].row, _next_size(found)


def asked(site: Site, table: int, look: VersionRange) -> Ask:
    """A function that asks a table for the records of a scan, in the versions that `look` names."""

    def ask(scan: Any) -> list:
        scan.columns, scan.maxVersions, scan.timeRange = record_column(), look.versions, look.time_range
        scan.filterBytes = look.ranges
        return site.ask(table, "getScannerResults", scan, scan.limit, absent=[])

    return ask


def after(row: bytes) -> bytes:
    """The bound of a scan that begins behind a row; b"" behind the last row that there can be."""
    if len(row) < ROW_KEY_BYTES_MAX:
        return row + b"\x00"
    head = row.rstrip(b"\xff")
    return head[:-1] + bytes((head[-1] + 1,)) if head else b""


def _before(row: bytes) -> bytes:
    """A row key close before another one; the reader leaves out rows between the two."""
    head, last = row[:-1], row[-1]
    return (head + bytes((last - 1,)) + b"\xff" * 8)[:ROW_KEY_BYTES_MAX] if last else head


def _next_size(found: list) -> int:
    size = sum(len(result.row) + sum(len(cell.value) for cell in result.columnValues) for result in found)
    return max(2, min(_ROWS_MAX, _PAGE_BYTES * len(found) // max(size, 1)))
