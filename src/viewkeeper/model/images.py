"""Images: rows of foreign tables as the readers of those tables see them.

In: what is known of rows, cell by cell. Out: rows in the format of any table. Always: a row is there if one of its cells is;
a row with a cell that does not decode is none.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from viewkeeper.errors import InvariantBroken
from viewkeeper.model.cellrows import CellRows
from viewkeeper.model.encodings import decode_cells
from viewkeeper.model.rowbatches import encode_rows
from viewkeeper.model.schema import TableSchema


def cell_rows(table: TableSchema, rows: pa.Array) -> CellRows:
    """What records of a foreign table's DELTA hold."""
    return CellRows.decode(len(table.value_columns), rows)


def images(table: TableSchema, rows: CellRows) -> pa.Array:
    """The rows; NULL where there is none."""
    return rows_and_reasons(table, rows.seen, len(rows), rows.too_large)[0]


def rows_of_cells(table: TableSchema, cells: Sequence[pa.Array], count: int) -> pa.Array:
    """The rows that cells make, of which there is an array for each value column; NULL where there is none."""
    return rows_and_reasons(table, cells, count)[0]


def rows_and_reasons(
    table: TableSchema, cells: Sequence[pa.Array], count: int, too_large: np.ndarray | None = None
) -> tuple[pa.Array, pa.Array]:
    """The rows; and why there is none where a cell does not decode, or is too large to be kept."""
    if table.foreign is None:
        raise InvariantBroken(f"table {table.name} has no cells")
    arrays, there = [], np.zeros(count, bool)
    reasons = pa.nulls(count, pa.binary())
    for number, (column, cell, seen) in enumerate(zip(table.value_columns, table.foreign.cells, cells, strict=True)):
        values, failed = decode_cells(seen, column.type, cell.encoding)
        arrays.append(values)
        there |= np.asarray(seen.is_valid())
        if failed.any():
            reason = f"the cell of {column.name} is no {column.type}".encode()
            reasons = pc.if_else(pa.array(failed), pa.scalar(reason, pa.binary()), reasons)
        if too_large is not None and too_large[number].any():
            reason = f"the cell of {column.name} is too large: a row has 10 MB at most".encode()
            reasons = pc.if_else(pa.array(too_large[number]), pa.scalar(reason, pa.binary()), reasons)
    encoded = encode_rows(table.value_columns, arrays, count)
    there &= np.asarray(reasons.is_null())
    return pc.if_else(pa.array(there), encoded, pa.scalar(None, encoded.type)), reasons


def image_batch(table: TableSchema, batch: pa.RecordBatch) -> pa.RecordBatch:
    """The rows of a batch (key, row) of a foreign table's DELTA."""
    rows = images(table, cell_rows(table, batch["row"]))
    there = rows.is_valid()
    return pa.record_batch([batch["key"].filter(there), rows.filter(there)], ["key", "row"])
