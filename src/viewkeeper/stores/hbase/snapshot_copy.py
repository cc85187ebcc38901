"""The snapshot copy: the rows that a user's table has already are copied, part by part, to streams that can be read
again.

In: a mapped table. Out: chunks of cells, deletes among them, with the timestamps they have in the base; and a log
source of these chunks. Always: a scan of the base cannot be repeated with the same answer, so an epoch never reads it,
but its copy. A chunk is put where there is none, once and for all: of two who copy the same part one wins, and the
other goes on after it. Positions count chunks; a stream is a part of one copy of a table. Writes that come meanwhile
are in the log: δ merges both, in any order. Copied cells have no place in the log's order, and count as older than any
of it with their timestamp.
"""

from __future__ import annotations

import math
import struct
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from viewkeeper.model.foreign_rows import HIDE, PUT, READ, READ_NONE, decode_row_keys, foreign_of
from viewkeeper.model.positions import Cut, Position, Positions, Stream, Waiting, covers
from viewkeeper.model.schema import TableSchema
from viewkeeper.ports.log import CELLS_SCHEMA
from viewkeeper.stores.hbase.client import Connections
from viewkeeper.stores.hbase.mapping import ask_user_table
from viewkeeper.stores.hbase.store_tables import LOG, MetaTable, create_table, table_exists
from viewkeeper.stores.hbase.thrift_cells import VERSIONS_MAX, in_batches, thrift
from viewkeeper.stores.hbase.wal.mapped_tables import order_after
from viewkeeper.stores.hbase.wal.wal_entries import DELETE_FAMILY, DELETE_FAMILY_VERSION, DELETE_VERSION
from viewkeeper.stores.hbase.wal.wal_entries import PUT as CELL_PUT
from viewkeeper.stores.hbase.wal.wal_log import STAGED

AGAIN = 0xFFFF  # the part for rows that are staged again
_FAMILY, _CELLS, _COUNT, _LAST, _DONE = b"s", b"cells", b"count", b"last", b"done"
_KEY = struct.Struct(">IIHQ")  # table, staging, part, number
_ROWS_MAX = 10_000
_CHUNKS_AT_ONCE = 8
PartKey = tuple[int, int, int]  # table, staging, part


@dataclass(frozen=True, slots=True)
class Chunk:
    """`last`: the row key up to which the part is staged with this chunk; `is_done`: it is the part's last one."""

    number: int
    count: int
    last: bytes
    is_done: bool


