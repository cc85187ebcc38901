"""Rows: the non-key columns of a record as bytes, one row at a time.

In: stored values. Out: `count u16 | null bits | fixed-width values | end offsets u32 of the varying ones | their bytes`.
Always: equal rows are equal bytes (NULL leaves zeros), and a row written before columns were added decodes with NULLs in
their place, because the count says how many it has. `rowbatches` is the same format over Arrow arrays.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

from viewkeeper.errors import InvariantBroken
from viewkeeper.model.schema import Column
from viewkeeper.model.values import Stored

_FORMATS = {"BOOLEAN": "?", "INT": "i", "DATE": "i", "BIGINT": "q", "TIMESTAMP": "q", "DOUBLE": "d"}
_WIDE = "16s"  # DECIMAL and accumulators: 128 bits, little-endian two's complement


@dataclass(frozen=True, slots=True)
class Layout:
    """Where the values of a row with these columns stand."""

    columns: tuple[Column, ...]
    fixed: tuple[int, ...]  # columns of fixed width, in order
    varying: tuple[int, ...]
    places: tuple[int, ...]  # byte offset of each column's fixed value, or index of its end offset
    bits_width: int
    body: int  # where the end offsets begin
    head: struct.Struct  # count, null bits, fixed values, end offsets
    head_size: int


@lru_cache(maxsize=4096)
def layout_of(columns: tuple[Column, ...]) -> Layout:
    """The layout of rows that have exactly `columns`."""
    fixed = tuple(i for i, column in enumerate(columns) if column.type.width is not None)
    varying = tuple(i for i, column in enumerate(columns) if column.type.width is None)
    bits_width = (len(columns) + 7) // 8
    places = [0] * len(columns)
    at = 2 + bits_width
    for i in fixed:
        places[i] = at
        at += columns[i].type.width or 0
    for rank, i in enumerate(varying):
        places[i] = rank
    formats = "".join(_FORMATS.get(columns[i].type.kind, _WIDE) for i in fixed)
    head = struct.Struct(f"<H{bits_width}s{formats}{len(varying)}I")
    return Layout(columns, fixed, varying, tuple(places), bits_width, at, head, head.size)


def encode_row(columns: tuple[Column, ...], values: Sequence[Stored]) -> bytes:
    """Bytes of one row; `values` follow `columns`."""
    layout = layout_of(columns)
    bits, bodies, end = 0, [], 0
    for i, value in enumerate(values):
        if value is None:
            bits |= 1 << i
    fixed = [_pack_fixed(columns[i], values[i]) for i in layout.fixed]
    ends = []
    for i in layout.varying:
        value = values[i]
        body = b"" if value is None else value.encode() if isinstance(value, str) else value
        bodies.append(body)
        end += len(body)
        ends.append(end)
    null_bits = bits.to_bytes(layout.bits_width, "little")
    return layout.head.pack(len(columns), null_bits, *fixed, *ends) + b"".join(bodies)


def decode_row(columns: tuple[Column, ...], row: bytes) -> list[Stored]:
    """Stored values of one row, NULL for the columns it was written without."""
    count = int.from_bytes(row[:2], "little")
    if count > len(columns):
        raise InvariantBroken(f"a row of {count} columns was read with a schema of {len(columns)}")
    layout = layout_of(columns[:count])
    head = layout.head.unpack_from(row)
    values: list[Stored] = [None] * len(columns)
    fixed_count = len(layout.fixed)
    for i, value in zip(layout.fixed, head[2 : 2 + fixed_count], strict=True):
        values[i] = int.from_bytes(value, "little", signed=True) if isinstance(value, bytes) else value
    start = layout.head_size
    for i, end in zip(layout.varying, head[2 + fixed_count :], strict=True):
        body = row[start : layout.head_size + end]
        values[i] = body.decode() if columns[i].type.kind == "STRING" else body
        start = layout.head_size + end
    if any(head[1]):
        bits = int.from_bytes(head[1], "little")
        for i in range(count):
            if bits >> i & 1:
                values[i] = None
    return values


def _pack_fixed(column: Column, value: Stored) -> object:
    if column.type.width == 16:
        return int(value or 0).to_bytes(16, "little", signed=True)
    return value if value is not None else 0
