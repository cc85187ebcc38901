"""Gone: cells that DELTA knows and HBase no longer has, without a delete in the log (truncated tables, cells that expired).

In: rows as DELTA knows them, and then as HBase has them. Out: writes that hide such cells, to be staged. Always: a cell is
hidden by its own stamp, so that what is put later is seen; nothing is written to the user's table.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from viewkeeper.model.cellrows import HIDE
from viewkeeper.model.images import cell_rows
from viewkeeper.model.schema import TableSchema
from viewkeeper.model.writes import Image
from viewkeeper.ports.log import CELLS_SCHEMA
from viewkeeper.stores.hbase.baserows import Found


def hides(schema: TableSchema, keys: Sequence[bytes], known: Sequence[Image], found: Found) -> pa.Table:
    """`known`: the records of DELTA under these keys, read before what is `found`."""
    rows = cell_rows(schema, pa.array(known, pa.binary()))
    there = np.array([[cell is not None for cell in column] for column in found.cells], bool)
    columns, at = np.nonzero((rows.stamps > rows.hidden) & ~there)
    nothing = pa.array(np.zeros(len(at), np.int64))
    arrays = [
        *(nothing, pa.array(keys, pa.binary()).take(pa.array(at)), pa.array(columns.astype(np.int32))),
        *(pa.array(np.full(len(at), HIDE, np.int8)), pa.array(rows.stamps[columns, at])),
        *(nothing, pa.nulls(len(at), pa.binary())),
    ]
    return pa.table(arrays, schema=CELLS_SCHEMA)
