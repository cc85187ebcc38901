"""The snapshot copy: the rows that a user's table has already are copied, part by part, in chunks that epochs take in.

In: a mapped table. Out: chunks of cells and deletes, with their timestamps in the base. Always: a scan of the base
cannot be repeated with the same answer, so an epoch reads the copy: its record names the chunks that it takes in, and
they are deleted once it is committed. A chunk is put together with how far its part is copied, by a test-and-set: of
two processes that copy a part one wins, and the other goes on after it. No name is used twice. Later writes are in the
log: δ merges both, in any order. A copied cell counts as older than one of the log with its timestamp.
"""

from __future__ import annotations

import math
import struct
import time
import uuid
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import accumulate, groupby
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from viewkeeper.errors import PositionLost
from viewkeeper.model.foreign_rows import CELLS_SCHEMA, HIDE, PUT, READ, READ_NONE, decode_row_keys, foreign_of
from viewkeeper.model.schema import TableSchema
from viewkeeper.stores.hbase.client import Connections, Refused
from viewkeeper.stores.hbase.mapping import ask_user_table
from viewkeeper.stores.hbase.store_tables import LOG, MetaTable, create_table, table_exists
from viewkeeper.stores.hbase.table_requests import KEYS_ONLY, after, walk
from viewkeeper.stores.hbase.thrift_cells import VERSIONS_MAX, in_batches, thrift
from viewkeeper.stores.hbase.wal.mapped_tables import order_after
from viewkeeper.stores.hbase.wal.wal_entries import DELETE_FAMILY, DELETE_FAMILY_VERSION, DELETE_VERSION
from viewkeeper.stores.hbase.wal.wal_entries import PUT as CELL_PUT

AGAIN = 0xFFFF  # the part for rows that are staged again
_PROGRESS, _COUNTS, _CELLS = b"p", b"n", b"c"  # families: of each row, and of each chunk in it
_STAMP = 1  # of chunks: below every delete, so that a late repetition of a put stays hidden
_ROW, _NUMBER = struct.Struct(">IIH"), struct.Struct(">Q")
_REACHED = struct.Struct(">Q?")
_CHUNKS_AT_ONCE = 8


_Write = tuple[int, int, int, "bytes | None"]  # column, kind, stamp, value


class PartKey(NamedTuple):
    """A part of one copy of a table: a row of the table of chunks."""

    table: int
    staging: int
    number: int

    @property
    def row(self) -> bytes:
        return _ROW.pack(*self)


class ChunkKey(NamedTuple):
    part: PartKey
    number: int

    @property
    def name(self) -> str:
        return ",".join(map(str, (*self.part, self.number)))

    @staticmethod
    def of(name: str) -> ChunkKey:
        *part, number = map(int, name.split(","))
        return ChunkKey(PartKey(*part), number)

    @property
    def columns(self) -> list[Any]:
        return [thrift().TColumn(family, _NUMBER.pack(self.number)) for family in (_COUNTS, _CELLS)]


@dataclass(frozen=True, slots=True)
class Reached:
    """How far a part is copied: with chunk `number` up to the row key `last`; `is_done`: to the part's end."""

    number: int
    is_done: bool
    last: bytes

    def packed(self) -> bytes:
        return _REACHED.pack(self.number, self.is_done) + self.last


