"""Cells of a WAL as writes to the columns of mapped tables."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from viewkeeper.model.foreign_rows import CellRows, merge_by_key
from viewkeeper.model.schema import Cell, Column, Foreign, TableId, TableSchema
from viewkeeper.model.types import parse_type
from viewkeeper.stores.hbase.wal import wal_entries as wal
from viewkeeper.stores.hbase.wal.mapped_tables import MappedTables

TABLE = TableSchema(
    TableId(1),
    "t",
    (Column("k", parse_type("STRING"), False), Column("x", parse_type("STRING"))),
    ("k",),
    TableId(2),
    Foreign("t", (Cell("f", "x", "text"),)),
)


def logged(puts: Sequence[tuple[int, int, str, str]]) -> pa.RecordBatch:
    """Puts (position, sequence, row, value) that have one timestamp, as the WAL reader gives them."""
    facts: dict[str, Any] = {"region": "r", "table": "t", "family": b"f", "qualifier": b"x", "timestamp": 7}
    facts |= {"kind": wal.PUT, "written_ms": 7}
    rows = [
        {"position": position, "sequence": sequence, "row": row.encode(), "value": value.encode(), **facts}
        for position, sequence, row, value in puts
    ]
    return pa.RecordBatch.from_pylist(rows, wal.CELLS_SCHEMA)


def newest(*batches: pa.RecordBatch) -> list[bytes]:
    """The value of each row, by key, when the batches are merged in this order."""
    writes = pa.Table.from_batches([batch for one in batches for _, batch in MappedTables((TABLE,)).writes(one)])
    told = writes.combine_chunks().to_batches()[0]
    _, merged = merge_by_key(told["key"], CellRows.of_writes(1, told), np.zeros(len(told), np.int64))
    return merged.seen[0].to_pylist()


@pytest.mark.parametrize("rows", [1, 40])
def test_of_puts_to_one_row_in_one_entry_the_last_is_seen_as_in_hbase(rows: int) -> None:
    puts = [(100, 5, f"k{row:02}", f"v{number}") for number in (3, 1, 4, 2) for row in range(rows)]

    assert newest(logged(puts)) == [b"v2"] * rows


def test_their_order_is_kept_when_an_entry_is_read_in_pieces_that_arrive_in_any_order() -> None:
    whole = logged([(90, 4, "k", "v9"), (100, 5, "k", "v8"), (100, 5, "k", "v1")])
    writes = [batch for _, batch in MappedTables((TABLE,)).writes(whole)]
    pieces = [writes[0].slice(place, 1) for place in (2, 0, 1)]
    told = pa.Table.from_batches(pieces).combine_chunks().to_batches()[0]

    _, merged = merge_by_key(told["key"], CellRows.of_writes(1, told), np.zeros(3, np.int64))

    assert merged.seen[0].to_pylist() == [b"v1"]


def test_a_later_entry_comes_after_all_cells_of_an_earlier_one() -> None:
    earlier, later = logged([(100, 5, "k", f"v{n}") for n in range(50)]), logged([(200, 6, "k", "last")])

    assert newest(earlier, later) == newest(later, earlier) == [b"last"]
