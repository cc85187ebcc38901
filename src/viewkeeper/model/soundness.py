"""Soundness: which stored keys and rows are what the formats of `keys` and `rowcodec` can make.

In: key bytes and row bytes, perhaps damaged. Out: for each whether it is sound. Always: damage raises nothing and leads to
no read beyond a record's own bytes; equal values are equal bytes, so sound bytes are those that encode to the same again.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from viewkeeper.errors import ViewKeeperError
from viewkeeper.model import stored_values
from viewkeeper.model.keybatches import decode_keys, encode_keys
from viewkeeper.model.rowbatches import decode_rows, encode_rows
from viewkeeper.model.rowcodec import MARK, expand_rows, layout_of, segments_of
from viewkeeper.model.schema import Column
from viewkeeper.model.varbinary import VarBinary, gather_fixed

DAMAGE = (*stored_values.DAMAGE, ArithmeticError, MemoryError, ViewKeeperError)
Columns = tuple[Column, ...]


def sound_keys(columns: Columns, keys: pa.Array) -> np.ndarray:
    """Which keys are those of some values of their columns."""
    return _where(lambda some: _keys_again(columns, some), keys)


def sound_rows(columns: Columns, rows: pa.Array) -> np.ndarray:
    """Which rows are those of some values of their columns; none is NULL."""
    is_sound = whole_rows(columns, rows, tails=False)
    chosen = np.flatnonzero(is_sound)
    is_sound[chosen] = _where(lambda some: _rows_again(columns, some), rows.take(pa.array(chosen)))
    return is_sound


def whole_rows(columns: Columns, rows: pa.Array, *, tails: bool) -> np.ndarray:
    """Which rows have all bytes that their heads promise; `tails`: segments of a newer schema may follow."""
    whole = VarBinary.from_arrow(rows)
    is_whole, at, stops = whole.lengths > 0, whole.offsets[:-1].copy(), whole.offsets[1:]
    is_compact = np.zeros(len(whole), bool)
    if layout_of(columns).is_fixed and len(segments_of(columns)) == 1:
        here = np.flatnonzero(whole.lengths >= len(MARK))
        marks = gather_fixed(whole.data, whole.offsets[here], len(MARK))
        is_compact[here] = (marks == np.frombuffer(MARK, np.uint8)).all(axis=1)
        is_whole[is_compact] = _fill_compact(layout_of(columns).head_size, whole, np.flatnonzero(is_compact))
    for _, part in segments_of(columns):
        here = np.flatnonzero(is_whole & ~is_compact & (at < stops))
        sizes = _sizes(part, whole.data, at[here], stops[here])
        at[here] += sizes
        is_whole[here] &= (sizes > 0) & (at[here] <= stops[here])
    return is_whole & (tails | is_compact | (at == stops))


def _fill_compact(width: int, whole: VarBinary, here: np.ndarray) -> np.ndarray:
    """Whether compact rows have a byte for each bit that is set, of as many bits as a row has bytes."""
    size, lengths = -(-width // 8), whole.lengths[here]
    has_bits = lengths >= 2 + size
    bits = np.unpackbits(gather_fixed(whole.data, whole.offsets[here[has_bits]] + 2, size), axis=1, bitorder="little")
    has_bits[has_bits] = (bits.sum(axis=1) == lengths[has_bits] - 2 - size) & ~bits[:, width:].any(axis=1)
    return has_bits


def _sizes(columns: Columns, data: np.ndarray, starts: np.ndarray, stops: np.ndarray) -> np.ndarray:
    """The sizes of the segments that begin at `starts`; 0 for what is none."""
    sizes, here = np.zeros(len(starts), np.int64), np.flatnonzero(starts + 2 <= stops)
    counts = gather_fixed(data, starts[here], 2).copy().view("<u2")[:, 0] if len(here) else np.empty(0, np.uint16)
    for count in np.unique(counts[counts <= len(columns)]).tolist():
        layout, chosen = layout_of(columns[:count]), here[counts == count]
        chosen = chosen[starts[chosen] + layout.head_size <= stops[chosen]]
        sizes[chosen] = layout.head_size
        if layout.varying and len(chosen):
            width = 4 * len(layout.varying)
            ends = np.ascontiguousarray(gather_fixed(data, starts[chosen] + layout.body, width)).view("<u4")
            ascends = (np.diff(ends.astype(np.int64), axis=1) >= 0).all(axis=1)
            sizes[chosen] = np.where(ascends, layout.head_size + ends[:, -1].astype(np.int64), 0)
    return sizes


def _where(again: Callable[[pa.Array], np.ndarray], given: pa.Array) -> np.ndarray:
    """`again` of each; where it fails for many together, of halves of them, and False of a single one."""
    try:
        return again(given) if len(given) else np.zeros(0, bool)
    except DAMAGE:
        if len(given) == 1:
            return np.zeros(1, bool)
    middle = len(given) // 2
    return np.concatenate([_where(again, given.slice(0, middle)), _where(again, given.slice(middle))])


def _keys_again(columns: Columns, keys: pa.Array) -> np.ndarray:
    """Which keys encode to the same bytes again."""
    arrays = _validated(decode_keys(columns, keys))
    return np.asarray(pc.equal(encode_keys(columns, arrays, len(keys))[0], keys))


def _rows_again(columns: Columns, rows: pa.Array) -> np.ndarray:
    """Which rows encode to the same bytes again."""
    arrays = _validated(decode_rows(columns, rows))
    plain = expand_rows(rows, layout_of(columns).head_size) if layout_of(columns).is_fixed else rows
    return np.asarray(pc.equal(encode_rows(columns, arrays, len(rows)), plain))


def _validated(arrays: list[pa.Array]) -> list[pa.Array]:
    """Raises where a text is no UTF-8 or a DECIMAL has too many digits."""
    for array in arrays:
        array.validate(full=True)
    return arrays
