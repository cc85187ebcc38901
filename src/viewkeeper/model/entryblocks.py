"""Entry blocks: many distinct values, each with its multiplicity, in one record.

A block's row: `bounds u32 | entries u32 | lengths of the bounds | lengths of the values | multiplicities | bounds | values`.
The bounds are where other blocks of the same group begin. Numbers are packed: `widths u8 | the least of them | how much more
each is`, the widths in bytes, that of the least in the lower half.

In: blocks, or an array of their rows. Out: the other. Always: equal blocks are equal bytes; a NULL among rows is an empty
block.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from viewkeeper.model.ragged import Ragged, gather, gather_fixed, join

BLOCK_BYTES_MAX = 1_600  # of entries; a longer row would leave its page of LMDB
BLOCK_BYTES = 1_000  # about that many after a division
ENTRY_BYTES = 2  # of an entry besides its value, at most in most blocks
_HEAD = 8
_LIMITS = np.array([1 << 8 * width for width in range(8)], np.uint64)  # the first number that needs a byte more


@dataclass(frozen=True, slots=True)
class Lists:
    """Lists of strings: `sizes` says how many of the strings each has, one list after the other."""

    strings: Ragged
    sizes: np.ndarray

    @property
    def starts(self) -> np.ndarray:
        """Where each list begins, and where the last one ends."""
        return np.concatenate([[0], np.cumsum(self.sizes)])

    @property
    def owners(self) -> np.ndarray:
        """The list of each string, by its number."""
        return np.repeat(np.arange(len(self.sizes)), self.sizes)

    @property
    def joined(self) -> Ragged:
        """Each list as one string."""
        return Ragged(self.strings.data, self.strings.offsets[self.starts])


@dataclass(frozen=True, slots=True)
class Blocks:
    """Blocks: for each the bounds of others, and its values in ascending order with their multiplicities."""

    bounds: Lists
    values: Lists
    counts: np.ndarray


def encode_blocks(blocks: Blocks) -> pa.Array:
    bounds, values = blocks.bounds, blocks.values
    heads = np.stack([bounds.sizes, values.sizes], axis=1).astype("<u4").view(np.uint8)
    numbers = [
        _packed(bounds.strings.lengths, bounds.sizes),
        _packed(values.strings.lengths, values.sizes),
        _packed(blocks.counts, values.sizes),
    ]
    return join([heads, *numbers, bounds.joined, values.joined]).to_arrow()


def decode_blocks(rows: pa.Array) -> Blocks:
    whole = Ragged.from_arrow(rows)
    there = np.flatnonzero(whole.lengths)
    at = whole.offsets[:-1][there]
    found = gather_fixed(whole.data, at, _HEAD).copy().view("<u4").astype(np.int64)
    sizes = np.zeros((2, len(whole)), np.int64)
    sizes[:, there] = found.T
    at = at + _HEAD
    bound_lengths, at = _unpacked(whole.data, at, found[:, 0])
    value_lengths, at = _unpacked(whole.data, at, found[:, 1])
    counts, at = _unpacked(whole.data, at, found[:, 1])
    bounds, at = _strings(whole.data, at, bound_lengths, found[:, 0])
    values, _ = _strings(whole.data, at, value_lengths, found[:, 1])
    return Blocks(Lists(bounds, sizes[0]), Lists(values, sizes[1]), counts)


def _packed(numbers: np.ndarray, sizes: np.ndarray) -> Ragged:
    """Each list of numbers, none negative, as a string."""
    least, most = _of_lists(np.minimum, numbers, sizes), _of_lists(np.maximum, numbers, sizes)
    more, widths, wider = numbers - np.repeat(least, sizes), _width(least), _width(most - least)
    heads = (widths | wider << 4).astype(np.uint8)[:, None]
    rest = Ragged(_bytes(more, np.repeat(wider, sizes)), _offsets(wider * sizes))
    return join([heads, Ragged(_bytes(least, widths), _offsets(widths)), rest])


def _unpacked(data: np.ndarray, at: np.ndarray, sizes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The numbers of the lists that begin at `at`, and where each list ends."""
    heads = data[at].astype(np.int64)
    widths, wider = heads & 15, heads >> 4
    least = _numbers(gather(data, at + 1, widths).data, widths)
    rest = at + 1 + widths
    more = _numbers(gather(data, rest, wider * sizes).data, np.repeat(wider, sizes))
    return np.repeat(least, sizes) + more, rest + wider * sizes


def _strings(data: np.ndarray, at: np.ndarray, lengths: np.ndarray, sizes: np.ndarray) -> tuple[Ragged, np.ndarray]:
    """The strings of the lists that begin at `at`, and where each list ends."""
    offsets = _offsets(lengths)
    joined = np.diff(offsets[_offsets(sizes)])
    return Ragged(gather(data, at, joined).data, offsets), at + joined


def _of_lists(function: np.ufunc, numbers: np.ndarray, sizes: np.ndarray) -> np.ndarray:
    """What `function` makes of each list; 0 for an empty one."""
    found, filled = np.zeros(len(sizes), np.int64), sizes > 0
    if filled.any():
        found[filled] = function.reduceat(numbers, _offsets(sizes)[:-1][filled])
    return found


def _width(numbers: np.ndarray) -> np.ndarray:
    """How many bytes each number needs; 0 needs none."""
    return np.searchsorted(_LIMITS, numbers.astype(np.uint64), side="right").astype(np.int64)


def _bytes(numbers: np.ndarray, widths: np.ndarray) -> np.ndarray:
    if not widths.any():
        return np.empty(0, np.uint8)
    wide = numbers.astype("<i8").view(np.uint8).reshape(len(numbers), 8)
    return wide[np.arange(8) < widths[:, None]]


def _numbers(data: np.ndarray, widths: np.ndarray) -> np.ndarray:
    wide = np.zeros((len(widths), 8), np.uint8)
    if len(data):
        wide[np.arange(8) < widths[:, None]] = data
    return wide.view("<i8")[:, 0].astype(np.int64)


def _offsets(lengths: np.ndarray) -> np.ndarray:
    offsets = np.zeros(len(lengths) + 1, np.int64)
    np.cumsum(lengths, out=offsets[1:])
    return offsets