class StagedChunks:
    """The table of the chunks that wait for an epoch, and of how far each part is copied."""

    def __init__(self, connections: Connections, namespace: str) -> None:
        self._connections = connections
        self._table = f"{namespace}:staged".encode()
        self._is_there = False

    def make(self) -> None:
        if not self._is_made():
            create_table(self._connections, self._table, [_PROGRESS, _COUNTS, _CELLS], 1, 1)

    def reached(self, part: PartKey) -> Reached | None:
        get = thrift().TGet(row=part.row, columns=[thrift().TColumn(_PROGRESS, _PROGRESS)])
        found = self._connections.ask("get", self._table, get).columnValues
        if not found:
            return None
        number, is_done = _REACHED.unpack_from(found[0].value)
        return Reached(number, is_done, found[0].value[_REACHED.size :])

    def append(self, part: PartKey, before: Reached | None, now: Reached, cells: pa.Table) -> Reached | None:
        """Put the next chunk of a part, unless another process has; returns how far the part is copied."""
        progress = thrift().TColumnValue(_PROGRESS, _PROGRESS, now.packed())
        put = thrift().TPut(row=part.row, columnValues=[progress, *_values(now.number, cells)])
        mutations = thrift().TRowMutations(row=part.row, mutations=[thrift().TMutation(put=put)])
        test = _PROGRESS, _PROGRESS, thrift().TCompareOp.EQUAL, before.packed() if before else b""
        is_ours = self._connections.ask("checkAndMutate", self._table, part.row, *test, mutations)
        return now if is_ours else self.reached(part)

    def put(self, part: PartKey, cells: pa.Table) -> None:
        """Put a chunk that follows no other, under a number of its own."""
        number = int(np.random.default_rng().integers(1 << 63))
        put = thrift().TPut(row=part.row, columnValues=_values(number, cells))
        self._connections.ask("put", self._table, put)

    def waiting(self) -> dict[ChunkKey, int]:
        """How many cells each chunk has, in the order of their parts and numbers."""
        if not self._is_made():
            return {}
        return {
            ChunkKey(PartKey(*_ROW.unpack(result.row)), *_NUMBER.unpack(cell.qualifier)): int(cell.value)
            for result in self._scanned((b"", None), [thrift().TColumn(_COUNTS)])
            for cell in result.columnValues
        }

    def read(self, names: Sequence[str]) -> Iterator[tuple[int, pa.RecordBatch]]:
        """The cells of some chunks, by table."""
        for some in in_batches([ChunkKey.of(name) for name in names], _CHUNKS_AT_ONCE):
            gets = [thrift().TGet(row=key.part.row, columns=key.columns[1:]) for key in some]
            found = self._connections.ask("getMultiple", self._table, gets)
            for key, result in zip(some, found, strict=True):
                if not result.columnValues:
                    raise PositionLost(f"chunk {key.name} of the rows that were staged is gone")
                (batch,) = pa.ipc.open_stream(result.columnValues[0].value).read_all().combine_chunks().to_batches()
                yield key.part.table, batch

    def delete(self, names: Sequence[str]) -> None:
        parts = groupby(sorted(map(ChunkKey.of, names)), key=lambda key: key.part)
        whole = thrift().TDeleteType.DELETE_COLUMNS
        self._delete(
            thrift().TDelete(row=part.row, columns=[one for key in keys for one in key.columns], deleteType=whole)
            for part, keys in parts
        )

    def forget(self, table: int, before: int | None = None) -> None:
        """Delete all chunks of a table, or those of its copies before the given one."""
        if self._is_made():
            stop = struct.pack(">I", table + 1) if before is None else struct.pack(">II", table, before)
            rows = self._scanned((struct.pack(">I", table), stop), None)
            self._delete(thrift().TDelete(row=result.row) for result in rows)

    def _scanned(self, span: tuple[bytes, bytes | None], columns: list[Any] | None) -> Iterator[Any]:
        """The rows of a span, with these columns; without columns only their keys."""

        def ask(scan: Any) -> list:
            scan.columns, scan.filterString = columns, None if columns else KEYS_ONLY
            return self._connections.ask("getScannerResults", self._table, scan, scan.limit)

        return (result for page in walk(ask, span) for result in page)

    def _delete(self, deletes: Iterable[Any]) -> None:
        if some := list(deletes):
            self._connections.ask("deleteMultiple", self._table, some)

    def _is_made(self) -> bool:
        self._is_there = self._is_there or table_exists(self._connections, self._table)
        return self._is_there


