"""Exact sums: 64-bit counts and 128-bit accumulators, added column by column.

In: two Arrow arrays of the same type, NULL meaning nothing. Out: their sum. Always: exact; a sum that leaves 128 bits stops
the epoch instead of wrapping around.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from viewkeeper.errors import InvariantBroken


def add_exactly(left: pa.Array | pa.ChunkedArray, right: pa.Array | pa.ChunkedArray) -> pa.Array:
    """left + right, where NULL counts as 0."""
    left, right = _flat(left), _flat(right)
    if pa.types.is_integer(left.type):
        return pc.add_checked(left.fill_null(0), right.fill_null(0))
    return _add_wide(left, right)


def _add_wide(left: pa.Array, right: pa.Array) -> pa.Array:
    a, b = _limbs(left), _limbs(right)
    low = a[:, 0] + b[:, 0]
    carry = (low < a[:, 0]).astype(np.uint64)
    high = a[:, 1] + b[:, 1] + carry
    signs = [limbs[:, 1] >> np.uint64(63) for limbs in (a, b)]
    if ((signs[0] == signs[1]) & (signs[0] != high >> np.uint64(63))).any():
        raise InvariantBroken("a sum does not fit 128 bits")
    data = np.ascontiguousarray(np.stack([low, high], axis=1))
    return pa.Array.from_buffers(left.type, len(left), [None, pa.py_buffer(data)])


def _limbs(array: pa.Array) -> np.ndarray:
    """Low and high 64 bits of each value, zeros where NULL."""
    words = np.frombuffer(array.buffers()[1], np.uint64)[2 * array.offset : 2 * (array.offset + len(array))]
    limbs = words.reshape(-1, 2)
    if array.null_count:
        limbs = limbs.copy()
        limbs[np.asarray(array.is_null())] = 0
    return limbs


def _flat(array: pa.Array | pa.ChunkedArray) -> pa.Array:
    return array.combine_chunks() if isinstance(array, pa.ChunkedArray) else array
