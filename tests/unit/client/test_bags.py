"""Bags: rows without a key are compared as often as they are there; a DOUBLE may be off by a billionth."""

from __future__ import annotations

import math

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from viewkeeper.check.compare import compare
from viewkeeper.client.bags import keyed


def table(rows: list[tuple], *, doubles: int = 0) -> pa.Table:
    """Rows of texts, the last `doubles` columns being numbers."""
    width = len(rows[0]) if rows else 1 + doubles
    kinds = [pa.string()] * (width - doubles) + [pa.float64()] * doubles
    return pa.table({f"v{i}": pa.array([row[i] for row in rows], kind) for i, kind in enumerate(kinds)})


def differences(expected: list[tuple], found: list[tuple], *, doubles: int = 0) -> list[str]:
    """The kinds of what a comparison of two bags finds, in order."""
    sides = [table(rows, doubles=doubles) for rows in (expected, found)]
    names = (sides[0] if expected else sides[1]).column_names
    left, keys, bounds = keyed(sides[0], names)
    right, others, _ = keyed(sides[1], names)
    assert keys == others
    return sorted(finding.kind for finding in compare("v", keys, names, bounds, left, right))


def test_the_key_is_all_that_is_no_double_and_a_number() -> None:
    found, keys, bounds = keyed(
        table([("a", "x", 1.0), ("a", "x", 0.5), ("b", None, 2.0)], doubles=1), ["v0", "v1", "v2"]
    )

    assert (keys, bounds) == (["__key_0", "__key_1", "__key_2"], ["__bound_0", "__bound_1", "__bound_2"])
    assert found.column_names == [*keys, "v0", "v1", "v2", *bounds]
    rows = sorted((tuple(row[key] for key in keys), row["v2"]) for row in found.to_pylist() if row["v1"])
    assert rows == [(("a", "x", 1), 0.5), (("a", "x", 2), 1.0)]


def test_no_two_rows_have_one_key() -> None:
    rows = [("a", 1.0)] * 4 + [(None, None)] * 3 + [("a", math.nan)] * 2
    found, keys, _ = keyed(table(rows, doubles=1), ["v0", "v1"])

    assert len({tuple(row[key] for key in keys) for row in found.to_pylist()}) == len(rows)


@pytest.mark.parametrize(
    ("expected", "found", "kinds"),
    [
        ([("a",), ("a",), ("b",)], [("b",), ("a",), ("a",)], []),
        ([("a",), ("a",)], [("a",)], ["missing"]),
        ([("a",)], [("a",), ("a",), ("a",)], ["extra", "extra"]),
        ([("a",)], [("b",)], ["extra", "missing"]),
        ([(None,), (None,)], [(None,)], ["missing"]),
        ([(None,)], [("",)], ["extra", "missing"]),
        ([], [("a",)], ["extra"]),
        ([("a",)], [], ["missing"]),
    ],
)
def test_a_row_too_many_or_too_few_is_found(expected: list, found: list, kinds: list) -> None:
    assert differences(expected, found) == kinds


@pytest.mark.parametrize(
    ("expected", "found", "is_same"),
    [
        (1.0, 1.0 + 1e-12, True),
        (1.0, 1.0 + 1e-6, False),
        (1e20, 1e20 + 1e8, True),
        (1e20, 1e20 + 1e12, False),
        (0.0, -0.0, True),
        (0.0, 1e-20, False),  # nothing is near to 0 but itself
        (None, None, True),
        (None, 0.0, False),
        (0.0, None, False),
        (math.nan, math.nan, True),
        (math.nan, 1.0, False),
        (1.0, math.nan, False),
        (math.inf, math.inf, True),
        (math.inf, 1.0, False),
        (math.inf, -math.inf, False),
        (1e308, math.inf, False),
    ],
)
def test_a_double_may_be_off_by_a_billionth(expected: float | None, found: float | None, is_same: bool) -> None:
    for exact in ((), ("a",)):
        assert (differences([(*exact, expected)], [(*exact, found)], doubles=1) == []) is is_same


def test_doubles_of_rows_that_are_otherwise_equal_are_paired_in_their_order() -> None:
    expected = [("a", 3.0), ("a", 1.0), ("b", 2.0), ("a", None)]
    found = [("a", None), ("b", 2.0), ("a", 1.0 + 1e-12), ("a", 3.0 - 1e-12)]

    assert differences(expected, found, doubles=1) == []
    assert differences(expected, [*found[:3], ("a", 3.1)], doubles=1) == ["wrong"]


@settings(max_examples=12)
@given(
    st.lists(st.tuples(st.sampled_from(["a", "b", None]), st.sampled_from([None, 0.0, 1.5, -2.0])), max_size=8),
    st.data(),
)
def test_a_bag_is_itself_in_any_order_and_no_other(rows: list, data: st.DataObject) -> None:
    shuffled = data.draw(st.permutations(rows))
    assert differences(rows, shuffled, doubles=1) == []
    if rows:
        assert differences(rows, shuffled[1:], doubles=1) != []