class StagedLog:
    """The port `LogSource`, of staged streams alone."""

    def __init__(self, connections: Connections, namespace: str, now: Callable[[], int]) -> None:
        self._connections, self._now = connections, now
        self._table = f"{namespace}:staged".encode()
        self._is_there = False

    def make(self) -> None:
        """Make the table that keeps the chunks."""
        if not self._is_made():
            create_table(self._connections, self._table, [_FAMILY], 1, 1)

    def append(self, part: PartKey, after: Chunk | None, cells: pa.Table, last: bytes, *, is_done: bool) -> Chunk:
        """Put the chunk that follows `after`, unless somebody else has; returns the chunk that is there."""
        number = after.number + 1 if after else 1
        row = _KEY.pack(*part, number)
        values = {_CELLS: _pack(cells), _COUNT: b"%d" % len(cells), _LAST: last, _DONE: b"1" if is_done else b"0"}
        put = thrift().TPut(row=row, columnValues=[thrift().TColumnValue(_FAMILY, *one) for one in values.items()])
        mutations = thrift().TRowMutations(row=row, mutations=[thrift().TMutation(put=put)])
        equal = thrift().TCompareOp.EQUAL
        self._connections.ask("checkAndMutate", self._table, row, _FAMILY, _DONE, equal, b"", mutations)
        return self._chunks(part, number - 1)[-1]

    def last(self, part: PartKey) -> Chunk | None:
        """The newest chunk of a part."""
        found = self._chunks(part, 0) if self._is_made() else []
        return found[-1] if found else None

    def _is_made(self) -> bool:
        self._is_there = self._is_there or table_exists(self._connections, self._table)
        return self._is_there

    def _chunks(self, part: PartKey, after: int) -> list[Chunk]:
        start, stop = _KEY.pack(*part, after + 1), _KEY.pack(*part, (1 << 64) - 1)
        return [chunk for _, chunk in self._listed(start, stop)]

    def _listed(self, start: bytes, stop: bytes) -> Iterator[tuple[PartKey, Chunk]]:
        columns = [thrift().TColumn(_FAMILY, name) for name in (_COUNT, _LAST, _DONE)]
        while True:
            scan = thrift().TScan(startRow=start, stopRow=stop, columns=columns, caching=_ROWS_MAX, limit=_ROWS_MAX)
            found = self._connections.ask("getScannerResults", self._table, scan, _ROWS_MAX)
            for result in found:
                values = {cell.qualifier: cell.value for cell in result.columnValues}
                *part, number = _KEY.unpack(result.row)
                yield tuple(part), Chunk(number, int(values[_COUNT]), values[_LAST], values[_DONE] == b"1")
            if len(found) < _ROWS_MAX:
                return
            start = found[-1].row + b"\x00"

    def _streams(self) -> dict[Stream, list[Chunk]]:
        found: dict[Stream, list[Chunk]] = {}
        for part, chunk in self._listed(b"", b"\xff" * _KEY.size) if self._is_made() else ():
            found.setdefault(stream_of(part), []).append(chunk)
        return found

    def owns(self, stream: Stream) -> bool:
        return stream.startswith(STAGED)

    def ends(self) -> Positions:
        return {stream: Position(chunks[-1].number) for stream, chunks in self._streams().items()}

    def last_entries(self) -> Positions:
        return self.ends()

    def has_changes(self, start: Positions, stop: Positions) -> bool:
        return not covers(start, stop)

    def cut(self, start: Positions, *, changes_max: int, bytes_max: int) -> Cut:
        """Rows that are staged again are always in it: what was written after their deletes may not come before them."""
        stamp, changes, positions = self._now(), 0, {}
        for stream, chunks in sorted(self._streams().items()):
            positions[stream], is_again = start.get(stream, Position(0)), part_of(stream)[2] == AGAIN
            for chunk in chunks:
                if chunk.number > positions[stream] and (is_again or changes < changes_max):
                    positions[stream], changes = Position(chunk.number), changes + chunk.count
        return Cut({stream: at for stream, at in positions.items() if at}, stamp, changes)

    def skip_log(self, start: Positions) -> Cut:
        return Cut(self.ends(), self._now(), 0)

    def log_bytes(self, start: Positions, stop: Positions) -> int:
        return 0  # what is staged is as large as the chunks, which are bounded

    def waiting(self, start: Positions) -> Waiting:
        ahead = [
            chunk.count
            for stream, chunks in self._streams().items()
            for chunk in chunks
            if chunk.number > start.get(stream, 0)
        ]
        return Waiting(sum(ahead), None)

    def pieces(self, stream: Stream, start: Position, stop: Position, *, count: int) -> list[Position]:
        size = stop - start
        return sorted({Position(start + size * piece // count) for piece in range(count + 1)})

    def log_entries(self) -> int:
        return sum(len(chunks) for chunks in self._streams().values())

    def checksums(self, positions: Positions) -> dict[Stream, int]:
        return {}

    def read_log(self, stream: Stream, start: Position, stop: Position) -> Iterator[tuple[int, pa.RecordBatch]]:
        part = part_of(stream)
        column = [thrift().TColumn(_FAMILY, _CELLS)]
        gets = [thrift().TGet(row=_KEY.pack(*part, number), columns=column) for number in range(start + 1, stop + 1)]
        number = start
        for some in in_batches(gets, _CHUNKS_AT_ONCE):
            for result in self._connections.ask("getMultiple", self._table, list(some)):
                number = Position(number + 1)
                yield part[0], _unpack(_only(result, stream, number), number)

    def truncate_log(self, positions: Positions, *, older_than_seconds: float, entries_max: int) -> int:
        """Delete chunks that are committed, but for the last of each stream, which tells how far it is staged."""
        gone = []
        for stream, chunks in self._streams().items():
            committed = positions.get(stream, 0)
            gone += [
                _KEY.pack(*part_of(stream), chunk.number)
                for chunk in chunks
                if chunk.number < committed and chunk is not chunks[-1]
            ]
        self._delete(gone[:entries_max])
        return len(gone[:entries_max])

    def forget(self, tables: Sequence[int]) -> None:
        """Delete the chunks of tables that nobody stages any more."""
        if self._is_made():
            for table in tables:
                self._delete(
                    [_KEY.pack(*part, chunk.number) for part, chunk in self._listed(*_span(table)) if chunk.number]
                )

    def _delete(self, rows: list[bytes]) -> None:
        if rows:
            self._connections.ask("deleteMultiple", self._table, [thrift().TDelete(row=row) for row in rows])


def stream_of(part: PartKey) -> Stream:
    return Stream(STAGED + ",".join(map(str, part)))


def part_of(stream: Stream) -> PartKey:
    table, staging, part = map(int, stream.removeprefix(STAGED).split(","))
    return table, staging, part


def _span(table: int) -> tuple[bytes, bytes]:
    return struct.pack(">I", table), struct.pack(">I", table + 1)


def _only(result: Any, stream: Stream, number: int) -> bytes:
    from viewkeeper.errors import PositionLost

    if not result.columnValues:
        raise PositionLost(f"chunk {number} of {stream} is gone")
    return result.columnValues[0].value


def _pack(cells: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, cells.schema) as writer:
        writer.write_table(cells.combine_chunks())
    return sink.getvalue().to_pybytes()


def _unpack(value: bytes, number: int) -> pa.RecordBatch:
    cells = pa.ipc.open_stream(value).read_all().combine_chunks()
    at = CELLS_SCHEMA.get_field_index("position")
    table = cells.set_column(at, CELLS_SCHEMA.field(at), pa.array([number] * len(cells), pa.int64()))
    batches = table.to_batches()
    return batches[0] if batches else pa.RecordBatch.from_pylist([], CELLS_SCHEMA)


_CHUNK_ROWS = 2_000
_PARTS_MAX = 256
_PARTS_AT_ONCE = 4
_BEFORE_ALL = 0  # in the log's order
_LOOKS_MAX, _LOOK_SECONDS = 40, 0.05
VISIBLE_SECONDS = 0.25  # HBase logs a write some moments before its readers see it


@dataclass(frozen=True, slots=True)
class Part:
    """A part of a table, of which about `rows_max` rows more are to be staged; its row keys are start <= key < stop."""

    table: TableSchema
    number: int
    start: bytes
    stop: bytes
    rows_max: int


@dataclass(frozen=True, slots=True)
class SnapshotCopy:
    """Stages tables of one store."""

    connections: Connections
    rows: MetaTable
    staged: StagedLog

    def parts(self, table: TableSchema, *, rows_max: int) -> list[Part]:
        """What to stage: about so many rows more, of all parts."""
        self.staged.make()
        borders = self._borders(table)
        share = max(_CHUNK_ROWS, rows_max // (len(borders) - 1))
        spans = enumerate(zip(borders, borders[1:], strict=False))
        return [Part(table, number, start, stop, share) for number, (start, stop) in spans]

    def stage(self, parts: Sequence[Part]) -> bool:
        """Stage these parts here; whether all of them are staged to their ends."""
        with ThreadPoolExecutor(_PARTS_AT_ONCE) as pool:
            return all(list(pool.map(self.stage_part, parts)))

    def _borders(self, table: TableSchema) -> list[bytes]:
        """Where the parts of a table begin, and b"" at the end: regions as they were when its staging began."""
        name = _borders_name(table)
        found = self.rows.read(LOG, name).get(name)
        if found is None:
            time.sleep(VISIBLE_SECONDS)  # what was logged before reading began is seen from here on
            regions = ask_user_table(self.connections, foreign_of(table).table, "getAllRegionLocations")
            starts = sorted(region.regionInfo.startKey or b"" for region in regions)
            step = -(-len(starts) // _PARTS_MAX)
            text = ",".join(start.hex() for start in starts[::step])
            self.rows.swap_surely(LOG, name, b"", {name: f"{text},".encode()})
            found = self.rows.read(LOG, name)[name]
        return [bytes.fromhex(start) for start in found.decode().split(",")]

    def begun(self) -> Callable[[TableSchema], float]:
        """When (ms, by HBase's clock) the staging of a table began; infinity: it has not."""
        facts = self.rows.cells(LOG)

        def begun(table: TableSchema) -> float:
            fact = facts.get(_borders_name(table))
            return math.inf if fact is None else fact.timestamp

        return begun

    def stage_part(self, part: Part) -> bool:
        """Go on with a part; whether it is staged to its end."""
        table, foreign = part.table, foreign_of(part.table)
        place = (table.id, foreign.staging, part.number)
        chunk, rows = self.staged.last(place), 0
        while rows < part.rows_max and not (chunk and chunk.is_done):
            start = chunk.last + b"\x00" if chunk else part.start
            scan = _scan(table, start, part.stop)
            found = ask_user_table(self.connections, foreign.table, "getScannerResults", scan, _CHUNK_ROWS)
            is_done = len(found) < _CHUNK_ROWS
            last = found[-1].row if found else start
            chunk = self.staged.append(place, chunk, cells_of(table, found), last, is_done=is_done)
            rows += len(found)
        return bool(chunk and chunk.is_done)

    def stage_again(self, table: TableSchema, deletes: pa.RecordBatch) -> None:
        """Stage what single deleted versions have uncovered: what is there now, read in place of the delete."""
        time.sleep(VISIBLE_SECONDS)
        found = [
            write
            for delete in deletes.to_pylist()
            for number, cell in enumerate(foreign_of(table).cells)
            if cell.family.encode() == delete["family"]
            and (delete["kind"] != DELETE_VERSION or cell.qualifier.encode() == delete["qualifier"])
            for write in [self._uncovered(table, delete, number)]
        ]
        keys, wrong = decode_row_keys(table, pa.array([write["key"] for write in found], pa.binary()))
        cells = pa.Table.from_pylist(found, CELLS_SCHEMA).set_column(1, CELLS_SCHEMA.field(1), keys)
        self.append(table, cells.filter(pa.array(~wrong)))

    def append(self, table: TableSchema, cells: pa.Table) -> None:
        """Stage cells beside those of the table's parts. Others append too: try until the chunk is ours."""
        self.staged.make()
        place = (table.id, foreign_of(table).staging, AGAIN)
        last = self.staged.last(place)
        nonce = b"%d" % np.random.default_rng().integers(1 << 62)
        while (chunk := self.staged.append(place, last, cells, nonce, is_done=False)).last != nonce:
            last = chunk

    def _uncovered(self, table: TableSchema, delete: dict[str, Any], number: int) -> dict[str, Any]:
        cell, stamp = foreign_of(table).cells[number], delete["timestamp"]
        get = thrift().TGet(
            row=delete["row"],
            columns=[thrift().TColumn(cell.family.encode(), cell.qualifier.encode())],
        )
        for _ in range(_LOOKS_MAX):
            found = ask_user_table(self.connections, foreign_of(table).table, "get", get).columnValues
            if not found or found[0].timestamp != stamp:
                break
            time.sleep(_LOOK_SECONDS)
        return {
            **{"position": 0, "key": delete["row"], "column": number, "kind": READ if found else READ_NONE},
            **{"stamp": found[0].timestamp if found else stamp, "order": order_after(delete["sequence"])},
            **{"value": found[0].value if found else None},
        }


def _borders_name(table: TableSchema) -> str:
    return f"borders/{table.id}/{foreign_of(table).staging}"


def cells_of(table: TableSchema, results: Sequence[Any]) -> pa.Table:
    """What raw rows say of mapped columns, as writes: of each the newest value that no delete of its version takes away, and
    up to which timestamp values are hidden."""
    cells = foreign_of(table).cells
    numbers = {(cell.family.encode(), cell.qualifier.encode()): number for number, cell in enumerate(cells)}
    families = {family: [n for (one, _), n in numbers.items() if one == family] for family, _ in numbers}
    found = [write for result in results for write in _writes(result, numbers, families)]
    rows, columns, kinds, stamps, values = zip(*found, strict=True) if found else ((), (), (), (), ())
    keys, wrong = decode_row_keys(table, pa.array(rows, pa.binary()))
    nothing = pa.array(np.full(len(found), _BEFORE_ALL))
    arrays = [
        *(nothing, keys, pa.array(columns, pa.int32()), pa.array(kinds, pa.int8())),
        *(pa.array(stamps, pa.int64()), nothing, pa.array(values, pa.binary())),
    ]
    return pa.table(arrays, schema=CELLS_SCHEMA).filter(pa.array(~wrong))


def _writes(
    result: Any, numbers: Mapping[tuple[bytes, bytes], int], families: Mapping[bytes, Sequence[int]]
) -> Iterator[tuple[bytes, int, int, int, bytes | None]]:
    """Of one row: (row key, column, kind, stamp, value). HBase returns the newest cell of a column first."""
    puts: dict[int, list[tuple[int, bytes]]] = {}
    hidden: dict[int, int] = {}
    gone: set[tuple[int, int]] = set()  # column and timestamp of a deleted version
    for cell in result.columnValues:
        own = numbers.get((cell.family, cell.qualifier))
        if cell.type in (DELETE_FAMILY, DELETE_FAMILY_VERSION):
            columns = families[cell.family]
        else:
            columns = [] if own is None else [own]
        for column in columns:
            if cell.type == CELL_PUT:
                puts.setdefault(column, []).append((cell.timestamp, cell.value))
            elif cell.type in (DELETE_VERSION, DELETE_FAMILY_VERSION):
                gone.add((column, cell.timestamp))
            else:
                hidden[column] = max(hidden.get(column, 0), cell.timestamp)
    for column, stamp in hidden.items():
        yield result.row, column, HIDE, stamp, None
    for column, versions in puts.items():
        there = next((one for one in versions if (column, one[0]) not in gone), None)
        if there is not None:
            yield result.row, column, PUT, *there


def _scan(table: TableSchema, start: bytes, stop: bytes) -> Any:
    """A raw scan, which also returns deletes: they hide what is written later with an older timestamp."""
    families = sorted({cell.family.encode() for cell in foreign_of(table).cells})
    return thrift().TScan(
        startRow=start,
        stopRow=stop or None,
        columns=[thrift().TColumn(family) for family in families],
        caching=_CHUNK_ROWS,
        limit=_CHUNK_ROWS,
        maxVersions=VERSIONS_MAX,
        attributes={b"_raw_": b"\xff"},
    )