def _values(number: int, cells: pa.Table) -> list[Any]:
    """The columns of a chunk; none where it is empty."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, cells.schema) as writer:
        writer.write_table(cells.combine_chunks())
    values = {_COUNTS: b"%d" % len(cells), _CELLS: sink.getvalue().to_pybytes()} if len(cells) else {}
    return [thrift().TColumnValue(family, _NUMBER.pack(number), value, _STAMP) for family, value in values.items()]


_FIRST_ROWS = 250  # of a part; then by the sizes of rows
_CHUNK_ROWS = 2_000
_CHUNK_BYTES = 4 << 20
_PARTS_MAX = 256
_PARTS_AT_ONCE = 4
BEFORE_ALL = 0  # in the log's order
VISIBLE_SECONDS = 0.25  # HBase logs a write some moments before its readers see it


@dataclass(frozen=True, slots=True)
class Part:
    """A part of a table, start <= row key < stop, of which about `rows_max` more rows are to be staged."""

    table: TableSchema
    number: int
    start: bytes
    stop: bytes
    rows_max: int


@dataclass(frozen=True, slots=True)
class SnapshotCopy:
    connections: Connections
    rows: MetaTable
    chunks: StagedChunks

    def parts(self, table: TableSchema, *, rows_max: int) -> list[Part]:
        """What to stage: about so many more rows, of all parts."""
        self.chunks.make()
        borders = self._borders(table)
        share = max(_CHUNK_ROWS, rows_max // (len(borders) - 1))
        spans = enumerate(zip(borders, borders[1:], strict=False))
        return [Part(table, number, start, stop, share) for number, (start, stop) in spans]

    def stage(self, parts: Sequence[Part]) -> bool:
        """Stage these parts in this process; whether all are staged to their ends."""
        with ThreadPoolExecutor(_PARTS_AT_ONCE) as pool:
            return all(list(pool.map(self.stage_part, parts)))

    def _borders(self, table: TableSchema) -> list[bytes]:
        """Where the parts of a table begin, and b"" at the end: its regions when its staging began."""
        name = _borders_name(table)
        found = self.rows.read(LOG, name).get(name)
        if found is None:
            self.chunks.forget(table.id, before=foreign_of(table).staging)
            time.sleep(VISIBLE_SECONDS)  # from here on scans see what was logged before reading began
            regions = ask_user_table(self.connections, foreign_of(table).table, "getAllRegionLocations")
            starts = sorted(region.regionInfo.startKey or b"" for region in regions)
            step = -(-len(starts) // _PARTS_MAX)
            text = ",".join(start.hex() for start in starts[::step])
            self.rows.swap(LOG, name, b"", {name: f"{text},".encode()}, repeats=True)
            found = self.rows.read(LOG, name)[name]
        return [bytes.fromhex(start) for start in found.decode().split(",")]

    def begun(self) -> Callable[[TableSchema], float]:
        """A function that returns when (ms, by HBase's clock) the staging of a table began; infinity: it has not."""
        began = {name: cell.timestamp for name, cell in self.rows.cells(LOG).items()}
        return lambda table: began.get(_borders_name(table), math.inf)

    def stage_part(self, part: Part) -> bool:
        """Stage more rows of a part; whether it is staged to its end."""
        table, foreign = part.table, foreign_of(part.table)
        key, rows, page = PartKey(table.id, foreign.staging, part.number), 0, min(_CHUNK_ROWS, _FIRST_ROWS)
        reached = self.chunks.reached(key)
        while rows < part.rows_max and not (reached and reached.is_done):
            start = after(reached.last) if reached else part.start
            scan = _scan(table, start, part.stop, rows=page)
            found = ask_user_table(self.connections, foreign.table, "getScannerResults", scan, page)
            bytes_each = [_bytes_of(result) for result in found]
            taken = max(1, bisect_right(list(accumulate(bytes_each)), _CHUNK_BYTES)) if found else 0
            is_last = len(found) < page or not after(found[-1].row)
            number = reached.number + 1 if reached else 1
            now = Reached(number, is_last and taken == len(found), found[taken - 1].row if found else start)
            reached = self.chunks.append(key, reached, now, cells_of(table, found[:taken]))
            rows += taken
            page = max(1, min(_CHUNK_ROWS, _CHUNK_BYTES * len(found) // max(1, sum(bytes_each))))
        return bool(reached and reached.is_done)

    def stage_again(self, table: TableSchema, deletes: pa.RecordBatch) -> None:
        """Stage what readers see where single versions were deleted."""
        keys, wrong = decode_row_keys(table, deletes["row"])
        rows: dict[bytes, list[dict[str, Any]]] = {}
        for key, delete in zip(keys.filter(~wrong).to_pylist(), deletes.filter(~wrong).to_pylist(), strict=True):
            rows.setdefault(key, []).append(delete)
        found = [write for key, some in rows.items() for write in self._uncovered(table, key, some)]
        self.append(table, pa.Table.from_pylist(found, CELLS_SCHEMA))

    def append(self, table: TableSchema, cells: pa.Table) -> None:
        """Stage cells that are in none of the table's parts."""
        if cells.num_rows:
            self.chunks.make()
            part, ends = PartKey(table.id, foreign_of(table).staging, AGAIN), np.cumsum(_bytes_of_cells(cells))
            start = done = 0
            while start < len(cells):
                stop = max(start + 1, int(np.searchsorted(ends, done + _CHUNK_BYTES, "right")))
                self.chunks.put(part, cells.slice(start, stop - start))
                start, done = stop, int(ends[stop - 1])

    def _uncovered(
        self, table: TableSchema, key: bytes, deletes: Sequence[Mapping[str, Any]]
    ) -> Iterator[dict[str, Any]]:
        """What is left of the cells of a row of which versions were deleted."""
        each = [(delete, column) for delete in deletes for column in _deleted_from(table, delete)]
        versions = self._versions(table, each[0][0]["row"], each[0][1]) if each else Versions()
        for delete, column in each:
            stamp, value = versions.newest(column, but=delete["timestamp"]) or (delete["timestamp"], None)
            kind, order = READ_NONE if value is None else READ, order_after(delete["sequence"])
            ((*_, value),) = within_room(key, [(column, kind, stamp, value)])
            yield {
                **{"position": 0, "key": key, "column": column, "kind": kind},
                **{"stamp": stamp, "order": order, "value": value},
            }

    def _versions(self, table: TableSchema, row: bytes, column: int) -> Versions:
        """The versions of a row's cells, of all that is logged by now. A table that cannot be read has no rows."""
        self._await_writers(table, row, column)
        try:
            scan = _scan(table, row, after(row), rows=1)
            found = ask_user_table(self.connections, foreign_of(table).table, "getScannerResults", scan, 1)
        except Refused:
            return Versions()
        return Versions.of(table, found[0]) if found else Versions()

    def _await_writers(self, table: TableSchema, row: bytes, column: int) -> None:
        """Wait until readers see all that is logged of a row.

        HBase answers a test-and-set when those who write the row are done with it. This one is met by no value, and
        changes nothing.
        """
        cell, nobodys = foreign_of(table).cells[column], uuid.uuid4().bytes
        place = cell.family.encode(), cell.qualifier.encode()
        put = thrift().TPut(row=row, columnValues=[thrift().TColumnValue(*place, nobodys)])
        same = thrift().TRowMutations(row=row, mutations=[thrift().TMutation(put=put)])
        test = row, *place, thrift().TCompareOp.EQUAL, nobodys, same
        try:
            ask_user_table(self.connections, foreign_of(table).table, "checkAndMutate", *test)
        except Refused:  # the table cannot be written: nobody writes it, or others alone may
            time.sleep(VISIBLE_SECONDS)


def _borders_name(table: TableSchema) -> str:
    return f"borders/{table.id}/{foreign_of(table).staging}"


def cells_of(table: TableSchema, results: Sequence[Any]) -> pa.Table:
    """The writes of mapped columns in raw rows: of each its newest version that is not deleted by itself, and the timestamp
    up to which versions are hidden."""
    found = [
        (result.row, *write)
        for result in results
        for write in within_room(result.row, [*Versions.of(table, result).writes()])
    ]
    rows, columns, kinds, stamps, values = zip(*found, strict=True) if found else ((), (), (), (), ())
    keys, wrong = decode_row_keys(table, pa.array(rows, pa.binary()))
    nothing = pa.array(np.full(len(found), BEFORE_ALL))
    arrays = [
        *(nothing, keys, pa.array(columns, pa.int32()), pa.array(kinds, pa.int8())),
        *(pa.array(stamps, pa.int64()), nothing, pa.array(values, pa.binary())),
    ]
    return pa.table(arrays, schema=CELLS_SCHEMA).filter(pa.array(~wrong))


_CELL_BYTES_MAX = (10 << 20) - (256 << 10)  # of a chunk, which is one cell: HBase takes 10 MiB
_OF_ONE_WRITE = 64  # bytes beside its key and value


def within_room(row: bytes, writes: list[_Write]) -> list[_Write]:
    """The writes of a row, without the largest values of one that is too large for a chunk; their stamps stay."""
    room = _CELL_BYTES_MAX - len(writes) * (len(row) + _OF_ONE_WRITE)
    for at in sorted(range(len(writes)), key=lambda at: len(writes[at][3] or b""), reverse=True):
        if sum(len(value or b"") for *_, value in writes) <= room:
            break
        writes[at] = (*writes[at][:3], None)
    return writes


def _bytes_of(result: Any) -> int:
    return sum(len(result.row) + len(cell.value or b"") + _OF_ONE_WRITE for cell in result.columnValues)


def _bytes_of_cells(cells: pa.Table) -> np.ndarray:
    lengths = (np.asarray(pc.binary_length(cells[name]).fill_null(0)) for name in ("key", "value"))
    return sum(lengths, np.full(len(cells), _OF_ONE_WRITE))


def _deleted_from(table: TableSchema, delete: Mapping[str, Any]) -> list[int]:
    """The mapped columns of which a delete removes a version."""
    return [
        number
        for number, cell in enumerate(foreign_of(table).cells)
        if cell.family.encode() == delete["family"]
        and (delete["kind"] != DELETE_VERSION or cell.qualifier.encode() == delete["qualifier"])
    ]


@dataclass(frozen=True, slots=True)
class Versions:
    """A raw row: by column its puts, newest first, and up to which timestamp they are hidden; and versions that are gone."""

    puts: dict[int, list[tuple[int, bytes]]] = field(default_factory=dict)
    hidden: dict[int, int] = field(default_factory=dict)
    deleted: set[tuple[int, int]] = field(default_factory=set)

    @staticmethod
    def of(table: TableSchema, result: Any) -> Versions:
        """HBase returns the newest cell of a column first."""
        row, columns = Versions(), defaultdict[bytes, dict[bytes, int]](dict)
        for number, cell in enumerate(foreign_of(table).cells):
            columns[cell.family.encode()][cell.qualifier.encode()] = number
        for cell in result.columnValues:
            own = columns[cell.family]
            is_whole = cell.type in (DELETE_FAMILY, DELETE_FAMILY_VERSION)
            for column in own.values() if is_whole else [own[cell.qualifier]] if cell.qualifier in own else []:
                if cell.type == CELL_PUT:
                    row.puts.setdefault(column, []).append((cell.timestamp, cell.value))
                elif cell.type in (DELETE_VERSION, DELETE_FAMILY_VERSION):
                    row.deleted.add((column, cell.timestamp))
                else:
                    row.hidden[column] = max(row.hidden.get(column, 0), cell.timestamp)
        return row

    def newest(self, column: int, *, but: int) -> tuple[int, bytes] | None:
        """The version that readers see, were there none with that timestamp."""
        seen = (one for one in self.puts.get(column, ()) if one[0] != but and not self.is_deleted(column, one[0]))
        return next(seen, None)

    def is_deleted(self, column: int, stamp: int) -> bool:
        """Whether a delete hides versions with that timestamp."""
        return (column, stamp) in self.deleted or stamp <= self.hidden.get(column, -1)

    def writes(self) -> Iterator[_Write]:
        """(column, kind, stamp, value) of the row."""
        for column, stamp in self.hidden.items():
            yield column, HIDE, stamp, None
        for column, versions in self.puts.items():
            there = next((one for one in versions if (column, one[0]) not in self.deleted), None)
            if there is not None:
                yield column, PUT, *there


def _scan(table: TableSchema, start: bytes, stop: bytes, *, rows: int) -> Any:
    """A raw scan, which also returns deletes: they hide later writes with an older timestamp."""
    families = sorted({cell.family.encode() for cell in foreign_of(table).cells})
    return thrift().TScan(
        startRow=start,
        stopRow=stop or None,
        columns=[thrift().TColumn(family) for family in families],
        caching=rows,
        limit=rows,
        maxVersions=VERSIONS_MAX,
        attributes={b"_raw_": b"\xff"},
    )
