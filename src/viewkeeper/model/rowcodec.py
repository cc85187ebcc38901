"""Rows: the non-key columns of a record as bytes, one row at a time; and the compact form of rows of fixed width.

In: stored values. Out: one segment for the columns that the table was made with, and one for each ALTER TABLE since:
`count u16 | null bits | fixed-width values | end offsets u32 of the varying ones | their bytes`. A row whose columns all
have a fixed width may be compact instead: `ff ff | a bit for each byte of the row: whether it is not 0 | those bytes`; no
row has 65,535 columns. Always: equal rows are equal bytes (NULL leaves zeros, trailing segments of NULLs are left out, a
row is compact where that is shorter). Columns that were added after a row was written are NULL; segments that an older
schema does not know are ignored, and `tail_of` returns them to a writer. `rowbatches` does the same for Arrow arrays.
"""

from __future__ import annotations

import itertools
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from viewkeeper.errors import InvariantBroken
from viewkeeper.model.memo import once_for_each
from viewkeeper.model.schema import Column
from viewkeeper.model.stored_values import Stored, text_of
from viewkeeper.model.varbinary import VarBinary, gather, gather_fixed, join, offsets_of

MARK = b"\xff\xff"
_MARK = np.frombuffer(MARK, np.uint8)


def compact_rows(rows: pa.Array) -> pa.Array:
    """Rows of one width, none of them NULL, in the shorter of both forms each."""
    matrix = VarBinary.from_arrow(rows).as_matrix()
    if not isinstance(matrix, np.ndarray):
        return rows
    there = matrix != 0
    counts = there.sum(axis=1)
    bits = np.packbits(there, axis=1, bitorder="little")
    bodies = VarBinary(matrix[there], offsets_of(counts))
    compact = join([np.broadcast_to(_MARK, (len(matrix), 2)), bits, bodies]).to_arrow()
    is_shorter = 2 + bits.shape[1] + counts < matrix.shape[1]
    return compact if is_shorter.all() else pc.if_else(pa.array(is_shorter), compact, rows)


