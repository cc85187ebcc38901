"""Blocks: Arrow tables as single binary values, so that a shuffle moves a few large ones whatever the types.

In: an Arrow table. Out: bytes of an Arrow stream, and back. Always: one block is one table for one plan node and one
view manager.
"""

from __future__ import annotations

import pyarrow as pa


def to_block(table: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return sink.getvalue().to_pybytes()


def from_block(block: bytes) -> pa.Table:
    return pa.ipc.open_stream(pa.py_buffer(block)).read_all()
