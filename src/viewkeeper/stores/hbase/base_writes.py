"""Base writes in HBase: rows of mapped tables, each written by itself.

In: writes as functions of the rows found. Out: puts and deletes of cells; row_keys of the log that cover them. Always:
a row is changed by one mutation, and only in cells whose value changes, so that writers of other columns lose nothing.
A put or a delete is sent again when its reply was lost, a test-and-set is not. A delete hides cells by the stamps that
were read, and returns when HBase's clock has passed these, so later puts are seen. A cell with a future stamp is
replaced under the same stamp, or it would hide the new value.

A row that is only to be logged as it is has its cells put again. Changes that no server's log holds (truncated tables,
tables made anew, expired cells, deletes that a major compaction has removed) are staged as writes of cells, and nothing
is written to the user's table. A missing cell is hidden by its own stamp, so that later puts are seen.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from viewkeeper.errors import BadRow, InputError, RowsApart, StoreBusy, StoreUnavailable, UnknownName, UnsupportedSql
from viewkeeper.model.foreign_rows import (
    CELLS_SCHEMA,
    HIDE,
    KEY_BYTES_MAX,
    NEVER,
    PUT,
    READ,
    CellRows,
    cell_rows,
    decode_cells,
    encode_cells,
    encode_row_keys,
    fits,
    foreign_of,
)
from viewkeeper.model.keybatches import hashes_of_keys
from viewkeeper.model.positions import Positions
from viewkeeper.model.read_frontier import ReadTimestamp
from viewkeeper.model.rowbatches import decode_rows
from viewkeeper.model.schema import Cell, TableSchema
from viewkeeper.model.stored_rows import Expected, Image, RowWrites
from viewkeeper.ports.base_rows import Mapped
from viewkeeper.stores.hbase.base_rows import BaseRows, FoundRows
from viewkeeper.stores.hbase.log import LogPart
from viewkeeper.stores.hbase.mapping import ask_user_table
from viewkeeper.stores.hbase.snapshot_copy import BEFORE_ALL, VISIBLE_SECONDS, within_room
from viewkeeper.stores.hbase.snapshot_reads import ReadsPart
from viewkeeper.stores.hbase.thrift_cells import BATCH_RECORDS, ROW_BYTES_MAX, by_size, in_batches, thrift


@dataclass(frozen=True, slots=True)
class RowChange:
    """The mutations of one row: HBase does all of them or none."""

    row: bytes
    put: Any | None
    delete: Any | None

    @property
    def mutations(self) -> Any:
        both = [thrift().TMutation(put=self.put)] if self.put is not None else []
        both += [thrift().TMutation(deleteSingle=self.delete)] if self.delete is not None else []
        return thrift().TRowMutations(row=self.row, mutations=both)


def changes_of(
    schema: TableSchema, row_keys: Sequence[bytes], found: FoundRows, afters: Sequence[Image], repeats: Sequence[bool]
) -> list[RowChange]:
    """The change of each row that changes; a row that `repeats` is put again as it is, whether it decodes or not."""
    both = _cells(schema, [*found.images, *afters])
    was, new = [column[: len(row_keys)] for column in both], [column[len(row_keys) :] for column in both]
    cells, now_ms = foreign_of(schema).cells, time.time_ns() // 1_000_000
    changes = []
    for at, row in enumerate(row_keys):
        puts, deletes = [], []
        if afters[at] is not None:
            _require_room(schema, row, [column[at] for column in new])
        for i, cell in enumerate(cells):
            there, before, after = found.cells[i][at], was[i][at], new[i][at]
            if repeats[at] and after == before:  # under its own timestamp: what others put meanwhile stays
                puts += [] if there is None else [_column_value(cell, there.value, there.timestamp)]
            elif after is not None:
                if after != before:
                    puts.append(_put(cell, after, there, now_ms))
            elif there is not None and (afters[at] is None or before is not None):
                deletes.append(thrift().TColumn(cell.family.encode(), cell.qualifier.encode(), there.timestamp))
            elif there is not None:
                _require_decoded(schema, i, there.value)
        if puts or deletes:
            put = thrift().TPut(row=row, columnValues=puts) if puts else None
            delete = thrift().TDelete(row=row, columns=deletes) if deletes else None
            changes.append(RowChange(row, put, delete))
    return changes


def _cells(schema: TableSchema, rows: Sequence[Image]) -> list[list[bytes | None]]:
    """The cells' values of rows, by column."""
    arrays = decode_rows(schema.value_columns, pa.array(rows, pa.binary()))
    mapped = zip(arrays, schema.value_columns, foreign_of(schema).cells, strict=True)
    return [encode_cells(array, column.type, cell.encoding).to_pylist() for array, column, cell in mapped]