def expand_rows(rows: pa.Array, width: int) -> pa.Array:
    """Rows of that width, from rows in either form; NULL stays NULL."""
    whole = VarBinary.from_arrow(rows)
    starts, lengths = whole.offsets[:-1], whole.lengths
    there = np.flatnonzero(lengths)
    if (lengths[there] == width).all():
        return rows  # a compact row is shorter
    is_compact = gather_fixed(whole.data, starts[there], 2).copy().view("<u2")[:, 0] == 0xFFFF
    if not is_compact.any():
        return rows
    compact, plain = there[is_compact], there[~is_compact]
    expanded, size = np.zeros((len(whole), width), np.uint8), -(-width // 8)
    packed = gather_fixed(whole.data, starts[compact] + 2, size)
    bits = np.unpackbits(packed, axis=1, count=width, bitorder="little").astype(bool)
    among = np.zeros((len(compact), width), np.uint8)
    among[bits] = gather(whole.data, starts[compact] + 2 + size, lengths[compact] - 2 - size).data
    expanded[compact] = among
    expanded[plain] = gather_fixed(whole.data, starts[plain], width)
    return VarBinary.of_matrix(expanded).to_arrow(valid=whole.lengths > 0)


def piece_of(row: bytes, width: int, start: int, stop: int) -> bytes:
    """Bytes of one row in either form, of which no others are expanded."""
    if row[:2] != MARK:
        return row[start:stop]
    size = -(-width // 8)
    bits = int.from_bytes(row[2 : 2 + size], "little")
    at = 2 + size + (bits & (1 << start) - 1).bit_count()
    found, bits = bytearray(stop - start), bits >> start & (1 << stop - start) - 1
    while bits:
        lowest = bits & -bits
        found[lowest.bit_length() - 1] = row[at]
        bits ^= lowest
        at += 1
    return bytes(found)


_FORMATS = {"BOOLEAN": "?", "INT": "i", "DATE": "i", "BIGINT": "q", "TIMESTAMP": "q", "DOUBLE": "d"}
_WIDE = "16s"  # DECIMAL and accumulators: 128 bits, little-endian two's complement


@dataclass(frozen=True, slots=True)
class Layout:
    """Where the values of a row with these columns are."""

    columns: tuple[Column, ...]
    fixed: tuple[int, ...]  # columns of fixed width, in order
    varying: tuple[int, ...]
    offsets: tuple[int, ...]  # byte offset of each column's fixed value, or index of its end offset
    bits_width: int
    body: int  # where the end offsets begin
    head: struct.Struct  # count, null bits, fixed values, end offsets
    head_size: int
    has_wide: bool  # whether some are of 128 bits

    @property
    def is_fixed(self) -> bool:
        """Whether all rows have the same width: then they may be compact."""
        return not self.varying


@once_for_each(kept_max=4096)
@lru_cache(maxsize=4096)
def layout_of(columns: tuple[Column, ...]) -> Layout:
    fixed = tuple(i for i, column in enumerate(columns) if column.type.width is not None)
    varying = tuple(i for i, column in enumerate(columns) if column.type.width is None)
    bits_width = (len(columns) + 7) // 8
    offsets = [0] * len(columns)
    at = 2 + bits_width
    for i in fixed:
        offsets[i] = at
        at += columns[i].type.width or 0
    for rank, i in enumerate(varying):
        offsets[i] = rank
    formats = "".join(_FORMATS.get(columns[i].type.kind, _WIDE) for i in fixed)
    head = struct.Struct(f"<H{bits_width}s{formats}{len(varying)}I")
    has_wide = any(columns[i].type.width == 16 for i in fixed)
    return Layout(columns, fixed, varying, tuple(offsets), bits_width, at, head, head.size, has_wide)


@once_for_each(kept_max=4096)
@lru_cache(maxsize=4096)
def segments_of(columns: tuple[Column, ...]) -> tuple[tuple[int, tuple[Column, ...]], ...]:
    """The columns of each segment, with the index of its first: the original ones, then those of each ALTER TABLE."""
    segments = [(0, tuple(itertools.takewhile(lambda column: not column.added, columns)))]
    at = len(segments[0][1])
    for _, group in itertools.groupby(columns[at:], key=lambda column: column.added):
        segments.append((at, tuple(group)))
        at += len(segments[-1][1])
    return tuple(segments)


def encode_row(columns: tuple[Column, ...], values: Sequence[Stored], tail: bytes = b"") -> bytes:
    """Bytes of one row; `values` follow `columns`, and `tail` holds the segments of columns that are not known here."""
    segments = segments_of(columns)
    if len(segments) == 1:
        return _encode_segment(columns, values) + tail
    parts = [(part, values[first : first + len(part)]) for first, part in segments]
    while not tail and len(parts) > 1 and all(value is None for value in parts[-1][1]):
        parts.pop()
    return b"".join(_encode_segment(part, own) for part, own in parts) + tail


def decode_row(columns: tuple[Column, ...], row: bytes) -> list[Stored]:
    """Stored values of one row, NULL for the columns it was written without."""
    if row[:2] == MARK:
        width = layout_of(columns).head_size
        row = piece_of(row, width, 0, width)
    values: list[Stored] = []
    at = 0
    for _, part in segments_of(columns):
        if at < len(row):
            own, at = _decode_segment(part, row, at)
            values += own
        else:
            values += [None] * len(part)
    return values


def decode_some(columns: tuple[Column, ...], row: bytes, wanted: Sequence[int]) -> list[Stored]:
    """The values of some columns; faster than `decode_row` where there are many and these have a fixed width."""
    if len(segments_of(columns)) > 1 or any(columns[i].type.width is None for i in wanted):
        values = decode_row(columns, row)
        return [values[i] for i in wanted]
    layout = layout_of(columns)
    offsets, size = layout.offsets, layout.head_size
    nulls = piece_of(row, size, 2, 2 + layout.bits_width)
    return [None if nulls[i // 8] >> i % 8 & 1 else _fixed_at(columns[i], row, size, offsets[i]) for i in wanted]


def _fixed_at(column: Column, row: bytes, size: int, at: int) -> Stored:
    piece = piece_of(row, size, at, at + (column.type.width or 0))
    if column.type.width == 16:
        return int.from_bytes(piece, "little", signed=True)
    return struct.unpack(f"<{_FORMATS[column.type.kind]}", piece)[0]


def tail_of(columns: tuple[Column, ...], row: bytes) -> bytes:
    """The segments of a row after those of `columns`: those of a newer schema."""
    at = 0
    for _, part in segments_of(columns):
        if at < len(row):
            layout = _layout_of_stored(part, row, at)
            at += layout.head_size
            at += int.from_bytes(row[at - 4 : at], "little") if layout.varying else 0
    return row[at:]


def _encode_segment(columns: tuple[Column, ...], values: Sequence[Stored]) -> bytes:
    layout = layout_of(columns)
    bits, bodies, end = bytearray(layout.bits_width), [], 0
    nulls = [i for i, value in enumerate(values) if value is None]
    for i in nulls:
        bits[i // 8] |= 1 << i % 8
    if nulls or layout.has_wide:
        fixed = [_pack_fixed(columns[i], values[i]) for i in layout.fixed]
    else:
        fixed = [values[i] for i in layout.fixed]
    ends = []
    for i in layout.varying:
        value = values[i]
        body = b"" if value is None else value.encode() if isinstance(value, str) else value
        bodies.append(body)
        end += len(body)
        ends.append(end)
    return layout.head.pack(len(columns), bytes(bits), *fixed, *ends) + b"".join(bodies)


def _decode_segment(columns: tuple[Column, ...], row: bytes, at: int) -> tuple[list[Stored], int]:
    """The values of the segment at an offset in the row, and where it ends."""
    layout = _layout_of_stored(columns, row, at)
    head = layout.head.unpack_from(row, at)
    values: list[Stored] = [None] * len(columns)
    fixed_count = len(layout.fixed)
    for i, value in zip(layout.fixed, head[2 : 2 + fixed_count], strict=True):
        values[i] = int.from_bytes(value, "little", signed=True) if isinstance(value, bytes) else value
    body_at = start = at + layout.head_size
    for i, end in zip(layout.varying, head[2 + fixed_count :], strict=True):
        body = row[start : body_at + end]
        values[i] = text_of(body) if columns[i].type.kind == "STRING" else body
        start = body_at + end
    if any(head[1]):
        for i in range(head[0]):
            if head[1][i // 8] >> i % 8 & 1:
                values[i] = None
    return values, start


def _layout_of_stored(columns: tuple[Column, ...], row: bytes, at: int) -> Layout:
    count = int.from_bytes(row[at : at + 2], "little")
    if count > len(columns):
        raise InvariantBroken(f"a row of {count} columns was read with a schema of {len(columns)}")
    return layout_of(columns if count == len(columns) else columns[:count])


def _pack_fixed(column: Column, value: Stored) -> object:
    if column.type.width == 16:
        return int(value or 0).to_bytes(16, "little", signed=True)
    return value if value is not None else 0
