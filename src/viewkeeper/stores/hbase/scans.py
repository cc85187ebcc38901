"""Scans: records in key order, a page at a time; and gets of many records.

In: a table, a span of one partition or row keys, and the epochs to see. Out: HBase's results. Always: a page is one request
that stands by itself, so it may be repeated, at another server too, and nothing is held open between two; pages grow and
shrink with the size of rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from viewkeeper.stores.hbase.cells import BATCH_RECORDS, get_of, in_batches, record_column, row_key
from viewkeeper.stores.hbase.site import Site
from viewkeeper.stores.hbase.thrift import thrift

_FIRST_ROWS, _ROWS_MAX = 200, 5_000
_PAGE_BYTES = 4 << 20
_ROW_KEY_MAX = (1 << 15) - 1
KEYS_ONLY = b"KeyOnlyFilter() AND FirstKeyOnlyFilter()"
Ask = Callable[[Any], list]  # the results of one scan, which has bounds and a limit


@dataclass(frozen=True, slots=True)
class Look:
    """What of the records a scan returns: which epochs, how many versions; `ranges` is a filter."""

    time_range: Any
    versions: int = 1
    ranges: bytes | None = None


def span_of(partition: int, start: bytes, stop: bytes | None) -> tuple[bytes, bytes]:
    """The row keys start <= key < stop of a partition; None is its end. What HBase cannot take of a bound tells nothing."""
    first = row_key(partition, start)[:_ROW_KEY_MAX]
    return first, bytes((partition + 1,)) if stop is None else row_key(partition, stop)[:_ROW_KEY_MAX]


def gets(site: Site, table: int, rows: Sequence[bytes], look: Look) -> Iterator[Any | None]:
    """The result of each row, in their order; None where there is no table."""
    batches = list(in_batches(rows, BATCH_RECORDS))

    def make(batch: Sequence[bytes]) -> list[Any]:
        return [get_of(row, look.time_range, look.versions) for row in batch]

    for batch, found in zip(batches, site.ask_each(table, "getMultiple", batches, make=make), strict=True):
        yield from [None] * len(batch) if found is None else found


def pages(site: Site, table: int, span: tuple[bytes, bytes], look: Look, *, first: int = _FIRST_ROWS) -> Iterator[list]:
    """The results of a span, ascending."""
    return walk(asked(site, table, look), span, first=first)


def walk(ask: Ask, span: tuple[bytes, bytes | None], *, first: int = _FIRST_ROWS) -> Iterator[list]:
    """Pages of start <= row < stop, ascending; a stop of None is the end of the table."""
    (start, stop), size = span, first
    while stop is None or start < stop:
        found = ask(thrift().TScan(startRow=start, stopRow=stop, caching=size, limit=size))
        if found:
            yield found
        if len(found) < size:
            return
        start, size = found[-1].row + b"\x00", _next_size(found)


def walk_back(ask: Ask, span: tuple[bytes, bytes | None]) -> Iterator[list]:
    """The same, descending; HBase includes the first row of such a scan and excludes the last."""
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


def asked(site: Site, table: int, look: Look) -> Ask:
    """Of a scan's bounds the records between them, as `look` says."""

    def ask(scan: Any) -> list:
        scan.columns, scan.maxVersions, scan.timeRange = record_column(), look.versions, look.time_range
        scan.filterBytes = look.ranges
        return site.ask(table, "getScannerResults", scan, scan.limit, absent=[])

    return ask


def _before(row: bytes) -> bytes:
    """A row key close before another one; rows between the two are left out by whoever reads."""
    head, last = row[:-1], row[-1]
    return head + bytes((last - 1,)) + b"\xff" * 8 if last else head


def _next_size(found: list) -> int:
    size = sum(len(result.row) + sum(len(cell.value) for cell in result.columnValues) for result in found)
    return max(2, min(_ROWS_MAX, _PAGE_BYTES * len(found) // max(size, 1)))
