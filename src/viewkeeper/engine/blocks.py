"""Blocks: Arrow tables as single binary values, so that a shuffle moves a few large ones whatever the types.

In: an Arrow table. Out: bytes of an Arrow stream, and back. Always: one block is one table, or a piece of it, for one plan
node and one view manager; it is far smaller than what Spark and Arrow can hold in one value.
"""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa

_BLOCK_BYTES = 32 << 20


def in_pieces(table: pa.Table, bytes_max: int = _BLOCK_BYTES) -> Iterator[pa.Table]:
    """The table in pieces of about so many bytes, of a row at least."""
    rows = max(1, len(table) * bytes_max // max(1, table.nbytes))
    for start in range(0, len(table), rows):
        yield table.slice(start, rows)


def to_block(table: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return sink.getvalue().to_pybytes()


def from_block(block: bytes) -> pa.Table:
    return pa.ipc.open_stream(pa.py_buffer(block)).read_all()
