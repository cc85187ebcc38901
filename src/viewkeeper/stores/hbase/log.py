"""The log of a store in HBase: the region servers' own logs, and the copied rows of users' tables beside them.

In: positions. Out: changes of mapped tables, and chunks of copied rows, which an epoch takes in by name. Always: the
logs are read where HBase keeps them, at the URL's `rootdir`; views over a store without one are not kept fresh. Logs
are scanned and rows are copied by the executor's processes, if the store is given one.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cached_property

import pyarrow as pa

from viewkeeper.catalog.catalog import Catalog
from viewkeeper.errors import InputError
from viewkeeper.model.foreign_rows import decode_row_keys, foreign_of
from viewkeeper.model.positions import Cut, LogRange, Position, Positions, Stream
from viewkeeper.model.schema import TableSchema
from viewkeeper.ports.log import ALL
from viewkeeper.ports.store import Executor
from viewkeeper.stores.hbase.client import Refused
from viewkeeper.stores.hbase.mapping import trouble_of
from viewkeeper.stores.hbase.meta import MetaPart
from viewkeeper.stores.hbase.snapshot_copy import AGAIN, ChunkKey, Part, SnapshotCopy, StagedChunks
from viewkeeper.stores.hbase.unlogged_changes import UnloggedChanges
from viewkeeper.stores.hbase.wal.lookahead import LookaheadRequest, LookaheadResult
from viewkeeper.stores.hbase.wal.mapped_tables import MappedTables, name_in_wal
from viewkeeper.stores.hbase.wal.wal_files import GrowingLogs, WalFolder
from viewkeeper.stores.hbase.wal.wal_log import LogState, WalLog

_MS = 1_000_000  # ns


class LogPart(MetaPart):
    """The port `LogSource`, and the staged rows of the port `BaseTables`."""

    _lent: Executor | None = None

    def ends(self) -> Positions:
        return self._wals.ends()

    def growing(self) -> GrowingLogs:
        return self._wals.growing()

    def ends_since(self, before: GrowingLogs) -> Positions:
        return self._wals.ends_since(before)

    def cut(self, start: Positions, *, changes_max: int = ALL, bytes_max: int = ALL, skips: bool = False) -> Cut:
        """A cut takes in all rows that were staged again: later writes of these rows may not come before them.

        It takes in other chunks as far as the log leaves room, and at least a quarter of `changes_max`.
        """
        if skips:
            self._outside.forget_all()
            return self._wals.skip_log()
        found = self._wals.cut(start, changes_max=changes_max, bytes_max=bytes_max)  # which may stage rows again
        left = max(1, changes_max // 4, changes_max - found.changes)
        named, cells = list[str](), 0
        for chunk, count in self._waiting().items():
            if chunk.part.number == AGAIN or cells < left:
                named.append(chunk.name)
                cells += count
        return replace(found, changes=found.changes + cells, staged=tuple(named))

    def describe(self, start: Positions, stop: Positions | None = None) -> LogRange:
        found = self._wals.describe(start, stop)
        cells = sum(self._waiting().values()) if stop is None else 0
        return replace(found, changes=found.changes + cells, has_changes=found.has_changes or cells > 0)

    def pieces(self, stream: Stream, start: Position, stop: Position, *, count: int) -> list[Position]:
        return self._wals.pieces(stream, start, stop, count=count)

    def read_log(self, stream: Stream, start: Position, stop: Position) -> Iterator[tuple[int, pa.RecordBatch]]:
        return self._wals.read_log(stream, start, stop)

    @cached_property
    def _wals(self) -> WalLog:
        address = self._site.address
        if address.rootdir is None:
            raise InputError(
                "the URL does not tell where HBase keeps its logs",
                "add ?rootdir=URL with the value of hbase.rootdir, such as file:///var/hbase or hdfs://host:8020/hbase",
            )
        folder = WalFolder.at(address.rootdir)
        try:
            folder.require_cluster(self._site.connections.ask("getClusterId"))
        except Refused:  # an older Thrift server does not know the request: the store's own table must be there
            folder.require_folder(f"data/{address.namespace}/viewkeeper")
        return WalLog(
            folder,
            self._tables_mapped,
            LogState(self._site.rows),
            uncover=self._staging.stage_again,
            now=self.now,
            kept_seconds=address.retention_seconds,
            spread=self._spread_looks,
            follow=lambda markers: self._outside.follow(self._tables_mapped().names, markers, self.now() // _MS),
        )

    @cached_property
    def _outside(self) -> UnloggedChanges:
        return UnloggedChanges(self._site.rows, self._wals.folder)

    def _changed_outside_log(self) -> dict[int, tuple[int, str]]:
        """Leaves out what happened to a table before it was staged: the staged rows have it."""
        happened, begun = self._outside.happened(self._wals.markers()), self._staging.begun()
        found = {}
        for table in self._tables_mapped().tables:
            whats = happened.get(name_in_wal(foreign_of(table)), {})
            since = max(begun(table), self._outside.verified_at(table.id))
            if later := [(ms * _MS, what) for what, ms in whats.items() if ms > since]:
                found[int(table.id)] = max(later)
        return found

    def changed_keys(self, table: int, start: Positions) -> Iterator[pa.Array]:
        """Also keys of rows with deletes of single versions; rows of those before `start` were staged again and committed."""
        mapped = self._tables_mapped()
        for stream, end in self._wals.last_entries().items():
            for cells in self._wals.read_cells(stream, start.get(stream, Position(0)), end, mapped):
                yield from (batch["key"] for changed, batch in mapped.writes(cells) if changed == table)
                for schema, deletes in mapped.uncovering(cells):
                    if schema.id == table:
                        yield decode_row_keys(schema, deletes["row"])[0]

    def note_as_logged(self, tables: Sequence[int], stamp: int) -> None:
        self._outside.mark_verified(tables, stamp // _MS)

    def require_log(self) -> None:
        """Raise where the log cannot be read."""
        _ = self._wals

    def _tables_mapped(self) -> MappedTables:
        tables = Catalog.from_json(self.read_catalog()).tables
        return MappedTables(tuple(table for table in tables if table.foreign is not None))

    @property
    def _staging(self) -> SnapshotCopy:
        return SnapshotCopy(self._site.connections, self._site.rows, self._chunks)

    @cached_property
    def _chunks(self) -> StagedChunks:
        return StagedChunks(self._site.connections, self._site.address.namespace)

    def _waiting(self) -> dict[ChunkKey, int]:
        """How many cells each chunk has, of the copies that the catalog names."""
        if not (found := self._chunks.waiting()):
            return {}
        copies = {(table.id, foreign_of(table).staging) for table in self._tables_mapped().tables}
        return {chunk: cells for chunk, cells in found.items() if chunk.part[:2] in copies}

    def staged(self) -> dict[str, int]:
        return {chunk.name: chunk.part.table for chunk in self._waiting()}

    def read_staged(self, chunks: Sequence[str]) -> Iterator[tuple[int, pa.RecordBatch]]:
        return self._chunks.read(chunks)

    def drop_staged(self, chunks: Sequence[str]) -> None:
        self._chunks.delete(chunks)

    def stage(self, table: TableSchema, *, rows_max: int) -> bool:
        self._wals.begin()  # before the first row is read: what is written from here on is found in the logs
        try:
            parts = self._staging.parts(table, rows_max=rows_max)
            rows = sum(part.rows_max for part in parts)
            done = self._lent(_stage, parts, rows=rows) if self._lent else None
            return self._staging.stage(parts) if done is None else all(done)
        except Refused:
            if trouble_of(self._site.connections, foreign_of(table).table) is None:
                raise
            return False  # its views wait until it can be read, as status says; others go on

    def _spread_looks(self, looks: Sequence[LookaheadRequest]) -> list[LookaheadResult] | None:
        size = sum(look.bytes for look in looks)
        found = self._lent(_look, looks, log_bytes=size) if self._lent else None
        return None if found is None else [LookaheadResult.from_bytes(one) for one in found]

    def use_executor(self, spread: Executor | None) -> None:
        self._lent = spread


def _stage(store: LogPart, part: Part) -> bytes:
    """Not empty if the part is staged to its end."""
    return b"1" if store._staging.stage_part(part) else b""


def _look(store: LogPart, look: LookaheadRequest) -> bytes:
    return store._wals.scan_ahead(look).to_bytes()