def _put(cell: Cell, value: bytes, there: Any, now_ms: int) -> Any:
    stamp = there.timestamp if there is not None and there.timestamp > now_ms else None
    return _column_value(cell, value, stamp)


def _column_value(cell: Cell, value: bytes, stamp: int | None) -> Any:
    return thrift().TColumnValue(cell.family.encode(), cell.qualifier.encode(), value, stamp)


def _require_room(schema: TableSchema, row: bytes, values: Sequence[bytes | None]) -> None:
    """Raise where HBase cannot hold a row."""
    if not fits(row):
        raise BadRow(
            f"table {schema.name}: the row key has {len(row):,} bytes", f"HBase takes 1 to {KEY_BYTES_MAX - 4:,}"
        )
    largest = max(len(value or b"") for value in values)
    if largest > ROW_BYTES_MAX:
        raise BadRow(f"table {schema.name}: a value has {largest:,} bytes", f"HBase takes up to {ROW_BYTES_MAX:,}")
    if all(value is None for value in values):
        raise BadRow(
            f"table {schema.name}: all columns of a row would be NULL, and HBase keeps no such row",
            "give one column a value, or delete the row",
        )


def _require_decoded(schema: TableSchema, index: int, value: bytes) -> None:
    """Raise where a write would leave a cell that does not decode, so that there would be no row."""
    column, cell = schema.value_columns[index], foreign_of(schema).cells[index]
    _, wrong = decode_cells(pa.array([value], pa.binary()), column.type, cell.encoding)
    if wrong[0]:
        raise BadRow(
            f"the cell {cell.family}:{cell.qualifier} of that row is no {column.type} in {cell.encoding}",
            f"give {column.name} a value too, or delete the row",
        )


def missing_changes(schema: TableSchema, keys: Sequence[bytes], known: Sequence[Image], found: FoundRows) -> pa.Table:
    """Writes of cells that turn `known`, DELTA's records under these keys, into what was `found` afterwards."""
    rows = cell_rows(schema, pa.array(known, pa.binary()))
    stamps = np.array(
        [[NEVER if cell is None else cell.timestamp for cell in column] for column in found.cells], np.int64
    )
    there = stamps > NEVER
    gone = (rows.stamps > rows.hidden) & ~there
    other = (
        there & ~_same(rows, stamps, found) & (rows.stamps >= stamps)
    )  # HBase had a newer one, before it was restored
    anew = there & ((rows.read > NEVER) | (stamps <= rows.hidden)) & ~other
    writes = [
        {"kind": HIDE, "stamp": rows.stamps[i, at], "order": BEFORE_ALL, "key": keys[at], "column": i}
        for i, at in zip(*np.nonzero(gone), strict=True)
    ]
    for i, at in zip(*np.nonzero(anew | other), strict=True):
        stamp, order, kind = max(stamps[i, at], rows.hidden[i, at] + 1), max(rows.read[i, at], BEFORE_ALL), READ
        if other[i, at]:  # and what is put from now on may be logged below it
            stamp, order, kind = (
                max(stamp, rows.stamps[i, at] + (rows.stamps[i, at] > stamp)),
                rows.orders[i, at] + 1,
                PUT,
            )
        ((*_, value),) = within_room(keys[at], [(i, kind, stamp, found.cells[i][at].value)])
        writes.append({"kind": kind, "stamp": stamp, "value": value, "order": order, "key": keys[at], "column": i})
    return pa.Table.from_pylist([{"position": 0, "value": None} | write for write in writes], CELLS_SCHEMA)


