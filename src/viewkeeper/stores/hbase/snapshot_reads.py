"""Snapshot reads in HBase: the port `Reads`, records as of a read timestamp.

In: a read timestamp. Out: rows. Always: it is a time range of cells, so a get is one request, and so is each page of a
scan. HBase holds nothing: versions below the floor may be deleted at any time, so the reader checks the floor after
each read, and a read of many requests pins its epoch (`docs/epochs.md`, R4). A pin is an entry of the epoch record that
keeps the floor from passing the epoch; it ends by itself some minutes after it was last renewed, so a reader that died
keeps nothing for ever.
"""

from __future__ import annotations

import heapq
import time
import uuid
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from itertools import chain
from typing import Any

import pyarrow as pa

from viewkeeper.catalog.catalog import Catalog
from viewkeeper.errors import InputError, StaleRead, StoreUnavailable
from viewkeeper.model import epochs
from viewkeeper.model.read_frontier import EPOCH_MAX, ReadFrontier, ReadTimestamp, RecordChange
from viewkeeper.model.stored_rows import Image, pairs_to_arrow, pieces
from viewkeeper.ports.meta import change_epoch_record
from viewkeeper.ports.records import Span, Stored, WrongColumns
from viewkeeper.stores.hbase.mapping import shown_of
from viewkeeper.stores.hbase.meta import MetaPart
from viewkeeper.stores.hbase.records import rows_written
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

_NEWEST = 3  # versions: some may be of aborted epochs
_LEASE_SECONDS = 900.0  # of a pin


class ReadsPart(MetaPart):
    """The port `Reads`."""

    def get_record(self, partition: int, table: int, key: bytes, moment: ReadTimestamp) -> Image:
        return visible_at(self._site, table, row_key(partition, key), moment)

    def get_committed(self, partition: int, table: int, key: bytes) -> tuple[Image, ReadFrontier] | None:
        """The newest version, which is never purged, if it is committed at a read frontier that was read before it.

        A known read frontier of a moment ago will do, if it has the version's epoch: no later epoch has written the record.
        """
        if len(key) > KEY_BYTES_MAX:
            return None
        get = get_of(row_key(partition, key), times(self._site.tables.anew, EPOCH_MAX), _NEWEST)
        frontier = self._known_frontier()
        if frontier is not None and (found := _committed(self._site.ask(table, "get", get), frontier)):
            return found
        both = self._after_frontier(table, "get", get)
        return None if both is None else _committed(both[1], both[0])

    def wrong_columns(self, table: int) -> Iterator[WrongColumns]:
        """Reads the newest cells, as a client of HBase does. A record and its columns are written by one mutation."""
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
        return CellSnapshot(self, moment)


class CellSnapshot:
    """The port `Held`: a read returns rows only if the floor has not passed the epoch since (R4)."""

    def __init__(self, store: MetaPart, moment: ReadTimestamp) -> None:
        self._store, self._site, self._moment = store, store._site, moment
        self._pin = uuid.uuid4().hex
        self._pinned: float | None = None  # when
        self._is_closed = False

    def keep(self) -> None:
        """Pin the epoch, or renew its pin; StaleRead where the floor has passed it."""
        epoch, now = self._moment.epoch, time.monotonic()
        if epoch != EPOCH_MAX and (self._pinned is None or now >= self._pinned + _LEASE_SECONDS / 2):
            until = self._store.now() + int(_LEASE_SECONDS * 1e9)
            change_epoch_record(self._store, lambda record: epochs.pin(record, self._pin, epoch, until))
            self._pinned = now

    def get(self, partition: int, table: int, key: bytes) -> Image:
        row = visible_at(self._open(), table, row_key(partition, key), self._moment)
        self._require_kept()
        return row

    def get_each(self, table: int, records: Sequence[tuple[int, bytes]]) -> list[Image]:
        known = [row_key(*record) for record in records if len(record[1]) <= KEY_BYTES_MAX]
        results = gets(self._open(), table, known, VersionRange(*as_of(self._site, self._moment)))
        found = (None if result is None else visible(result, self._moment.aborted) for result in results)
        rows = [next(found) if len(key) <= KEY_BYTES_MAX else None for _, key in records]
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
        """Each version is a cell, so none can be unreadable, and cells of later epochs are not read."""
        for piece in pieces(self._walk(partition, table, b"", None, False)):
            yield *pairs_to_arrow(piece), []

    def steps(self, partitions: Sequence[int], table: int, since: int) -> list[RecordChange]:
        indexed_from = self._moment.frontier.indexed_from
        found: Iterable[Any]
        if indexed_from is not None and since + 1 >= indexed_from:
            rows = rows_written(self._open(), partitions, table, since, self._moment.epoch)
            found = gets(self._site, table, rows, self._all_versions())
        else:
            spans, look = (span_of(partition, b"", None) for partition in partitions), self._all_versions()
            found = chain.from_iterable(page for span in spans for page in pages(self._open(), table, span, look))
        there = (result for result in found if result is not None and result.columnValues)
        chains = sorted((result.row[1:], chain_of(versions_in(result))) for result in there)
        self._require_kept(since)  # the state before the first step is returned too
        return collect_steps(chains, since, self._moment)

    def close(self) -> None:
        self._is_closed = True
        if self._pinned is not None:
            self._pinned = None
            with suppress(StoreUnavailable):  # the pin ends by itself
                change_epoch_record(self._store, lambda record: epochs.unpin(record, self._pin))

    def _open(self) -> Site:
        if self._is_closed:
            raise InputError("the snapshot is closed", "open another one")
        return self._site

    def _require_kept(self, since: int | None = None) -> None:
        """Raise if versions of the epoch, or of those after `since`, may have been purged before they were read."""
        epoch = self._moment.epoch if since is None else since
        frontier = self._store.read_frontier()
        if self._moment.epoch != EPOCH_MAX and max(frontier.floor, frontier.anew) > epoch:
            raise StaleRead(f"epoch {epoch} was given up while it was read", "read a newer one")

    def _all_versions(self) -> VersionRange:
        return VersionRange(as_of(self._site, self._moment)[0], VERSIONS_MAX)

    def _walk(
        self, partition: int, table: int, start: bytes, stop: bytes | None, reverse: bool
    ) -> Iterator[tuple[bytes, bytes]]:
        ask = asked(self._open(), table, VersionRange(*as_of(self._site, self._moment)))

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


def as_of(site: Site, moment: ReadTimestamp) -> tuple[Any, int]:
    """The time range to ask for, and how many versions."""
    anew = max(site.tables.anew, moment.frontier.anew)
    if anew > moment.epoch:
        raise StaleRead(f"epoch {moment.epoch} was given up, and views were filled anew", "read a newer one")
    return times(anew, moment.epoch), versions_needed(moment.epoch, moment.aborted)


def visible_at(site: Site, table: int, row: bytes, moment: ReadTimestamp) -> Image:
    """The row of a record as of a read timestamp."""
    if len(row) > 1 + KEY_BYTES_MAX:
        return None
    found = site.ask(table, "get", get_of(row, *as_of(site, moment)))
    return None if found is None else visible(found, moment.aborted)


def _committed(result: Any | None, frontier: ReadFrontier) -> tuple[Image, ReadFrontier] | None:
    """The newest version of a record, if it is committed at a read frontier; versions of aborted epochs are none."""
    versions = () if result is None else versions_in(result)
    newest = next(((at, row) for at, row in versions if at not in frontier.aborted), None)
    return (newest[1], frontier) if newest is not None and frontier.anew <= newest[0] <= frontier.committed else None
