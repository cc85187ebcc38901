"""Staging: copies the rows that a user's table has already to a staged stream, part by part.

In: a mapped table. Out: chunks of cells, deletes among them, with the timestamps they have in the base. Always: a scan of
the base cannot be repeated with the same answer, so an epoch never reads it, but what was staged; whoever goes on starts
after the last row that was staged. Writes that come meanwhile are in the log: δ merges both, in any order. The cells have
no place in the log's order, and count as older than any of it with their timestamp.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from viewkeeper.logs.hbase.cells import DELETE_FAMILY, DELETE_FAMILY_VERSION, DELETE_VERSION
from viewkeeper.logs.hbase.cells import PUT as CELL_PUT
from viewkeeper.logs.hbase.mapped import order_after
from viewkeeper.model.cellrows import HIDE, PUT, READ, READ_NONE
from viewkeeper.model.rowkeys import decode_row_keys, foreign_of
from viewkeeper.model.schema import TableSchema
from viewkeeper.ports.log import CELLS_SCHEMA
from viewkeeper.stores.hbase.cells import VERSIONS_MAX
from viewkeeper.stores.hbase.connections import Connections
from viewkeeper.stores.hbase.metarow import LOG, MetaRows
from viewkeeper.stores.hbase.staged import AGAIN, StagedLog
from viewkeeper.stores.hbase.thrift import thrift
from viewkeeper.stores.hbase.usertables import ask_user_table

_CHUNK_ROWS = 2_000
_PARTS_MAX = 256
_AT_ONCE = 4
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
class Staging:
    """Stages tables of one store."""

    connections: Connections
    rows: MetaRows
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
        with ThreadPoolExecutor(_AT_ONCE) as pool:
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
