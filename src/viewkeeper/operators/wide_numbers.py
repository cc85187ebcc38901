"""Wide numbers: 128-bit integers of Arrow as numpy sees them.

In: arrays of DECIMAL(38,0), or of 64-bit words. Out: the other. Always: no number is rounded, and NULL is 0.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

WIDE = pa.decimal128(38, 0)


def limbs_of(array: pa.Array) -> np.ndarray:
    """The low and the high 64 bits of each number."""
    words = np.frombuffer(array.buffers()[1], np.uint64)[2 * array.offset : 2 * (array.offset + len(array))]
    limbs = words.reshape(-1, 2)
    if array.null_count:
        limbs = limbs.copy()
        limbs[np.asarray(array.is_null())] = 0
    return limbs


def of_limbs(limbs: np.ndarray) -> pa.Array:
    return pa.Array.from_buffers(WIDE, len(limbs), [None, pa.py_buffer(np.ascontiguousarray(limbs))])


def narrow(array: pa.Array) -> np.ndarray | None:
    """The numbers in 64 bits; None unless all fit."""
    limbs = limbs_of(array).view(np.int64)
    return limbs[:, 0] if (limbs[:, 1] == limbs[:, 0] >> 63).all() else None


def widened(numbers: np.ndarray) -> pa.Array:
    """64-bit numbers in 128 bits."""
    return of_limbs(np.stack([numbers, numbers >> 63], axis=1).view(np.uint64))
