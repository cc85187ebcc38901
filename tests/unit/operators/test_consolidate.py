"""Few rows are added up in Python, and narrow numbers in numpy, to exactly what DuckDB makes of them."""

from __future__ import annotations

import random

import numpy as np
import pyarrow as pa
import pytest

from viewkeeper.operators import exact_sums
from viewkeeper.operators.delta_rows import run_edge

_WIDE = pa.decimal128(38, 0)


def _tables(seed: int, columns: dict[str, pa.DataType]) -> list[pa.Table]:
    """Two small tables whose keys repeat and whose sums now and then cancel."""
    source = random.Random(seed)

    def table(rows: int) -> pa.Table:
        keys = [source.choice([b"", b"a", b"ab", b"\xff"]) for _ in range(rows)]
        numbers = {name: [source.choice([-(10**15), -1, 1, 2]) for _ in range(rows)] for name in columns}
        arrays = {name: pa.array(numbers[name], kind) for name, kind in columns.items()}
        return pa.table(
            {"key": pa.array(keys, pa.binary()), "hash": pa.array([len(k) for k in keys], pa.uint32())} | arrays
        )

    return [table(source.randrange(0, 9)) for _ in range(2)]


@pytest.fixture
def by_duckdb(monkeypatch: pytest.MonkeyPatch):
    def run(function, *arguments):
        with monkeypatch.context() as patch:
            patch.setattr(exact_sums, "FEW_ROWS", -1)
            patch.setattr(exact_sums, "_in_numpy", lambda *_, **__: None)
            return function(*arguments)

    return run


@pytest.fixture
def by_numpy(monkeypatch: pytest.MonkeyPatch):
    def run(function, *arguments):
        with monkeypatch.context() as patch:
            patch.setattr(exact_sums, "FEW_ROWS", -1)
            patch.delattr(exact_sums, "_in_duckdb")
            return function(*arguments)

    return run


@pytest.mark.parametrize("seed", range(20))
def test_entries_and_mantissas_of_few_rows_are_what_duckdb_adds_up(seed: int, by_duckdb, by_numpy) -> None:
    entries = _tables(seed, {"size": pa.int64(), "n": pa.int64()})
    entries = [table.set_column(2, "size", table["hash"].cast(pa.int32())) for table in entries]
    mantissas = [
        table.set_column(2, "unit", pa.array(np.arange(len(table)) % 3, pa.int16()))
        for table in _tables(seed, {"unit": pa.int64(), "m": _WIDE})
    ]
    for tables, by, sums in ((entries, ["key"], ["n"]), (mantissas, ["key", "unit"], ["m"])):
        given = (tables, by, sums)
        assert exact_sums.consolidate(*given) == by_duckdb(exact_sums.consolidate, *given)
        if tables is entries and any(map(len, tables)):
            assert exact_sums.consolidate(*given) == by_numpy(exact_sums.consolidate, *given)


@pytest.mark.parametrize("seed", range(20))
def test_signed_states_of_few_rows_are_what_duckdb_adds_up(seed: int, by_duckdb, by_numpy) -> None:
    states = [
        table.set_column(2, "sign", pa.array(np.arange(len(table)) % 2 * 2 - 1, pa.int8()))
        for table in _tables(seed, {"sign": pa.int64(), "s0": pa.int64(), "s1": _WIDE})
    ]

    def added() -> pa.Table:
        return exact_sums.consolidate(states, ["key"], ["s0", "s1"], factor="sign", keep_zeros=True)

    assert added() == by_duckdb(added)
    if any(map(len, states)):
        assert added() == by_numpy(added)
    assert set(added()["sign"].to_pylist()) <= {1}


@pytest.mark.parametrize("value", [2**62, -(2**63), 2**80])
def test_sums_that_need_more_than_64_bits_are_left_to_duckdb(value: int, by_numpy) -> None:
    columns = {"key": [b"a", b"a"], "sign": pa.array([1, 1], pa.int8()), "s0": pa.array([value, value], _WIDE)}
    tables = [pa.table(columns)] * 50

    def added() -> pa.Table:
        return exact_sums.consolidate(tables, ["key"], ["s0"], factor="sign", keep_zeros=True)

    assert added()["s0"].to_pylist() == [100 * value]
    with pytest.raises(NameError, match="_in_duckdb"):
        by_numpy(added)


@pytest.mark.parametrize("seed", range(20))
def test_an_exact_sum_of_few_doubles_has_the_same_bytes(seed: int, by_duckdb) -> None:
    source = random.Random(seed)
    values = np.array([source.choice([0.1, -0.1, 1e300, -1e300, 5e-324, float("inf")]) for _ in range(6)])
    ((units, split),) = exact_sums.split(values)
    groups = np.array([source.randrange(3) for _ in values])
    kept = pa.array([None, b"", None], pa.binary())
    added = [kept, groups, units, pa.array(split).cast(_WIDE)]

    once = exact_sums.add_sums(*added)
    assert once.to_pylist() == by_duckdb(exact_sums.add_sums, *added).to_pylist()
    taken_away = [once, groups, units, pa.array(-split).cast(_WIDE)]
    assert (
        exact_sums.add_sums(*taken_away).to_pylist()
        == by_duckdb(exact_sums.add_sums, *taken_away).to_pylist()
        == [b""] * 3
    )


def test_an_edge_that_only_names_columns_gives_what_duckdb_would() -> None:
    delta = pa.table({"ord": [2, 1], "sign": [1, -1], "c0": ["x", None], "c12": [1.5, 2.5]})

    plain = run_edge("SELECT ord, sign, c12 AS k0, c0 AS v0 FROM delta", delta)

    assert plain == run_edge("SELECT ord, sign, c12 AS k0, c0 AS v0 FROM delta WHERE TRUE", delta)
    assert plain.column_names == ["ord", "sign", "k0", "v0"]