def _same(rows: CellRows, stamps: np.ndarray, found: FoundRows) -> np.ndarray:
    """By column and row, where DELTA's records show what was found, as far as they keep it."""
    values = [
        pa.array([None if cell is None else cell.value for cell in column], pa.binary()) for column in found.cells
    ]
    known = zip(rows.values, values, strict=True)
    equal = np.stack([np.asarray(pc.equal(a.cast(pa.binary()), b).fill_null(False)) for a, b in known])
    kept = np.stack([np.asarray(value.is_valid()) for value in rows.values])
    return (rows.stamps > rows.hidden) & (equal | ~kept & (rows.stamps == stamps))


_TRIES_MAX = 200
_TICK_SECONDS = 0.001  # of HBase's clock, in which stamps are


class BaseWrites(BaseRows, ReadsPart, LogPart):
    """The writes of the port `BaseTables`."""

    def write(self, writes: Sequence[RowWrites], *, apart: bool = False) -> Positions:
        tables = {write.table: self._require(write.table) for write in writes}
        before = self.growing()
        keys = {table: list(dict.fromkeys(k for w in writes if w.table == table for k in w.keys)) for table in tables}
        if not apart and sum(map(len, keys.values())) > 1:
            raise RowsApart(
                "over HBase a group of writes is one row, this one has several rows",
                "use put_many, which writes each row by itself",
            )
        rows = {table: encode_row_keys(schema, keys[table]) for table, schema in tables.items()}
        known = {one: self._known(tables[one], keys[one]) for one in {write.table for write in writes if write.repeats}}
        time.sleep(VISIBLE_SECONDS if known else 0)
        found = {table: self._read(schema, rows[table]) for table, schema in tables.items()}
        read = time.monotonic()
        ids = {table: [(table, key) for key in keys[table]] for table in tables}
        images = dict(pair for table in tables for pair in zip(ids[table], found[table].images, strict=True))
        repeated = _merge(writes, images)
        for table, schema in tables.items():
            afters, again = [images[row] for row in ids[table]], [row in repeated for row in ids[table]]
            self._send(schema, changes_of(schema, rows[table], found[table], afters, again), read)
            if table in known:
                self._staging.append(schema, missing_changes(schema, keys[table], known[table], found[table]))
        return self.ends_since(before)

    def _known(self, schema: TableSchema, keys: Sequence[bytes]) -> list[Image]:
        """The committed records of DELTA under these keys."""
        if schema.delta is None:
            return [None] * len(keys)
        frontier = self.read_frontier()
        held = self.hold(ReadTimestamp(frontier.committed, frontier.aborted, frontier), range(self.partitions))
        partitions = hashes_of_keys(schema.key_columns, pa.array(keys, pa.binary())) % self.partitions
        return held.get_each(schema.delta, list(zip(partitions.tolist(), keys, strict=True)))

    def write_if(self, writes: RowWrites, expected: Expected) -> Positions | None:
        """HBase compares one cell; if it has changed meanwhile, the row is read again."""
        schema, before = self._require(writes.table), self.growing()
        rows, guarded = encode_row_keys(schema, writes.keys), _guarded(schema, expected)
        for _ in range(_TRIES_MAX):
            found = self._read(schema, rows)
            read = time.monotonic()
            if not expected.is_met(found.images[0]):
                return None
            changes = changes_of(schema, rows, found, writes.merge(found.images), [writes.repeats])
            if not changes or self._change_if(schema, found, guarded, changes[0]):
                _wait_for_clock(changes, read)
                return self.ends_since(before)
        raise StoreBusy(f"others changed a row of {schema.name} before each of {_TRIES_MAX} attempts", "try again")

    def together(self, keys: Sequence[bytes], *, apart: bool = False) -> list[np.ndarray]:
        return [np.arange(len(keys))] if apart else list(np.arange(len(keys))[:, None])

    def map_table(self, schema: TableSchema, using: str | None, options: Mapping[str, str]) -> Mapped:
        """Where the URL names a log, it must be this HBase's, before anything is looked for in it."""
        if self._site.address.rootdir is not None:
            self.require_log()
        return super().map_table(schema, using, options)

    def _require(self, table: int) -> TableSchema:
        """The table to write to; raises where its log cannot be read."""
        self.require_log()
        schema = self._schema(table)
        if schema is None:
            raise UnknownName("this table was dropped by another process", "call db.table(name) again")
        return schema

    def _send(self, schema: TableSchema, changes: Sequence[RowChange], read: float) -> None:
        ask = partial(ask_user_table, self._site.connections, foreign_of(schema).table)
        for batch in by_size(change.put for change in changes if change.delete is None):
            ask("putMultiple", batch)
        for some in in_batches([change.delete for change in changes if change.put is None], BATCH_RECORDS):
            ask("deleteMultiple", some)
        for change in changes:
            if change.put is not None and change.delete is not None:
                ask("mutateRow", change.mutations)
        _wait_for_clock(changes, read)

    def _change_if(self, schema: TableSchema, found: FoundRows, guarded: int | None, change: RowChange) -> bool:
        """Change a row if the guarded cell is as it was found; without one, if a cell that the row had is still there.

        To HBase's test an empty value is the same as none, and NOT_EQUAL to it is true of every other value.
        """
        values = [b"" if column[0] is None else column[0].value for column in found.cells]
        index = max(range(len(values)), key=lambda i: len(values[i])) if guarded is None else guarded
        cell, operator = foreign_of(schema).cells[index], thrift().TCompareOp
        is_any = guarded is None and values[index]
        test = (operator.NOT_EQUAL, b"") if is_any else (operator.EQUAL, values[index])
        column = cell.family.encode(), cell.qualifier.encode()
        asked = ("checkAndMutate", change.row, *column, *test, change.mutations)
        try:
            return ask_user_table(self._site.connections, foreign_of(schema).table, *asked, once=True)
        except StoreUnavailable as error:
            raise StoreUnavailable(
                f"whether the row was written is not known: {error.fact}", "read the row, and decide by what it is"
            ) from error


