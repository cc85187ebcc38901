"""The last of each key is found, and keys are put in the order of their bytes, whatever their widths."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from viewkeeper.model.keybatches import last_of_keys, order_of_keys

TAILS = st.sampled_from((b"", b"\x00", b"\x00\x00", b"\xff", b"a", b"ab"))
SHORT = st.builds(
    lambda stem, tail: stem + tail, st.sampled_from((b"", b"k" * 9, b"\x00" * 7)), TAILS | st.binary(max_size=3)
)
LONG = st.builds(lambda length, tail: b"m" * length + tail, st.sampled_from((126, 127, 128, 129, 257, 2_000)), TAILS)
WIDE = st.binary(min_size=20, max_size=20)
DIGITS = st.integers(0, 10**9).map(lambda number: b"k%017d" % (number * 999_999_937))


@pytest.mark.parametrize("kind", [SHORT, WIDE, DIGITS, SHORT | LONG])
def test_the_last_of_each_key_in_the_order_of_groups_and_bytes(kind: st.SearchStrategy[bytes]) -> None:
    @given(st.lists(kind, max_size=12), st.data())
    def check(keys: list[bytes], data: st.DataObject) -> None:
        keys = keys + data.draw(st.lists(st.sampled_from(keys), max_size=8)) if keys else keys
        within = data.draw(st.permutations(range(-2, len(keys) - 2)))
        groups = [sum(key) % 3 for key in keys]
        found = last_of_keys(pa.array(keys, pa.binary()), np.array(within, np.int64), groups=np.array(groups, np.int64))
        last: dict[bytes, int] = {}
        for place in sorted(range(len(keys)), key=within.__getitem__):
            last[keys[place]] = place

        assert found.tolist() == sorted(last.values(), key=lambda place: (groups[place], keys[place]))

    check()


@pytest.mark.parametrize("kind", [SHORT, WIDE, DIGITS, SHORT | LONG, LONG])
def test_equal_keys_of_different_groups_are_different_keys(kind: st.SearchStrategy[bytes]) -> None:
    @given(st.lists(kind, min_size=1, max_size=4), st.data())
    def check(drawn: list[bytes], data: st.DataObject) -> None:
        pairs = data.draw(st.lists(st.tuples(st.integers(0, 3), st.sampled_from(drawn)), max_size=16))
        groups, keys = (
            np.array([group for group, _ in pairs], np.int64),
            pa.array([key for _, key in pairs], pa.binary()),
        )
        order, starts = order_of_keys(keys, groups=groups)
        distinct = sorted(set(pairs))

        assert [pairs[place] for place in order] == sorted(pairs)
        assert [pairs[order[start]] for start in starts] == distinct
        within = np.arange(len(pairs))
        last = {pair: place for place, pair in enumerate(pairs)}
        assert last_of_keys(keys, within, groups=groups).tolist() == [last[pair] for pair in distinct]

    check()
