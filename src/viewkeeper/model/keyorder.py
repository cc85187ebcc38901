"""Key order: the order of many keys, and where among them another key begins.

In: key bytes. Out: indexes in the order of the keys. Always: exactly the order of the bytes. Bytes that are the same in
all keys are ignored; the rest is sorted in words of eight bytes, and each next word only where the previous ones tie.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from viewkeeper.model.ragged import Ragged

_WIDTH_MAX = 128  # longer keys are compared string by string


def order_of_keys(keys: pa.Array, within: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The indexes of all keys in ascending order, equal ones by `within`; and which are the last of their key."""
    strings = Ragged.from_arrow(keys)
    if not len(strings):
        return np.zeros(0, np.int64), np.zeros(0, bool)
    if int(strings.lengths.max()) > _WIDTH_MAX:
        return _order_of_long_keys(keys, within)
    order, begins = np.arange(len(strings)), np.zeros(len(strings), bool)
    begins[0] = True
    for word in _words(strings):
        order = _sort_ties(order, begins, word)
        begins[1:] |= (sorted_word := word[order])[1:] != sorted_word[:-1]
    return _sort_ties(order, begins, within), np.append(begins[1:], True)


def _words(strings: Ragged) -> list[np.ndarray]:
    """The bytes in which keys differ, as big-endian words, and last the lengths where they differ: "a" is before "a\\0"."""
    lengths = strings.lengths
    width = int(lengths.max())
    shaped = strings.as_matrix()
    if isinstance(shaped, np.ndarray):
        matrix = shaped
    else:
        matrix = np.zeros((len(strings), width), np.uint8)
        matrix[np.arange(width) < lengths[:, None]] = strings.data
    telling = np.flatnonzero((matrix != matrix[0]).any(axis=0))
    padded = np.zeros((len(strings), -(-len(telling) // 8) * 8), np.uint8)
    padded[:, : len(telling)] = matrix[:, telling]
    words = [word.astype(np.uint64) for word in padded.view(">u8").T]
    return words if matrix is shaped else [*words, lengths]


def _sort_ties(order: np.ndarray, begins: np.ndarray, word: np.ndarray) -> np.ndarray:
    """The indexes sorted by `word` where they were equal so far: between two of `begins`."""
    tied = ~begins
    tied[:-1] |= ~begins[1:]
    if begins.sum() == 1:
        return order[np.argsort(word[order], kind="stable")]
    if not tied.any():
        return order
    among = order[tied]
    group = np.cumsum(begins)[tied]
    order[tied] = among[np.lexsort((word[among], group))]
    return order


def _order_of_long_keys(keys: pa.Array, within: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    columns = pa.table({"key": keys, "within": pa.array(within)})
    order = np.asarray(pc.sort_indices(columns, [("key", "ascending"), ("within", "ascending")])).astype(np.int64)
    ordered = keys.take(pa.array(order))
    return order, np.append(~np.asarray(pc.equal(ordered[:-1], ordered[1:])), True)
