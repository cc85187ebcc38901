"""Key order: the order of many keys, and the last of each.

In: key bytes. Out: indexes in the order of the keys. Always: exactly the order of the bytes. Only the bits in which keys
differ are compared: packed into words of 64, and each next word only where the previous ones tie.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from viewkeeper.model.ragged import Ragged

_WIDTH_MAX = 128  # longer keys are compared string by string


def order_of_keys(keys: pa.Array, *, groups: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The indexes of all keys by `groups` and then in ascending order; and where in it each key of a group begins.

    Equal keys of one group are in no order; those of two groups are two keys.
    """
    strings = Ragged.from_arrow(keys)
    if not len(strings):
        return np.zeros(0, np.int64), np.zeros(0, np.int64)
    if int(strings.lengths.max()) > _WIDTH_MAX:
        return _order_of_long_keys(keys, groups)
    order, begins = np.arange(len(strings)), np.zeros(len(strings), bool)
    begins[0] = True
    for word in _packed([(groups.astype(np.uint64), 64), *_parts(strings)]):
        order = _sort_ties(order, begins, word)
        begins[1:] |= (sorted_word := word[order])[1:] != sorted_word[:-1]
    return order, np.flatnonzero(begins)


def last_of_keys(keys: pa.Array, within: np.ndarray, *, groups: np.ndarray) -> np.ndarray:
    """The index of each key of a group where `within` is largest, in the same order."""
    order, starts = order_of_keys(keys, groups=groups)
    if len(starts) == len(order):
        return order
    ordered, counts = within[order], np.diff(starts, append=len(order))
    is_largest = ordered == np.repeat(np.maximum.reduceat(ordered, starts), counts)
    ties = np.repeat(np.arange(len(starts)), counts)[is_largest]
    return order[is_largest][np.append(ties[1:] != ties[:-1], True)]


def _parts(strings: Ragged) -> list[tuple[np.ndarray, int]]:
    """Eight bytes of the keys after the other as numbers, and last the lengths where they differ: "a" is before "a\\0"."""
    lengths = strings.lengths
    width = int(lengths.max())
    shaped = strings.as_matrix()
    padded = np.zeros((len(strings), -(-width // 8) * 8), np.uint8)
    if isinstance(shaped, np.ndarray):
        padded[:, :width] = shaped
    else:
        padded[np.arange(padded.shape[1]) < lengths[:, None]] = strings.data
    words = [(word.astype(np.uint64), 8) for word in padded.view(">u8").T]
    return words if isinstance(shaped, np.ndarray) else [*words, (lengths.astype(np.uint64), 64)]


def _packed(parts: list[tuple[np.ndarray, int]]) -> Iterator[np.ndarray]:
    """Numbers packed into words, the first most significant: of each `step` bits only those that differ."""
    packed, room = np.zeros(0, np.uint64), 0
    for numbers, step in parts:
        differing = int(np.bitwise_or.reduce(numbers ^ numbers[0]))
        for shift in range(64 - step, -1, -step):
            bits = differing >> shift & (1 << step) - 1
            if not bits:
                continue
            low = shift + (bits & -bits).bit_length() - 1
            width = shift + bits.bit_length() - low
            if width > room:
                if len(packed):
                    yield packed
                packed, room = np.zeros(len(numbers), np.uint64), 64
            room -= width
            packed |= (numbers >> np.uint64(low) & np.uint64((1 << width) - 1)) << np.uint64(room)
    if len(packed):
        yield packed


def _sort_ties(order: np.ndarray, begins: np.ndarray, word: np.ndarray) -> np.ndarray:
    """The indexes sorted by `word` where they were equal so far: between two of `begins`."""
    tied = ~begins
    tied[:-1] |= ~begins[1:]
    if begins.sum() == 1:
        return order[np.argsort(word[order])]
    if not tied.any():
        return order
    among = order[tied]
    group = np.cumsum(begins)[tied]
    order[tied] = among[np.lexsort((word[among], group))]
    return order


def _order_of_long_keys(keys: pa.Array, groups: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    columns = pa.table({"group": pa.array(groups), "key": keys})
    order = np.asarray(pc.sort_indices(columns, [("group", "ascending"), ("key", "ascending")])).astype(np.int64)
    ordered, ordered_groups = keys.take(pa.array(order)), groups[order]
    differs = ~np.asarray(pc.equal(ordered[1:], ordered[:-1])) | (ordered_groups[1:] != ordered_groups[:-1])
    return order, np.flatnonzero(np.append(True, differs))
