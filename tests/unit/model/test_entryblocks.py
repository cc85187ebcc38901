"""Blocks of entries: what is decoded is what was encoded, and small numbers take little room."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from viewkeeper.model.entryblocks import Blocks, Lists, decode_blocks, encode_blocks
from viewkeeper.model.ragged import Ragged

STRINGS = st.lists(st.binary(max_size=5) | st.binary(min_size=200, max_size=300), max_size=5)
COUNTS = st.integers(1, 3) | st.integers(1, 2**63 - 1)
BLOCKS = st.lists(st.tuples(STRINGS, st.lists(st.tuples(st.binary(max_size=4), COUNTS), max_size=6)), max_size=5)


def lists(some: list[list[bytes]]) -> Lists:
    strings = pa.array([one for part in some for one in part], pa.binary())
    return Lists(Ragged.from_arrow(strings), np.array([len(part) for part in some], np.int64))


def blocks_of(some: list) -> Blocks:
    counts = np.array([count for _, entries in some for _, count in entries], np.int64)
    return Blocks(
        lists([bounds for bounds, _ in some]), lists([[value for value, _ in part] for _, part in some]), counts
    )


def plain(blocks: Blocks) -> list:
    bounds, values = (one.strings.to_arrow().to_pylist() for one in (blocks.bounds, blocks.values))
    counts, found = blocks.counts.tolist(), []
    for number in range(len(blocks.values.sizes)):
        own, other = (slice(*one.starts[number : number + 2]) for one in (blocks.values, blocks.bounds))
        found.append((bounds[other], list(zip(values[own], counts[own], strict=True))))
    return found


@given(BLOCKS)
def test_blocks_are_what_their_rows_say(some: list) -> None:
    assert plain(decode_blocks(encode_blocks(blocks_of(some)))) == some


@given(BLOCKS)
def test_each_row_is_by_itself_and_no_row_is_an_empty_block(some: list) -> None:
    alone = [encode_blocks(blocks_of([one]))[0].as_py() for one in some]
    assert encode_blocks(blocks_of(some)).to_pylist() == alone
    assert plain(decode_blocks(pa.array([None, *alone], pa.binary()))) == [([], []), *some]


def test_values_of_one_length_that_are_there_once_take_no_room_but_their_bytes() -> None:
    (row,) = encode_blocks(blocks_of([([], [(b"%05d" % number, 1) for number in range(100)])])).to_pylist()
    assert len(row) < 100 * 5 + 16