def _merge(writes: Sequence[RowWrites], images: dict[tuple[int, bytes], Image]) -> set[tuple[int, bytes]]:
    """Apply the writes to the images, one after the other; returns which rows are repeated."""
    repeated: set[tuple[int, bytes]] = set()
    for write in writes:
        row_keys = [(write.table, key) for key in write.keys]
        images |= zip(row_keys, write.merge([images[key] for key in row_keys]), strict=True)
        repeated |= set(row_keys) if write.repeats else set()
    return repeated


def _guarded(schema: TableSchema, expected: Expected) -> int | None:
    """The value column whose cell HBase compares; None: any cell that the row has."""
    names = [column.name for column in schema.value_columns]
    if expected.columns is None:
        required = [at for at, column in enumerate(schema.value_columns) if not column.nullable]
        if not required and len(names) > 1:
            raise UnsupportedSql(
                f"HBase cannot tell whether {schema.name} has a row: no column is in every row",
                "declare a column NOT NULL, or expect the value of a column",
            )
        return required[0] if required else 0
    if len(expected.columns) > 1:
        raise InputError(f"HBase compares one column of a row, not {len(expected.columns)}", "expect one column")
    return names.index(expected.columns[0]) if expected.columns else None


def _wait_for_clock(changes: Sequence[RowChange], read: float) -> None:
    """A put in the same millisecond as what a delete hides would be hidden too."""
    if any(change.delete is not None for change in changes):
        time.sleep(max(0.0, read + 2 * _TICK_SECONDS - time.monotonic()))
