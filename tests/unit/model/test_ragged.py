"""Many byte strings at once are what each of them is by itself."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from viewkeeper.model.varbinary import VarBinary, gather, join

BYTES = st.binary(max_size=4)


def _ragged(strings: list[bytes]) -> VarBinary:
    return VarBinary.from_arrow(pa.array(strings, pa.binary()))


@st.composite
def _parts(draw: st.DrawFn) -> list[list[bytes]]:
    """Columns of strings; of some all strings have one width."""
    count = draw(st.integers(0, 5))
    widths = draw(st.lists(st.none() | st.integers(0, 4), min_size=1, max_size=4))
    return [
        draw(
            st.lists(
                BYTES if width is None else st.binary(min_size=width, max_size=width), min_size=count, max_size=count
            )
        )
        for width in widths
    ]


@given(_parts(), st.data())
def test_parts_are_joined_row_by_row(parts: list[list[bytes]], data: st.DataObject) -> None:
    given_parts: list[VarBinary | np.ndarray] = []
    for strings in parts:
        ragged = _ragged(strings)
        matrix = ragged.as_matrix()
        given_parts.append(matrix if data.draw(st.booleans()) else ragged)
    joined = join(given_parts)

    assert joined.to_arrow().to_pylist() == [b"".join(row) for row in zip(*parts, strict=True)]


@given(st.binary(max_size=30), st.lists(st.tuples(st.integers(0, 30), st.integers(0, 6)), max_size=6), st.booleans())
def test_pieces_are_gathered_in_any_order(data: bytes, pieces: list[tuple[int, int]], ordered: bool) -> None:
    inside = [(start, min(size, len(data) - start)) for start, size in pieces if start <= len(data)]
    inside = sorted(inside) if ordered else inside
    starts, sizes = np.array(inside, np.int64).reshape(-1, 2).T
    found = gather(np.frombuffer(data, np.uint8), starts, sizes)

    assert found.to_arrow().to_pylist() == [data[start : start + size] for start, size in inside]


@given(st.lists(st.binary(min_size=2, max_size=6), max_size=6))
def test_first_bytes_are_cut_off(strings: list[bytes]) -> None:
    assert _ragged(strings).without_first(2).to_arrow().to_pylist() == [text[2:] for text in strings]


def test_long_strings_are_gathered_like_short_ones() -> None:
    strings = [bytes([number]) * (9_000 + number) for number in range(5)]
    whole = _ragged(strings)
    starts, lengths = whole.offsets[[3, 0, 4, 0]] + 1, np.array([9_000, 1, 9_001, 8_000])

    assert gather(whole.data, starts, lengths).to_arrow().to_pylist() == [
        strings[3][1:9_001],
        strings[0][1:2],
        strings[4][1:9_002],
        strings[0][1:8_001],
    ]
