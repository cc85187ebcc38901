"""Keys are put in the order of their bytes, whatever their widths."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from viewkeeper.model.keyorder import order_of_keys

TAILS = st.sampled_from((b"", b"\x00", b"\x00\x00", b"\xff", b"a", b"ab"))
SHORT = st.builds(
    lambda stem, tail: stem + tail, st.sampled_from((b"", b"k" * 9, b"\x00" * 7)), TAILS | st.binary(max_size=3)
)
LONG = st.builds(lambda tail: b"m" * 130 + tail, TAILS)
WIDE = st.binary(min_size=20, max_size=20)


@pytest.mark.parametrize("kind", [SHORT, WIDE, SHORT | LONG])
def test_the_order_is_that_of_the_bytes_then_of_the_second_number(kind: st.SearchStrategy[bytes]) -> None:
    @given(st.lists(kind, max_size=12), st.data())
    def check(keys: list[bytes], data: st.DataObject) -> None:
        keys = keys + data.draw(st.lists(st.sampled_from(keys), max_size=4)) if keys else keys
        within = data.draw(st.permutations(range(len(keys))))
        order, is_last = order_of_keys(pa.array(keys, pa.binary()), np.array(within, np.int64))
        expected = sorted(range(len(keys)), key=lambda place: (keys[place], within[place]))

        assert order.tolist() == expected
        ordered = [keys[place] for place in expected]
        assert is_last.tolist() == [key not in ordered[place + 1 :] for place, key in enumerate(ordered)]

    check()
