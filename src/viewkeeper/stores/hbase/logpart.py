"""The log of a store in HBase: the region servers' own logs, and what was staged of users' tables.

In: positions. Out: changes of mapped tables. Always: the logs are read where HBase keeps them, at the URL's `rootdir`, so a
store without one can be read, but not kept fresh. Looks at the logs and staging are done by other processes, where some are
lent.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Sequence
from functools import cached_property

import pyarrow as pa

from viewkeeper.catalog.catalog import Catalog
from viewkeeper.errors import InputError
from viewkeeper.logs.hbase.files import WalFolder
from viewkeeper.logs.hbase.mapped import MappedTables, name_in_wal
from viewkeeper.logs.hbase.markers import Marker
from viewkeeper.logs.hbase.source import WalLog
from viewkeeper.logs.hbase.tail import Look, Seen
from viewkeeper.logs.joined import JoinedLog, OwnLog
from viewkeeper.model.positions import Cut, Position, Positions
from viewkeeper.model.rowkeys import decode_row_keys, foreign_of
from viewkeeper.model.schema import TableSchema
from viewkeeper.ports.spread import Spread
from viewkeeper.stores.hbase.connections import Refused
from viewkeeper.stores.hbase.logfacts import HBaseLogFacts
from viewkeeper.stores.hbase.meta import MetaPart
from viewkeeper.stores.hbase.outside import Outside
from viewkeeper.stores.hbase.staged import StagedLog
from viewkeeper.stores.hbase.staging import Part, Staging

_MS = 1_000_000  # ns


class LogPart(JoinedLog, MetaPart):
    """The port `LogSource`."""

    _lent: Spread | None = None

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
        facts = HBaseLogFacts(self._site.rows)
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
    def _outside(self) -> Outside:
        return Outside(self._site.rows, self._wals.folder)

    def _follow(self, markers: Sequence[Marker]) -> None:
        self._outside.follow(self._tables_mapped().names, markers, self.now() // _MS)

    def changed_outside_log(self) -> dict[int, tuple[int, str]]:
        """What happened to a table before it was staged is in what was staged."""
        happened, begun = self._outside.happened(self._wals.markers()), self._staging.begun()
        found = {}
        for table in self._tables_mapped().tables:
            whats = happened.get(name_in_wal(foreign_of(table)), {})
            since = max(begun(table), self._outside.found_right(table.id))
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
        self._outside.find_right(tables, stamp // _MS)

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
    def _staging(self) -> Staging:
        return Staging(self._site.connections, self._site.rows, self._staged)

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

    def _spread_looks(self, looks: Sequence[Look]) -> list[Seen] | None:
        size = sum(look.bytes for look in looks)
        found = self._lent(_look, looks, log_bytes=size) if self._lent else None
        return None if found is None else [Seen.from_bytes(one) for one in found]

    def lend(self, spread: Spread | None) -> None:
        self._lent = spread


def _stage(store: LogPart, part: Part) -> bytes:
    """Something, if the part is staged to its end."""
    return b"1" if store._staging.stage_part(part) else b""


def _look(store: LogPart, look: Look) -> bytes:
    return store._wals.look_at(look).to_bytes()
