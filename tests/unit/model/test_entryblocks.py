"""Blocks of entries: what is decoded is what was encoded, and small numbers take little room."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from viewkeeper.model.entryblocks import Blocks, Lists, decode_blocks, encode_blocks
from viewkeeper.model.varbinary import VarBinary

STRINGS = st.binary(max_size=5) | st.binary(min_size=200, max_size=300)
COUNTS = st.integers(1, 3) | st.integers(1, 2**63 - 1)
Block = tuple[list[tuple[bytes, frozenset[int]]], list[tuple[bytes, dict[int, int]]]]


def drawn(slots: int) -> st.SearchStrategy[list[Block]]:
    slot = st.integers(0, slots - 1)
    bounds = st.lists(st.tuples(STRINGS, st.frozensets(slot, min_size=1)), max_size=4)
    values = st.lists(st.tuples(STRINGS, st.dictionaries(slot, COUNTS, min_size=1, max_size=3)), max_size=6)
    return st.lists(st.tuples(bounds, values), max_size=5)


def lists(some: list, slots: int) -> Lists:
    strings = [string for part in some for string, _ in part]
    masks = np.array([[slot in of for slot in range(slots)] for part in some for _, of in part], bool)
    sizes = np.array([len(part) for part in some], np.int64)
    return Lists(VarBinary.from_arrow(pa.array(strings, pa.binary())), masks.reshape(len(strings), slots), sizes)


def blocks_of(some: list[Block], slots: int) -> Blocks:
    counts = [of[slot] for _, values in some for _, of in values for slot in sorted(of)]
    parts = [bounds for bounds, _ in some], [values for _, values in some]
    return Blocks(*(lists(part, slots) for part in parts), np.array(counts, np.int64))


def plain(blocks: Blocks) -> list[Block]:
    counts = iter(blocks.counts.tolist())
    parts: list[list] = []
    for part in (blocks.bounds, blocks.values):
        slots = [np.flatnonzero(mask).tolist() for mask in part.masks]
        pairs = list(zip(part.strings.to_arrow().to_pylist(), slots, strict=True))
        parts.append([pairs[start:stop] for start, stop in zip(part.starts[:-1], part.starts[1:], strict=True)])
    bounds = [[(string, frozenset(slots)) for string, slots in part] for part in parts[0]]
    values = [[(string, {slot: next(counts) for slot in slots}) for string, slots in part] for part in parts[1]]
    return list(zip(bounds, values, strict=True))


@pytest.mark.parametrize("slots", [1, 2, 8, 9, 70])
def test_blocks_are_what_their_rows_say_each_by_itself(slots: int) -> None:
    @given(drawn(slots))
    def check(some: list[Block]) -> None:
        rows = encode_blocks(blocks_of(some, slots))
        assert rows.to_pylist() == [encode_blocks(blocks_of([one], slots))[0].as_py() for one in some]
        with_none = pa.array([None, *rows.to_pylist()], pa.binary())
        assert plain(decode_blocks(with_none, slots)) == [([], []), *some]

    check()


def test_values_of_one_length_that_are_there_once_take_no_room_but_their_bytes() -> None:
    values = [(b"%05d" % number, {0: 1}) for number in range(100)]
    (row,) = encode_blocks(blocks_of([([], values)], 1)).to_pylist()
    assert len(row) < 100 * 5 + 16
    (row,) = encode_blocks(blocks_of([([], [(value, {0: 1, 3: 1}) for value, _ in values])], 8)).to_pylist()
    assert len(row) < 100 * 6 + 16
