"""Gone: what no server's log tells of rows that DELTA has wrong (truncated tables, tables made anew, cells that expired, and
deletes that a major compaction has removed).

In: rows as DELTA knows them, and then as HBase has them. Out: writes of cells, to be staged. Always: a cell that is gone is
hidden by its own stamp, so that what is put later is seen. Where a cell was read anew before, which a table made anew cannot
outdo because its log counts from the start, it is read once more; so is one that a delete hides which HBase no longer has.
Nothing is written to the user's table.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from viewkeeper.model.cellrows import HIDE, NEVER, READ, CellRows
from viewkeeper.model.images import cell_rows
from viewkeeper.model.schema import TableSchema
from viewkeeper.model.writes import Image
from viewkeeper.ports.log import CELLS_SCHEMA
from viewkeeper.stores.hbase.baserows import Found

_BEFORE_ALL = 0  # in the log's order


def untold(schema: TableSchema, keys: Sequence[bytes], known: Sequence[Image], found: Found) -> pa.Table:
    """`known`: the records of DELTA under these keys, read before what is `found`."""
    rows = cell_rows(schema, pa.array(known, pa.binary()))
    stamps = np.array(
        [[NEVER if cell is None else cell.timestamp for cell in column] for column in found.cells], np.int64
    )
    there = stamps > NEVER
    gone = (rows.stamps > rows.hidden) & ~there
    anew = there & ((rows.read > NEVER) | (stamps <= rows.hidden))
    writes = [
        {"kind": HIDE, "stamp": rows.stamps[place], "order": 0, "key": keys[place[1]], "column": place[0]}
        for place in zip(*np.nonzero(gone), strict=True)
    ]
    writes += [_read(rows, place, keys, found) for place in zip(*np.nonzero(anew), strict=True)]
    return pa.Table.from_pylist([{"position": 0, "value": None} | write for write in writes], CELLS_SCHEMA)


def _read(rows: CellRows, place: tuple[int, int], keys: Sequence[bytes], found: Found) -> dict[str, object]:
    cell = found.cells[place[0]][place[1]]
    stamp = max(cell.timestamp, rows.hidden[place] + 1)
    order = {"order": max(rows.read[place], _BEFORE_ALL), "key": keys[place[1]], "column": place[0]}
    return {"kind": READ, "stamp": stamp, "value": cell.value} | order
