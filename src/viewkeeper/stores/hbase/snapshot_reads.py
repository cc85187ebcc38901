"""Snapshot reads in HBase: the port `Reads`, records as of a moment.

In: a moment. Out: rows. Always: a moment is a time range of cells, so a get is one request, and a page of a scan
another. Nothing is held: what the floor has passed may be deleted at any time, and the reader checks the horizon
afterwards (R4).
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from viewkeeper.catalog.catalog import Catalog
from viewkeeper.errors import InputError, StaleRead
from viewkeeper.model.read_frontier import EPOCH_MAX, Horizon, ReadTimestamp, RecordChange
from viewkeeper.model.stored_rows import Image, pairs_to_arrow, pieces
from viewkeeper.ports.records import Span, Stored, WrongColumns
from viewkeeper.stores.hbase.mapping import shown_of
from viewkeeper.stores.hbase.meta import MetaPart
from viewkeeper.stores.hbase.pins import Pin
from viewkeeper.stores.hbase.records import written_between
from viewkeeper.stores.hbase.store_tables import is_shown
from viewkeeper.stores.hbase.table_requests import Site, VersionRange, asked, gets, pages, span_of, walk, walk_back
from viewkeeper.stores.hbase.thrift_cells import (
    COLUMNS,
    KEY_BYTES_MAX,
    VERSIONS_MAX,
    get_of,
    record_column,
    row_key,
    thrift,
    times,
    versions_in,
    versions_needed,
    visible,
)
from viewkeeper.stores.version_chains import chain_of, collect_steps

if TYPE_CHECKING:
    import pyarrow as pa

_NEWEST = 3  # versions: some may be of aborted epochs


class ReadsPart(MetaPart):
    """The port `Reads`."""

    if TYPE_CHECKING:

        def now(self) -> int: ...

    def get_record(self, partition: int, table: int, key: bytes, moment: ReadTimestamp) -> Image:
        return visible_at(self._site, table, row_key(partition, key), moment)

    def get_committed(self, partition: int, table: int, key: bytes) -> tuple[Image, Horizon] | None:
        """The newest version, which is never purged, if it is committed at a horizon that was read before it.

        A horizon of a moment ago does as well where it has the version's epoch: no epoch since has written the record.
        """
        if len(key) > KEY_BYTES_MAX:
            return None
        get = get_of(row_key(partition, key), times(self._site.tables.anew, EPOCH_MAX), _NEWEST)
        horizon = self._known_horizon()
        if horizon is not None and (found := _committed(self._site.ask(table, "get", get), horizon)):
            return found
        both = self._after_horizon(table, "get", get)
        return None if both is None else _committed(both[1], both[0])

    def wrong_columns(self, table: int) -> Iterator[WrongColumns]:
        """As a client sees them: the newest cells, whatever their timestamps. A record and its columns are one mutation."""
        shown, name = shown_of(Catalog.from_json(self.read_catalog()), table), self._site.tables.name_of(table)
        if shown is None or name is None or not is_shown(name):
            return
        columns = [*record_column(), thrift().TColumn(COLUMNS)]

        def ask(scan: Any) -> list:
            scan.columns = columns
            return self._site.ask(table, "getScannerResults", scan, scan.limit, absent=[])

        for page in walk(ask, (b"", None)):
            yield from shown.wrong(page)

    def hold(self, moment: ReadTimestamp, partitions: Sequence[int]) -> CellSnapshot:
        return CellSnapshot(self._site, moment, self.read_horizon, Pin(self, moment.epoch))


class CellSnapshot:
    """The port `Held`: nothing but the moment is held.

    Whatever was read is told only if the floor has not passed the moment since (R4); a scan of several pages pins it.
    """

    def __init__(self, site: Site, moment: ReadTimestamp, horizon: Callable[[], Horizon], pin: Pin) -> None:
        self._site = site
        self._moment = moment
        self._horizon = horizon
        self._pin = pin
        self._is_closed = False

    def keep(self) -> None:
        if self._moment.epoch != EPOCH_MAX:
            self._pin.take()

    def get(self, partition: int, table: int, key: bytes) -> Image:
        row = visible_at(self._open(), table, row_key(partition, key), self._moment)
        self._require_kept()
        return row

    def get_each(self, table: int, places: Sequence[tuple[int, bytes]]) -> list[Image]:
        """The same of many records, in batches."""
        known = [row_key(*place) for place in places if len(place[1]) <= KEY_BYTES_MAX]
        results = gets(self._open(), table, known, VersionRange(*self._as_of()))
        found = (None if result is None else visible(result, self._moment.aborted) for result in results)
        rows = [next(found) if len(key) <= KEY_BYTES_MAX else None for _, key in places]
        self._require_kept()
        return rows

    def scan(
        self, partitions: Sequence[int], table: int, start: bytes, stop: bytes | None, *, reverse: bool = False
    ) -> Iterator[tuple[bytes, bytes]]:
        walks = [self._walk(partition, table, start, stop, reverse) for partition in partitions]
        return walks[0] if len(walks) == 1 else heapq.merge(*walks, reverse=reverse)

    def batches(
        self, table: int, spans: Iterable[Span], *, reverse: bool = False
    ) -> Iterator[tuple[pa.Array, pa.Array]]:
        found = (pair for span in spans for pair in self.scan(span[0], table, *span[1:], reverse=reverse))
        return (pairs_to_arrow(piece) for piece in pieces(found))

    def stored(self, partition: int, table: int, last: int) -> Iterator[Stored]:
        """A version is a cell of its own here, so none can be unreadable, and cells of later epochs are not looked at."""
        for piece in pieces(self._walk(partition, table, b"", None, False)):
            yield *pairs_to_arrow(piece), []

    def steps(self, partitions: Sequence[int], table: int, since: int) -> list[RecordChange]:
        indexed_from = self._moment.horizon.indexed_from
        is_indexed = indexed_from is not None and since + 1 >= indexed_from
        found = self._indexed(partitions, table, since) if is_indexed else self._every(partitions, table)
        chains = sorted((result.row[1:], chain_of(versions_in(result))) for result in found if result.columnValues)
        self._require_kept(since)  # the state before the first step is told too
        return collect_steps(chains, since, self._moment)

    def close(self) -> None:
        self._is_closed = True
        self._pin.end()

    def _open(self) -> Site:
        if self._is_closed:
            raise InputError("the snapshot is closed", "open another one")
        return self._site

    def _require_kept(self, since: int | None = None) -> None:
        """Raise unless nothing that was read until now, as of an epoch or all since another, can have been purged."""
        epoch = self._moment.epoch if since is None else since
        if self._moment.epoch != EPOCH_MAX and self._horizon().floor > epoch:
            raise StaleRead(f"epoch {epoch} was given up while it was read", "read a newer one")

    def _as_of(self) -> tuple[Any, int]:
        return as_of(self._site, self._moment)

    def _walk(
        self, partition: int, table: int, start: bytes, stop: bytes | None, reverse: bool
    ) -> Iterator[tuple[bytes, bytes]]:
        ask = asked(self._open(), table, VersionRange(*self._as_of()))

        def ask_and_look(scan: Any) -> list:
            found = ask(scan)
            self._require_kept()
            if len(found) == scan.limit:  # there may be more
                self.keep()
            return found

        for page in (walk_back if reverse else walk)(ask_and_look, span_of(partition, start, stop)):
            for result in page:
                row = visible(result, self._moment.aborted)
                if row is not None:
                    yield result.row[1:], row

    def _every(self, partitions: Sequence[int], table: int) -> Iterator[Any]:
        """The records of a table with all their versions."""
        look = VersionRange(self._as_of()[0], VERSIONS_MAX)
        for partition in partitions:
            for page in pages(self._open(), table, span_of(partition, b"", None), look):
                yield from page

    def _indexed(self, partitions: Sequence[int], table: int, since: int) -> Iterator[Any]:
        """Those that the epochs after `since` wrote."""
        written = written_between(self._open(), partitions, table, since, self._moment.epoch)
        rows = sorted({row_key(entry.partition, entry.key) for entry in written})
        return (
            found
            for found in gets(self._site, table, rows, VersionRange(self._as_of()[0], VERSIONS_MAX))
            if found is not None
        )


def as_of(site: Site, moment: ReadTimestamp) -> tuple[Any, int]:
    """The versions to ask for."""
    return times(site.tables.anew, moment.epoch), versions_needed(moment.epoch, moment.aborted)


def visible_at(site: Site, table: int, row: bytes, moment: ReadTimestamp) -> Image:
    """A record as of a moment."""
    if len(row) > 1 + KEY_BYTES_MAX:
        return None
    found = site.ask(table, "get", get_of(row, *as_of(site, moment)))
    return None if found is None else visible(found, moment.aborted)


def _committed(result: Any | None, horizon: Horizon) -> tuple[Image, Horizon] | None:
    """The newest version of a record, if it is committed at a horizon; versions of aborted epochs are none."""
    if result is None:
        return None
    newest = next(((at, row) for at, row in versions_in(result) if at not in horizon.aborted), None)
    return None if newest is None or newest[0] > horizon.committed else (newest[1], horizon)
