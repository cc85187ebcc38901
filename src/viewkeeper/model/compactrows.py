"""Compact rows: rows of fixed width without their zeros.

A group's record has many numbers, of 8 or 16 bytes each, and most of them are small. Its compact form is
`ff ff | a bit for each byte of the row: whether it is not 0 | those bytes`; no row has 65,535 columns.

In: rows, or compact ones among them. Out: the other. Always: a row is compact where that is shorter, whatever rows are beside
it, so equal rows are equal bytes; only rows whose columns all have a fixed width are.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from viewkeeper.model.ragged import Ragged, gather, gather_fixed, join

MARK = b"\xff\xff"
_MARK = np.frombuffer(MARK, np.uint8)


def compact_rows(rows: pa.Array) -> pa.Array:
    """Rows of one width, none of them NULL, in the shorter of both forms each."""
    matrix = Ragged.from_arrow(rows).as_matrix()
    if not isinstance(matrix, np.ndarray):
        return rows
    there = matrix != 0
    counts = there.sum(axis=1)
    bits = np.packbits(there, axis=1, bitorder="little")
    bodies = Ragged(matrix[there], np.concatenate([[0], np.cumsum(counts)]))
    compact = join([np.broadcast_to(_MARK, (len(matrix), 2)), bits, bodies]).to_arrow()
    is_shorter = 2 + bits.shape[1] + counts < matrix.shape[1]
    return compact if is_shorter.all() else pc.if_else(pa.array(is_shorter), compact, rows)


def expand_rows(rows: pa.Array, width: int) -> pa.Array:
    """Rows of that width, from rows in either form; NULL stays NULL."""
    whole = Ragged.from_arrow(rows)
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
    body = gather(whole.data, starts[compact] + 2 + size, whole.lengths[compact] - 2 - size).data
    among = np.zeros((len(compact), width), np.uint8)
    among[bits] = body
    expanded[compact] = among
    expanded[plain] = gather_fixed(whole.data, starts[plain], width)
    offsets = np.arange(len(whole) + 1, dtype=np.int64) * width
    return Ragged(expanded.reshape(-1), offsets).to_arrow(valid=whole.lengths > 0)


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
