"""Entry blocks: many distinct values of a group in one record, with how often each is there, by slot.

A slot is one of several arguments whose values are kept together; a mask says in which slots a value is. A block's row:

    bounds u32 | values u32 | lengths of bounds | lengths of values | masks of bounds | masks of values | multiplicities
    bounds | values

The bounds are where other blocks of the same group begin, their masks the slots of those blocks; with one slot there are no
masks. Numbers are packed: `widths u8 | the least of them | how much more each is`; the lower half of widths is the least's.

In: blocks, or an array of their rows. Out: the other. Always: equal blocks are equal bytes; NULL is an empty block.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from viewkeeper.model.varbinary import VarBinary, gather, gather_fixed, join, offsets_of

BLOCK_BYTES_MAX = 800  # of entries: longer rows would cost more to write, shorter ones would be more
BLOCK_BYTES = 500  # about that many after a division
ENTRY_BYTES = 2  # of an entry besides its value, at most in most blocks
_HEAD = 8
_LIMITS = np.array([1 << 8 * width for width in range(8)], np.uint64)  # the first number that needs a byte more


@dataclass(frozen=True, slots=True)
class Lists:
    """Lists of strings, `sizes` strings each; `masks` says in which slots (columns) each string (row) is."""

    strings: VarBinary
    masks: np.ndarray
    sizes: np.ndarray

    @property
    def starts(self) -> np.ndarray:
        """Where each list begins, and where the last one ends."""
        return offsets_of(self.sizes)

    @property
    def owners(self) -> np.ndarray:
        """The list of each string, by its number."""
        return np.repeat(np.arange(len(self.sizes)), self.sizes)

    @property
    def joined(self) -> VarBinary:
        return VarBinary(self.strings.data, self.strings.offsets[self.starts])

    @property
    def packed_masks(self) -> VarBinary:
        width = _mask_width(self.masks.shape[1])
        packed = np.packbits(self.masks, axis=1, bitorder="little")[:, :width]
        return VarBinary(np.ascontiguousarray(packed).reshape(-1), offsets_of(self.sizes * width))


@dataclass(frozen=True, slots=True)
class Blocks:
    """Blocks: for each the bounds of others, and its values in ascending order; `counts` by value and slot."""

    bounds: Lists
    values: Lists
    counts: np.ndarray


def encode_blocks(blocks: Blocks) -> pa.Array:
    bounds, values = blocks.bounds, blocks.values
    heads = np.stack([bounds.sizes, values.sizes], axis=1).astype("<u4").view(np.uint8)
    lengths = [_packed(part.strings.lengths, part.sizes) for part in (bounds, values)]
    counted = _of_lists(np.add, values.masks.sum(axis=1), values.sizes)
    masks = [bounds.packed_masks, values.packed_masks]
    return join([heads, *lengths, *masks, _packed(blocks.counts, counted), bounds.joined, values.joined]).to_arrow()


def decode_blocks(rows: pa.Array, slots: int) -> Blocks:
    whole = VarBinary.from_arrow(rows)
    there = np.flatnonzero(whole.lengths)
    at = whole.offsets[:-1][there]
    found = gather_fixed(whole.data, at, _HEAD).copy().view("<u4").astype(np.int64)
    sizes = np.zeros((2, len(whole)), np.int64)
    sizes[:, there] = found.T
    bounds, values = found[:, 0], found[:, 1]
    bound_lengths, at = _unpacked(whole.data, at + _HEAD, bounds)
    value_lengths, at = _unpacked(whole.data, at, values)
    bound_masks, at = _masks(whole.data, at, bounds, slots)
    value_masks, at = _masks(whole.data, at, values, slots)
    counts, at = _unpacked(whole.data, at, _of_lists(np.add, value_masks.sum(axis=1), values))
    bound_strings, at = _strings(whole.data, at, bound_lengths, bounds)
    value_strings, _ = _strings(whole.data, at, value_lengths, values)
    return Blocks(Lists(bound_strings, bound_masks, sizes[0]), Lists(value_strings, value_masks, sizes[1]), counts)


def _packed(numbers: np.ndarray, sizes: np.ndarray) -> VarBinary:
    """Each list of numbers, none negative, as a string."""
    least, most = _of_lists(np.minimum, numbers, sizes), _of_lists(np.maximum, numbers, sizes)
    more, widths, wider = numbers - np.repeat(least, sizes), _width(least), _width(most - least)
    heads = (widths | wider << 4).astype(np.uint8)[:, None]
    rest = VarBinary(_bytes(more, np.repeat(wider, sizes)), offsets_of(wider * sizes))
    return join([heads, VarBinary(_bytes(least, widths), offsets_of(widths)), rest])


def _unpacked(data: np.ndarray, at: np.ndarray, sizes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The numbers of the lists that begin at `at`, and where each list ends."""
    heads = data[at].astype(np.int64)
    widths, wider = heads & 15, heads >> 4
    least = _numbers(gather(data, at + 1, widths).data, widths)
    rest = at + 1 + widths
    more = _numbers(gather(data, rest, wider * sizes).data, np.repeat(wider, sizes))
    return np.repeat(least, sizes) + more, rest + wider * sizes


def _masks(data: np.ndarray, at: np.ndarray, sizes: np.ndarray, slots: int) -> tuple[np.ndarray, np.ndarray]:
    """The masks of the lists that begin at `at`, and where each list ends."""
    width, count = _mask_width(slots), int(sizes.sum())
    if not width:
        return np.ones((count, slots), bool), at
    packed = gather(data, at, sizes * width).data.reshape(count, width)
    return np.unpackbits(packed, axis=1, count=slots, bitorder="little").astype(bool), at + sizes * width


def _strings(data: np.ndarray, at: np.ndarray, lengths: np.ndarray, sizes: np.ndarray) -> tuple[VarBinary, np.ndarray]:
    """The strings of the lists that begin at `at`, and where each list ends."""
    offsets = offsets_of(lengths)
    joined = np.diff(offsets[offsets_of(sizes)])
    return VarBinary(gather(data, at, joined).data, offsets), at + joined


def _mask_width(slots: int) -> int:
    return 0 if slots == 1 else -(-slots // 8)


def _of_lists(function: np.ufunc, numbers: np.ndarray, sizes: np.ndarray) -> np.ndarray:
    """What `function` makes of each list; 0 for an empty one."""
    found, filled = np.zeros(len(sizes), np.int64), sizes > 0
    if filled.any():
        found[filled] = function.reduceat(numbers, offsets_of(sizes)[:-1][filled])
    return found


def _width(numbers: np.ndarray) -> np.ndarray:
    """How many bytes each number needs; 0 needs none."""
    return np.searchsorted(_LIMITS, numbers.astype(np.uint64), side="right").astype(np.int64)


def _bytes(numbers: np.ndarray, widths: np.ndarray) -> np.ndarray:
    width = int(widths.max(initial=0))
    wide = numbers.astype("<i8").view(np.uint8).reshape(len(numbers), 8)[:, :width]
    return wide[np.arange(width) < widths[:, None]]


def _numbers(data: np.ndarray, widths: np.ndarray) -> np.ndarray:
    width = int(widths.max(initial=0))
    wide = np.zeros((len(widths), 8), np.uint8)
    wide[:, :width][np.arange(width) < widths[:, None]] = data
    return wide.view("<i8")[:, 0].astype(np.int64, copy=False)
