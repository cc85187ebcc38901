"""The log of a store in HBase: the region servers' own logs and the copied rows of users' tables, behind one log
source.

In: positions. Out: changes of mapped tables; and the log's state: where reading began, who looked last, which streams
have ended. Always: the logs are read where HBase keeps them, at the URL's `rootdir`, so a store without one can be
read, but not kept fresh. Where reading began never changes, whoever tries; the rest of the state is written by the
pipeline alone. A stream belongs to the source that claims its name; the one that is asked first gets as many changes of
an epoch as it has, the next one what is left, or a share. Scans of the logs and copies of rows are made by an
executor's processes, where the store is given one.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import Protocol

import pyarrow as pa

from viewkeeper.catalog.catalog import Catalog
from viewkeeper.errors import InputError
from viewkeeper.model.foreign_rows import decode_row_keys, foreign_of
from viewkeeper.model.positions import Cut, Position, Positions, Stream, Waiting, positions_from_json, positions_to_json
from viewkeeper.model.schema import TableSchema
from viewkeeper.ports.log import LogSource
from viewkeeper.ports.store import Executor
from viewkeeper.stores.hbase.client import Refused
from viewkeeper.stores.hbase.meta import MetaPart
from viewkeeper.stores.hbase.snapshot_copy import Part, SnapshotCopy, StagedLog
from viewkeeper.stores.hbase.store_tables import LOG, MetaTable
from viewkeeper.stores.hbase.unlogged_changes import UnloggedChanges
from viewkeeper.stores.hbase.wal.lookahead import LookaheadRequest, LookaheadResult
from viewkeeper.stores.hbase.wal.mapped_tables import MappedTables, name_in_wal
from viewkeeper.stores.hbase.wal.wal_entries import Marker
from viewkeeper.stores.hbase.wal.wal_files import WalFolder
from viewkeeper.stores.hbase.wal.wal_log import WalLog


class OwnLog(LogSource, Protocol):
    """A log source that knows its streams by name."""

    def owns(self, stream: Stream) -> bool: ...


class JoinedLog(ABC):
    """The port `LogSource`."""

    @property
    @abstractmethod
    def _sources(self) -> Sequence[OwnLog]: ...

    def ends(self) -> Positions:
        return {stream: end for source in self._sources for stream, end in source.ends().items()}

    def last_entries(self) -> Positions:
        return {stream: end for source in self._sources for stream, end in source.last_entries().items()}

    def has_changes(self, start: Positions, stop: Positions) -> bool:
        return any(source.has_changes(_own(source, start), _own(source, stop)) for source in self._sources)

    def cut(self, start: Positions, *, changes_max: int, bytes_max: int) -> Cut:
        positions: Positions = {}
        changes, stamps = 0, []
        for source in self._sources:
            left = max(1, changes_max // 4, changes_max - changes)
            found = source.cut(_own(source, start), changes_max=left, bytes_max=bytes_max)
            positions |= found.positions
            changes += found.changes
            stamps.append(found.stamp)
        return Cut(positions, min(stamps), changes)

    def skip_log(self, start: Positions) -> Cut:
        found = [source.skip_log(_own(source, start)) for source in self._sources]
        positions = {stream: at for one in found for stream, at in one.positions.items()}
        return Cut(positions, min(one.stamp for one in found), 0)

    def log_bytes(self, start: Positions, stop: Positions) -> int:
        return sum(source.log_bytes(_own(source, start), _own(source, stop)) for source in self._sources)

    def waiting(self, start: Positions) -> Waiting:
        found = [source.waiting(_own(source, start)) for source in self._sources]
        oldest = [one.oldest for one in found if one.oldest is not None]
        return Waiting(sum(one.changes for one in found), min(oldest, default=None))

    def pieces(self, stream: Stream, start: Position, stop: Position, *, count: int) -> list[Position]:
        return self._source(stream).pieces(stream, start, stop, count=count)

    def log_entries(self) -> int:
        return sum(source.log_entries() for source in self._sources)

    def checksums(self, positions: Positions) -> dict[Stream, int]:
        found: dict[Stream, int] = {}
        for source in self._sources:
            found |= source.checksums(_own(source, positions))
        return found

    def read_log(self, stream: Stream, start: Position, stop: Position) -> Iterator[tuple[int, pa.RecordBatch]]:
        return self._source(stream).read_log(stream, start, stop)

    def truncate_log(self, positions: Positions, *, older_than_seconds: float, entries_max: int) -> int:
        return sum(
            source.truncate_log(_own(source, positions), older_than_seconds=older_than_seconds, entries_max=entries_max)
            for source in self._sources
        )

    def _source(self, stream: Stream) -> OwnLog:
        return next(source for source in self._sources if source.owns(stream))


def _own(source: OwnLog, positions: Positions) -> Positions:
    return {stream: position for stream, position in positions.items() if source.owns(stream)}


_BEGAN, _LOOKED, _ENDED = "began", "looked", "ended/"


class HBaseLogState:
    """`stores.hbase.wal.wal_log.LogState`, in a row of the store's facts."""

    def __init__(self, rows: MetaTable) -> None:
        self._rows = rows
        self._began: Positions | None = None

    def began(self) -> Positions | None:
        if self._began is None:
            found = self._rows.read(LOG, _BEGAN).get(_BEGAN)
            self._began = None if found is None else positions_from_json(json.loads(found))
        return self._began

    def begin(self, now: Positions) -> Positions:
        self._rows.swap_surely(LOG, _BEGAN, b"", {_BEGAN: json.dumps(positions_to_json(now)).encode()})
        began = self.began()
        assert began is not None
        return began

    def looked(self) -> int | None:
        found = self._rows.read(LOG, _LOOKED).get(_LOOKED)
        return None if found is None else int(found)

    def look(self, now: int) -> None:
        self._rows.put(LOG, _LOOKED, b"%d" % now)

    def ended(self) -> Positions:
        found = {name: value for name, value in self._rows.read(LOG).items() if name.startswith(_ENDED)}
        return positions_from_json({name.removeprefix(_ENDED): int(value) for name, value in found.items()})

    def end(self, streams: Positions) -> None:
        for stream, position in streams.items():
            self._rows.put(LOG, _ENDED + stream, b"%d" % position)


