"""Row changes: what is sent to HBase so that a row becomes another.

In: rows as found, and as they are to be. Out: puts and deletes of cells, for each row. Always: only cells whose value
changes, so that writers of other columns lose nothing. A delete hides what was read, by its own stamp, and no later put.
What was put with a stamp that is still to come is replaced under the same stamp, or it would hide the new value.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from viewkeeper.errors import BadRow
from viewkeeper.model.encodings import decode_cells, encode_cells
from viewkeeper.model.rowbatches import decode_rows
from viewkeeper.model.rowkeys import KEY_BYTES_MAX, fits, foreign_of
from viewkeeper.model.schema import Cell, TableSchema
from viewkeeper.model.writes import Image
from viewkeeper.stores.hbase.baserows import Found
from viewkeeper.stores.hbase.cells import ROW_BYTES_MAX
from viewkeeper.stores.hbase.thrift import thrift


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
    schema: TableSchema, row_keys: Sequence[bytes], found: Found, afters: Sequence[Image], repeats: Sequence[bool]
) -> list[RowChange]:
    """One for each row that changes; one that `repeats` is put again as it is, whether it decodes or not."""
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
            if repeats[at] and after == before:
                puts += [] if there is None else [_put(cell, there.value, there, now_ms)]
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
    """The values of rows as cells, by column."""
    arrays = decode_rows(schema.value_columns, pa.array(rows, pa.binary()))
    mapped = zip(arrays, schema.value_columns, foreign_of(schema).cells, strict=True)
    return [encode_cells(array, column.type, cell.encoding).to_pylist() for array, column, cell in mapped]


def _put(cell: Cell, value: bytes, there: Any, now_ms: int) -> Any:
    stamp = there.timestamp if there is not None and there.timestamp > now_ms else None
    return thrift().TColumnValue(cell.family.encode(), cell.qualifier.encode(), value, stamp)


def _require_room(schema: TableSchema, row: bytes, values: Sequence[bytes | None]) -> None:
    """Raise where HBase cannot hold a row."""
    if not fits(row):
        raise BadRow(
            f"a row key of {len(row):,} bytes in table {schema.name}", f"use one of 1 to {KEY_BYTES_MAX - 4:,} bytes"
        )
    largest = max(len(value or b"") for value in values)
    if largest > ROW_BYTES_MAX:
        raise BadRow(f"a value of {largest:,} bytes in table {schema.name}", f"HBase takes up to {ROW_BYTES_MAX:,}")
    if all(value is None for value in values):
        raise BadRow(
            f"a row of table {schema.name} would have no value, and a row in HBase is its cells",
            "give one of its columns a value, or delete the row",
        )


def _require_decoded(schema: TableSchema, index: int, value: bytes) -> None:
    """Raise where a write would leave a cell as it is because of which its row is none."""
    column, cell = schema.value_columns[index], foreign_of(schema).cells[index]
    _, wrong = decode_cells(pa.array([value], pa.binary()), column.type, cell.encoding)
    if wrong[0]:
        raise BadRow(
            f"the cell {cell.family}:{cell.qualifier} of that row is no {column.type} in {cell.encoding}",
            f"give {column.name} a value too, or delete the row",
        )
