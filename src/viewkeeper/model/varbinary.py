"""Variable-length binary: many byte strings as one array of bytes and one of offsets, handled without a loop over them.

In and out: Arrow binary arrays, or numpy matrices of bytes where all strings have one width. Always: rows keep their order.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

_INT32_MAX = 0x7FFFFFFF
_LONG_BYTES = 4096  # of a string that is copied by itself


@dataclass(frozen=True, slots=True)
class VarBinary:
    """`data[offsets[i]:offsets[i + 1]]` is string i."""

    data: np.ndarray
    offsets: np.ndarray

    def __len__(self) -> int:
        return len(self.offsets) - 1

    @property
    def lengths(self) -> np.ndarray:
        return self.offsets[1:] - self.offsets[:-1]  # np.diff takes eight times as long for a few strings

    @staticmethod
    def of_matrix(matrix: np.ndarray) -> VarBinary:
        """A string for each row."""
        count, width = matrix.shape
        return VarBinary(np.ascontiguousarray(matrix).reshape(-1), np.arange(count + 1, dtype=np.int64) * width)

    @staticmethod
    def from_arrow(array: pa.Array | pa.ChunkedArray) -> VarBinary:
        """Of a binary or string array; NULL becomes the empty string."""
        array = flat(array)
        if array.null_count:
            array = array.fill_null("" if pa.types.is_string(array.type) else b"")
        large = pa.types.is_large_binary(array.type) or pa.types.is_large_string(array.type)
        _, offsets, data = array.buffers()
        kind = np.int64 if large else np.int32
        if offsets is None or not len(array):
            return VarBinary(np.empty(0, np.uint8), np.zeros(len(array) + 1, np.int64))
        bounds = np.frombuffer(offsets, kind)[array.offset : array.offset + len(array) + 1].astype(np.int64)
        body = np.frombuffer(data, np.uint8) if data is not None else np.empty(0, np.uint8)
        return VarBinary(body[bounds[0] : bounds[-1]], bounds - bounds[0])

    def to_arrow(self, *, valid: np.ndarray | None = None, text: bool = False) -> pa.Array:
        """As a binary (or string) array; where `valid` is False the value is NULL."""
        kind = pa.string() if text else pa.binary()
        if self.offsets[-1] > _INT32_MAX:
            kind = pa.large_string() if text else pa.large_binary()
        offsets = self.offsets.astype(np.int32 if kind in (pa.string(), pa.binary()) else np.int64)
        bits = None if valid is None or valid.all() else pack_bits(valid)
        data = np.ascontiguousarray(self.data)
        return pa.Array.from_buffers(kind, len(self), [bits, pa.py_buffer(offsets), pa.py_buffer(data)])

    def as_matrix(self) -> VarBinary | np.ndarray:
        """One row for each string where all have one length; else the strings as they are."""
        count = len(self)
        width = int(self.offsets[1]) if count else 0
        if not count or len(self.data) != count * width or (self.lengths != width).any():
            return self
        return self.data.reshape(count, width)

    def cut(self, starts: np.ndarray, lengths: np.ndarray) -> VarBinary:
        """From each string the piece at `starts` (inside it) of `lengths` bytes."""
        return gather(self.data, self.offsets[:-1] + starts, lengths)

    def without_first(self, width: int) -> VarBinary:
        """Each string without its first `width` bytes; all have at least as many."""
        return gather(self.data, self.offsets[:-1] + width, self.lengths - width)


def flat(array: pa.Array | pa.ChunkedArray) -> pa.Array:
    """The array in one piece."""
    return array.combine_chunks() if isinstance(array, pa.ChunkedArray) else array


def offsets_of(lengths: np.ndarray) -> np.ndarray:
    """Where strings of these lengths begin, one after the other, and where the last one ends."""
    offsets = np.zeros(len(lengths) + 1, np.int64)
    np.cumsum(lengths, out=offsets[1:])
    return offsets


def pack_bits(flags: np.ndarray) -> pa.Buffer:
    """Booleans as an Arrow validity bitmap."""
    return pa.py_buffer(np.packbits(flags, bitorder="little"))


def gather(data: np.ndarray, starts: np.ndarray, lengths: np.ndarray) -> VarBinary:
    """The pieces `data[starts[i] : starts[i] + lengths[i]]`."""
    offsets = offsets_of(lengths)
    total = int(offsets[-1])
    if total > len(starts) * _LONG_BYTES:  # an index of their bytes would be eight times as long as they are
        pieces = [data[start:stop] for start, stop in zip(starts.tolist(), (starts + lengths).tolist(), strict=True)]
        return VarBinary(np.concatenate(pieces), offsets)
    if len(starts) and total == len(starts) * int(lengths[0]) and (lengths == lengths[0]).all():
        return VarBinary(gather_fixed(data, starts, int(lengths[0])).reshape(-1), offsets)
    ends = starts + lengths
    if total and data.flags.c_contiguous and (starts[1:] >= ends[:-1]).all():
        return VarBinary(_every_other(data, starts, ends), offsets)
    index = np.repeat(starts - offsets[:-1], lengths) + np.arange(total)
    return VarBinary(data[index], offsets)


def _every_other(data: np.ndarray, starts: np.ndarray, ends: np.ndarray) -> np.ndarray:
    """The bytes of non-overlapping pieces in ascending order: to Arrow they are every other string, copied whole."""
    borders = np.empty(2 * len(starts), np.int64)
    borders[0::2], borders[1::2] = starts, ends
    small = len(data) <= _INT32_MAX
    kind, width = (pa.binary(), np.int32) if small else (pa.large_binary(), np.int64)
    buffers = [None, pa.py_buffer(borders.astype(width)), pa.py_buffer(data)]
    strings = pa.Array.from_buffers(kind, len(borders) - 1, buffers)
    return VarBinary.from_arrow(strings.take(pa.array(np.arange(0, len(borders), 2)))).data


def gather_fixed(data: np.ndarray, starts: np.ndarray, width: int) -> np.ndarray:
    """The pieces of `width` bytes at `starts`, as a matrix with one row each."""
    count = len(starts)
    if not count or not width:
        return np.empty((count, width), np.uint8)
    step = int(starts[1] - starts[0]) if count > 1 else width
    evenly = step >= width and int(starts[-1] - starts[0]) == step * (count - 1)
    evenly = evenly and bool((starts[1:] - starts[:-1] == step).all())
    if width in (1, 2, 4, 8) and data.flags.c_contiguous:
        # a word at every byte, overlapping: copying a word costs less than copying its bytes one by one
        words = np.ndarray((len(data) - width + 1,), f"<u{width}", buffer=data, strides=(1,))
        picked = words[int(starts[0]) : int(starts[-1]) + 1 : step].copy() if evenly else words[starts]
        return picked.view(np.uint8).reshape(count, width)
    if evenly:  # one stride: no index needed
        return np.lib.stride_tricks.as_strided(data[int(starts[0]) :], (count, width), (step, 1))
    return data[starts[:, None] + np.arange(width)]


Part = VarBinary | np.ndarray


def join(parts: Sequence[Part]) -> VarBinary:
    """Row by row, the concatenated parts; a matrix is a part of fixed width."""
    shaped = [part.as_matrix() if isinstance(part, VarBinary) else part for part in parts]
    matrices = [part for part in shaped if isinstance(part, np.ndarray)]
    if len(matrices) == len(shaped):
        return VarBinary.of_matrix(matrices[0] if len(matrices) == 1 else np.concatenate(matrices, axis=1))
    strings = [(part if isinstance(part, VarBinary) else VarBinary.of_matrix(part)).to_arrow() for part in shaped]
    wide = sum(array.nbytes for array in strings) > _INT32_MAX
    kind = pa.large_binary() if wide else pa.binary()
    joined = pc.binary_join_element_wise(*(array.cast(kind) for array in strings), pa.scalar(b"", kind))
    return VarBinary.from_arrow(joined)