_MS = 1_000_000  # ns


class LogPart(JoinedLog, MetaPart):
    """The port `LogSource`."""

    _lent: Executor | None = None

    @abstractmethod
    def now(self) -> int: ...

    @property
    def _sources(self) -> Sequence[OwnLog]:
        """The servers' logs first: a cut of these may stage rows again."""
        return (self._wals, self._staged)

    @cached_property
    def _staged(self) -> StagedLog:
        return StagedLog(self._site.connections, self._site.address.namespace, self.now)

    @cached_property
    def _wals(self) -> WalLog:
        address = self._site.address
        if address.rootdir is None:
            raise InputError(
                "the URL does not tell where HBase keeps its logs",
                "add ?rootdir=URL with the value of hbase.rootdir, such as file:///var/hbase or hdfs://host:8020/hbase",
            )
        facts = HBaseLogState(self._site.rows)
        folder = WalFolder.at(address.rootdir)
        self._require_same_hbase(folder)
        return WalLog(
            folder,
            self._tables_mapped,
            facts,
            uncover=self._staging.stage_again,
            now=self.now,
            kept_seconds=address.retention_seconds,
            spread=self._spread_looks,
            follow=self._follow,
        )

    @cached_property
    def _outside(self) -> UnloggedChanges:
        return UnloggedChanges(self._site.rows, self._wals.folder)

    def _follow(self, markers: Sequence[Marker]) -> None:
        self._outside.follow(self._tables_mapped().names, markers, self.now() // _MS)

    def changed_outside_log(self) -> dict[int, tuple[int, str]]:
        """What happened to a table before it was staged is in what was staged."""
        happened, begun = self._outside.happened(self._wals.markers()), self._staging.begun()
        found = {}
        for table in self._tables_mapped().tables:
            whats = happened.get(name_in_wal(foreign_of(table)), {})
            since = max(begun(table), self._outside.verified_at(table.id))
            if later := [(ms * _MS, what) for what, ms in whats.items() if ms > since]:
                found[int(table.id)] = max(later)
        return found

    def keys_uncovered(self, table: int, start: Positions, stop: Positions) -> Iterator[pa.Array]:
        """Of deletes of single versions: those before `start` are staged again, and what was staged is in the log."""
        mapped = self._tables_mapped()
        for stream, end in stop.items():
            if self._wals.owns(stream):
                for cells in self._wals.read_cells(stream, start.get(stream, Position(0)), end, mapped):
                    for schema, deletes in mapped.uncovering(cells):
                        if schema.id == table:
                            yield decode_row_keys(schema, deletes["row"])[0]

    def note_as_logged(self, tables: Sequence[int], stamp: int) -> None:
        self._outside.mark_verified(tables, stamp // _MS)

    def skip_log(self, start: Positions) -> Cut:
        self._outside.forget_all()
        return super().skip_log(start)

    def _require_same_hbase(self, folder: WalFolder) -> None:
        try:
            folder.require_cluster(self._site.connections.ask("getClusterId"))
        except Refused:  # an older Thrift server, which does not know the request: the store's own table must be there
            folder.require_folder(f"data/{self._site.address.namespace}/viewkeeper")

    def require_log(self) -> None:
        """Raise where a write could not tell where it is in the log."""
        _ = self._wals

    def drop_rows(self, table: int) -> None:
        """Rows are the users' own; what was staged of them is not."""
        self._staged.forget([table])

    def bytes_used(self) -> int:
        """What HBase has flushed of the store's tables; its latest writes are in the logs only."""
        return self._wals.folder.bytes_in(f"data/{self._site.address.namespace}")

    def _tables_mapped(self) -> MappedTables:
        return MappedTables.among(Catalog.from_json(self.read_catalog()).tables)

    @property
    def _staging(self) -> SnapshotCopy:
        return SnapshotCopy(self._site.connections, self._site.rows, self._staged)

    def stage(self, table: TableSchema, *, rows_max: int) -> bool:
        self._wals.begin()  # before the first row is read: what is written from here on is found in the logs
        parts = self._staging.parts(table, rows_max=rows_max)
        rows = sum(part.rows_max for part in parts)
        done = self._lent(_stage, parts, rows=rows) if self._lent else None
        return self._staging.stage(parts) if done is None else all(done)

    def stage_cells(self, table: TableSchema, cells: pa.Table) -> None:
        """Log what no server's log tells."""
        if cells.num_rows:
            self._staging.append(table, cells)

    def _spread_looks(self, looks: Sequence[LookaheadRequest]) -> list[LookaheadResult] | None:
        size = sum(look.bytes for look in looks)
        found = self._lent(_look, looks, log_bytes=size) if self._lent else None
        return None if found is None else [LookaheadResult.from_bytes(one) for one in found]

    def use_executor(self, spread: Executor | None) -> None:
        self._lent = spread


def _stage(store: LogPart, part: Part) -> bytes:
    """Something, if the part is staged to its end."""
    return b"1" if store._staging.stage_part(part) else b""


def _look(store: LogPart, look: LookaheadRequest) -> bytes:
    return store._wals.scan_ahead(look).to_bytes()
