"""Staged streams: rows that were in users' tables before us, kept as a log that can be read repeatedly.

In: cells that somebody read from the base, in chunks. Out: a log source. Always: a chunk is put where there is none, once and
for all: of two who stage the same part one wins, and the other goes on after it. Positions count chunks. A stream is a part
of one staging of a table.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from viewkeeper.logs.hbase.source import STAGED
from viewkeeper.model.positions import Cut, Position, Positions, Stream, Waiting, covers
from viewkeeper.ports.log import CELLS_SCHEMA
from viewkeeper.stores.hbase.cells import in_batches
from viewkeeper.stores.hbase.connections import Connections
from viewkeeper.stores.hbase.tables import create_table, table_exists
from viewkeeper.stores.hbase.thrift import thrift

AGAIN = 0xFFFF  # the part for rows that are staged again
_FAMILY, _CELLS, _COUNT, _LAST, _DONE = b"s", b"cells", b"count", b"last", b"done"
_KEY = struct.Struct(">IIHQ")  # table, staging, part, number
_ROWS_MAX = 10_000
_AT_ONCE = 8
Part = tuple[int, int, int]  # table, staging, part


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

    def append(self, part: Part, after: Chunk | None, cells: pa.Table, last: bytes, *, is_done: bool) -> Chunk:
        """Put the chunk that follows `after`, unless somebody else has; returns the chunk that is there."""
        number = after.number + 1 if after else 1
        row = _KEY.pack(*part, number)
        values = {_CELLS: _pack(cells), _COUNT: b"%d" % len(cells), _LAST: last, _DONE: b"1" if is_done else b"0"}
        put = thrift().TPut(row=row, columnValues=[thrift().TColumnValue(_FAMILY, *one) for one in values.items()])
        mutations = thrift().TRowMutations(row=row, mutations=[thrift().TMutation(put=put)])
        equal = thrift().TCompareOp.EQUAL
        self._connections.ask("checkAndMutate", self._table, row, _FAMILY, _DONE, equal, b"", mutations)
        return self._chunks(part, number - 1)[-1]

    def last(self, part: Part) -> Chunk | None:
        """The newest chunk of a part."""
        found = self._chunks(part, 0) if self._is_made() else []
        return found[-1] if found else None

    def _is_made(self) -> bool:
        self._is_there = self._is_there or table_exists(self._connections, self._table)
        return self._is_there

    def _chunks(self, part: Part, after: int) -> list[Chunk]:
        start, stop = _KEY.pack(*part, after + 1), _KEY.pack(*part, (1 << 64) - 1)
        return [chunk for _, chunk in self._listed(start, stop)]

    def _listed(self, start: bytes, stop: bytes) -> Iterator[tuple[Part, Chunk]]:
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
        for some in in_batches(gets, _AT_ONCE):
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


def stream_of(part: Part) -> Stream:
    return Stream(STAGED + ",".join(map(str, part)))


def part_of(stream: Stream) -> Part:
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
