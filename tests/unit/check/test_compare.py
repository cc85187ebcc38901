"""Comparing: by key, or as bags; a DOUBLE that comes from sums may be off, as far as its bound says or by a billionth."""

from __future__ import annotations

import math
import tempfile
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from viewkeeper.check.compare import Shape, compare
from viewkeeper.check.report import Finding


def findings(shape: Shape, expected: list[tuple], found: list[tuple], kinds: list[pa.DataType]) -> list[Finding]:
    """What a comparison of rows finds."""
    with tempfile.TemporaryDirectory() as folder:
        for side, rows in (("expected", expected), ("found", found)):
            arrays = [pa.array([row[i] for row in rows], kind) for i, kind in enumerate(kinds)]
            names = [f"c{place}" for place in range(len(kinds))]
            (Path(folder) / side).mkdir()
            pq.write_table(pa.table(arrays, names), Path(folder) / side / "0.parquet")
        counted, differing = compare(shape, Path(folder) / "expected", Path(folder) / "found", Path(folder) / "scratch")
    assert counted == len(expected)
    return differing


def bag(expected: list[tuple], found: list[tuple], *, doubles: int = 0) -> list[Finding]:
    """Rows of texts, the last `doubles` columns being numbers."""
    width = len((expected + found)[0]) if expected or found else 1 + doubles
    kinds = [pa.string()] * (width - doubles) + [pa.float64()] * doubles
    names = [f"v{place}" for place in range(width)]
    numbers = frozenset(range(width - doubles, width))
    return findings(Shape("v", names, numbers, None, (), {}, is_near=True), expected, found, kinds)


def differences(expected: list[tuple], found: list[tuple], *, doubles: int = 0) -> list[str]:
    return sorted(finding.kind for finding in bag(expected, found, doubles=doubles))


def test_the_key_of_a_bag_is_all_that_is_no_double_and_a_number() -> None:
    (found,) = bag([("a", "x", 1.0), ("a", "x", 0.5), ("b", None, 2.0)], [("a", "x", 0.5), ("b", None, 2.0)], doubles=1)

    assert found == Finding("v", ("a", "x", 2), "missing", {"v0": "a", "v1": "x", "v2": 1.0}, None)


def test_records_are_found_by_their_key() -> None:
    shape = Shape("v", ["n"], frozenset(), (1,), (1,), {}, is_near=False)
    expected, found = [(1, "a"), (2, "b"), (3, None)], [(1, "a"), (5, "b"), (4, "d")]
    told = findings(shape, expected, found, [pa.int64(), pa.string()])

    assert [(one.key, one.kind, one.expected, one.found) for one in told] == [
        (("b",), "wrong", {"n": 2}, {"n": 5}),
        (("d",), "extra", None, {"n": 4}),
        ((None,), "missing", {"n": 3}, None),
    ]


@pytest.mark.parametrize(
    ("expected", "bound", "found", "is_same"),
    [
        (1.0, 0.0, 1.0, True),
        (1.0, 0.0, 1.0 + 1e-15, False),
        (1.0, 1e-6, 1.0 + 1e-7, True),
        (0.0, 1e-6, 1e-7, True),
        (1.0, 1e-6, None, False),
        (None, None, None, True),
        (math.inf, math.inf, 1.0, True),  # the magnitudes have left the range: Spark's sum may be anything
        (math.nan, math.nan, 1.0, True),
        (math.inf, math.inf, None, False),
        (math.nan, 0.0, 1.0, False),
    ],
)
def test_a_sum_of_doubles_may_be_off_as_far_as_its_bound_says(
    expected: float | None, bound: float | None, found: float | None, is_same: bool
) -> None:
    shape = Shape("v", ["s"], frozenset({0}), (), (), {0: 1}, is_near=False)
    told = findings(shape, [(expected, bound)], [(found, None)], [pa.float64(), pa.float64()])

    assert (told == []) is is_same


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
