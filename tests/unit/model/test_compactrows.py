"""Compact rows: both forms hold the same values, one by one and as batches, and small numbers take little room."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from viewkeeper.model.rowbatches import decode_rows, encode_compact_rows, encode_rows
from viewkeeper.model.rowcodec import decode_row, decode_some
from viewkeeper.model.schema import Column
from viewkeeper.model.types import BIGINT, BOOLEAN, DOUBLE, INT, INT128, STRING

COLUMNS = (
    Column("n", BIGINT, nullable=False),
    Column("s", INT128, nullable=False),
    Column("a", DOUBLE, nullable=True),
    Column("i", INT, nullable=True),
    Column("b", BOOLEAN, nullable=True),
    *(Column(f"n{place}", BIGINT, nullable=True) for place in range(9)),
)
SMALL, WIDE = st.integers(-3, 300), st.integers(-(2**62), 2**62)
ROWS = st.tuples(
    SMALL | WIDE,
    st.integers(-(10**37), 10**37) | SMALL,
    st.none() | st.floats(allow_nan=False),
    st.none() | st.integers(-(2**31), 2**31 - 1),
    st.none() | st.booleans(),
    *(st.none() | SMALL | WIDE for _ in range(9)),
)


def arrays(rows: list[tuple]) -> list[pa.Array]:
    return [pa.array([row[i] for row in rows], column.type.arrow) for i, column in enumerate(COLUMNS)]


@given(st.lists(ROWS, min_size=1, max_size=6), st.lists(st.integers(0, len(COLUMNS) - 1), max_size=4))
def test_both_forms_hold_the_same(rows: list[tuple], wanted: list[int]) -> None:
    plain, compact = (
        encode(COLUMNS, arrays(rows), len(rows)).to_pylist() for encode in (encode_rows, encode_compact_rows)
    )
    for some in (plain, compact, [*plain, None, *compact]):
        found = decode_rows(COLUMNS, pa.array(some, pa.binary()))
        expected = [None if row is None else tuple(decode_row(COLUMNS, row)) for row in some]
        assert list(zip(*(column.to_pylist() for column in found), strict=True)) == [
            (None,) * len(COLUMNS) if row is None else row for row in expected
        ]
    for row, one, other in zip(rows, plain, compact, strict=True):
        assert decode_row(COLUMNS, other) == decode_row(COLUMNS, one)
        assert decode_some(COLUMNS, other, wanted) == [decode_row(COLUMNS, one)[i] for i in wanted]
        assert len(other) <= len(one)
        assert encode_compact_rows(COLUMNS, arrays([row]), 1)[0].as_py() == other  # whatever is beside it


def test_small_numbers_take_little_room() -> None:
    row = (7, 1_000, None, 3, True, *range(9))
    (plain,), (compact,) = (
        encode(COLUMNS, arrays([row]), 1).to_pylist() for encode in (encode_rows, encode_compact_rows)
    )
    assert len(compact) < len(plain) / 3


@pytest.mark.parametrize("text", ["", "x" * 50])
def test_rows_of_any_width_stay_as_they_are(text: str) -> None:
    columns = (*COLUMNS[:2], Column("t", STRING, nullable=True))
    values = [pa.array([1]), pa.array([2], INT128.arrow), pa.array([text])]
    assert encode_compact_rows(columns, values, 1) == encode_rows(columns, values, 1)
