"""Rows are added up by key, to exactly what Python's integers come to."""

from __future__ import annotations

import math
import random
from collections import Counter

import numpy as np
import pyarrow as pa
import pytest

from viewkeeper.errors import InvariantBroken
from viewkeeper.operators import exact_sums

_WIDE = pa.decimal128(38, 0)
_NUMBERS = {"narrow": [-(10**15), -1, 1, 2], "of 64 bits": [2**62, -(2**63), 1], "wide": [2**80, -(10**37), -1, 10**37]}


def _tables(seed: int, columns: dict[str, pa.DataType], numbers: list[int], most: int = 9) -> list[pa.Table]:
    """Two tables whose keys repeat and whose sums now and then cancel."""
    source = random.Random(seed)

    def table(rows: int) -> pa.Table:
        keys = [source.choice([b"", b"a", b"ab", b"\xff"]) for _ in range(rows)]
        drawn = {name: [source.choice(numbers) for _ in range(rows)] for name in columns}
        arrays = {name: pa.array(drawn[name], kind) for name, kind in columns.items()}
        units = pa.array([source.randrange(3) for _ in keys], pa.int16())
        hashes = pa.array([len(key) for key in keys], pa.uint32())
        return pa.table({"key": pa.array(keys, pa.binary()), "hash": hashes, "unit": units} | arrays)

    return [table(source.randrange(0, most)) for _ in range(2)]


def _expected(tables: list[pa.Table], sums: list[str], *, within: str, keep_zeros: bool) -> list[tuple]:
    totals: dict[tuple, Counter] = {}
    for row in (row for table in tables for row in table.to_pylist()):
        total = totals.setdefault((row[within] if within else 0, row["key"]), Counter())
        total.update({name: int(row[name]) for name in sums})
    found = sorted((key, unit, *(total[name] for name in sums)) for (unit, key), total in totals.items())
    return [row for row in found if keep_zeros or any(row[2:])]


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("kind", ["narrow", "of 64 bits", "wide"])
@pytest.mark.parametrize(("within", "keep_zeros"), [("", True), ("", False), ("unit", False)])
def test_rows_are_added_up_by_key(seed: int, kind: str, within: str, keep_zeros: bool) -> None:
    columns = {"s0": _WIDE, "s1": _WIDE} | ({"n": pa.int64()} if kind == "narrow" else {})
    tables = _tables(seed, columns, _NUMBERS[kind], most=200 if seed % 2 else 9)
    found = exact_sums.consolidate(tables, list(columns), within=within, keep_zeros=keep_zeros)

    assert found.schema == tables[0].schema
    rows = [
        (row["key"], row[within] if within else 0, *(int(row[name]) for name in columns)) for row in found.to_pylist()
    ]
    assert sorted(rows) == _expected(tables, list(columns), within=within, keep_zeros=keep_zeros)
    again = exact_sums.consolidate(tables[::-1], list(columns), within=within, keep_zeros=keep_zeros)
    assert again.drop_columns("unit") == found.drop_columns("unit")  # a function of the multiset


def test_a_sum_that_leaves_its_bits_is_an_error() -> None:
    def added(value: int, kind: pa.DataType, rows: int) -> pa.Table:
        table = pa.table({"key": pa.array([b"a"] * rows, pa.binary()), "s0": pa.array([value] * rows, kind)})
        return exact_sums.consolidate([table], ["s0"])

    with pytest.raises(InvariantBroken, match="128 bits"):
        added(10**38 - 1, _WIDE, 2)
    with pytest.raises(pa.ArrowInvalid):
        added(2**62, pa.int64(), 2)
    assert added(2**62, _WIDE, 100)["s0"].to_pylist() == [100 * 2**62]


@pytest.mark.parametrize("seed", range(20))
def test_an_exact_sum_of_doubles_has_the_same_bytes_however_it_is_added_up(seed: int) -> None:
    source = random.Random(seed)
    values = np.array([source.choice([0.1, -0.1, 1e300, -1e300, 5e-324, 3.5, float("inf")]) for _ in range(40)])
    groups = np.array([source.randrange(3) for _ in values])

    def added(kept: pa.Array, chosen: np.ndarray, factor: int = 1) -> pa.Array:
        ((units, mantissas),) = exact_sums.split(values[chosen])
        return exact_sums.add_sums(kept, groups[chosen], units, pa.array(mantissas * factor).cast(_WIDE))

    once = added(pa.array([None, b"", None], pa.binary()), np.arange(40))
    one_by_one = pa.nulls(3, pa.binary())
    for place in source.sample(range(40), 40):
        one_by_one = added(one_by_one, np.array([place]))
    assert one_by_one.to_pylist() == once.to_pylist()
    finite = [value for value, group in zip(values, groups, strict=True) if group == 0 and value != float("inf")]
    if len(finite) == int((groups == 0).sum()):
        assert exact_sums.round_sums(once)[0].as_py() == math.fsum(finite)
    assert added(once, np.arange(40), -1).to_pylist() == [b""] * 3
