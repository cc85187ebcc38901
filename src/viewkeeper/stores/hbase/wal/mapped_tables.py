"""Mapped tables: the cells of a WAL as writes to columns of the tables that are mapped to it.

In: cells of a WAL, and mapped tables. Out: batches of `CELLS_SCHEMA` for each table. Always: cells of other columns are
left out; a deleted family hides each of its columns. A delete of one version makes an older one visible, which is not
in the log: such deletes are returned apart, so that their rows are read again.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from viewkeeper.model.foreign_rows import CELLS_SCHEMA, HIDE, PUT, decode_row_keys, foreign_of
from viewkeeper.model.schema import Foreign, TableSchema
from viewkeeper.stores.hbase.wal import wal_entries as wal

_PLACES = 1 << 20  # in the order of writes, for the cells of one entry


@dataclass(frozen=True, slots=True)
class MappedTables:
    """The mapped tables of a catalog."""

    tables: tuple[TableSchema, ...]

    @property
    def names(self) -> frozenset[str]:
        """Their names in the WAL."""
        return frozenset(name_in_wal(foreign_of(table)) for table in self.tables)

    @property
    def copies(self) -> frozenset[tuple[int, int]]:
        """The copy of each that views are computed from: a table is copied anew by a rebuild."""
        return frozenset((int(table.id), foreign_of(table).staging) for table in self.tables)

    def writes(self, cells: pa.RecordBatch) -> Iterator[tuple[int, pa.RecordBatch]]:
        for table, own in self._own(cells):
            found = _writes(table, own)
            if found.num_rows:
                yield table.id, found

    def uncovering(self, cells: pa.RecordBatch) -> Iterator[tuple[TableSchema, pa.RecordBatch]]:
        """The deletes of single versions in each table, as cells of the WAL."""
        exact = pc.is_in(cells["kind"], pa.array([wal.DELETE_VERSION, wal.DELETE_FAMILY_VERSION], pa.int8()))
        if pc.any(exact).as_py():
            for table, own in self._own(cells.filter(exact)):
                if own.num_rows:
                    yield table, own

    def _own(self, cells: pa.RecordBatch) -> Iterator[tuple[TableSchema, pa.RecordBatch]]:
        there = cells["table"].dictionary.to_pylist() if cells.num_rows else []
        for table in self.tables:
            if (name := name_in_wal(foreign_of(table))) in there:
                yield table, cells.filter(pc.equal(cells["table"], name)) if len(there) > 1 else cells


def name_in_wal(foreign: Foreign) -> str:
    """A table's name in the WAL: without that of the default namespace."""
    return foreign.table.removeprefix("default:")


def order_after(sequence: int) -> int:
    """The order of a write after all cells of the entry with that sequence id."""
    return sequence * _PLACES + _PLACES - 1


def _orders(cells: pa.RecordBatch) -> np.ndarray:
    """The order of writes, which also counts cells of one entry: HBase shows the last of two puts of a row in it."""
    position = np.asarray(cells["position"])
    begins = np.flatnonzero(np.append(True, position[1:] != position[:-1])) if len(position) else position
    index = np.arange(len(position)) - np.repeat(begins, np.diff(begins, append=len(position)))
    return np.asarray(cells["sequence"]) * _PLACES + np.minimum(index, _PLACES - 1)


def _writes(table: TableSchema, cells: pa.RecordBatch) -> pa.RecordBatch:
    kinds = np.asarray(cells["kind"])
    single = np.isin(kinds, (wal.PUT, wal.DELETE_COLUMN))
    at = np.flatnonzero(single)
    columns = _columns(foreign_of(table), cells["family"].take(pa.array(at)), cells["qualifier"].take(pa.array(at)))
    at, columns = at[columns >= 0], columns[columns >= 0]
    for number, cell in enumerate(foreign_of(table).cells):
        family = pc.equal(cells["family"], cell.family.encode())
        whole = np.flatnonzero((kinds == wal.DELETE_FAMILY) & np.asarray(family))
        at, columns = np.append(at, whole), np.append(columns, np.full(len(whole), number))
    return _batch(table, cells.take(pa.array(at)), columns, _orders(cells)[at])


def _batch(table: TableSchema, cells: pa.RecordBatch, columns: np.ndarray, orders: np.ndarray) -> pa.RecordBatch:
    keys, wrong = decode_row_keys(table, cells["row"])
    is_put = pc.equal(cells["kind"], wal.PUT)
    found = [
        *(cells["position"], keys, pa.array(columns, pa.int32())),
        pc.if_else(is_put, pa.scalar(PUT, pa.int8()), pa.scalar(HIDE, pa.int8())),
        *(cells["timestamp"], pa.array(orders, pa.int64())),
        pc.if_else(is_put, cells["value"], pa.scalar(None, pa.binary())),
    ]
    batch = pa.record_batch(found, schema=CELLS_SCHEMA)
    return batch.filter(pa.array(~wrong)) if wrong.any() else batch


def _columns(foreign: Foreign, families: pa.Array, qualifiers: pa.Array) -> np.ndarray:
    """The column of each cell; -1: none."""
    found = np.full(len(families), -1, np.int32)
    for family in {cell.family for cell in foreign.cells}:
        own = {cell.qualifier.encode(): number for number, cell in enumerate(foreign.cells) if cell.family == family}
        at = pc.index_in(qualifiers, pa.array(list(own), pa.binary())).fill_null(-1)
        numbers = np.append(np.array(list(own.values()), np.int32), -1)[np.asarray(at)]
        here = np.asarray(pc.equal(families, family.encode()))
        found = np.where(here, numbers, found)
    return found
