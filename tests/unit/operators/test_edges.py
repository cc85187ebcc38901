"""An edge that only moves columns is done by Arrow, to what DuckDB returns for its SQL."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from viewkeeper.model.rowbatches import decode_rows
from viewkeeper.model.schema import Column
from viewkeeper.model.types import INT
from viewkeeper.operators import delta_rows
from viewkeeper.operators.duck import run_sql
from viewkeeper.operators.operator import events

DELTA = pa.table(
    {
        "ord": pa.array([5, 6, 1, 2, 9]),
        "sign": pa.array([1, 1, 1, -1, -1], pa.int32()),
        "c0": ["a", None, "c", None, ""],
        "c1": pa.array([1, 2, None, None, 5], pa.int32()),
        "c12": [b"x", b"", b"\x00", b"y", b"z"],
    }
)
NAMES = "SELECT ord, sign, c1 AS j0, c0 AS k0, c12 AS v0 FROM delta"
MOVES = [
    "SELECT ord, sign FROM delta",
    NAMES,
    f"SELECT * FROM ({NAMES}) WHERE j0 IS NOT NULL",
    f"SELECT * FROM ({NAMES}) WHERE j0 IS NOT NULL AND k0 IS NOT NULL",
    f"SELECT * FROM ({NAMES}) WHERE v0 IS NOT NULL",
    f"SELECT ord, sign, v0 AS k0, j0 AS c7, v0 AS c8 FROM ({NAMES})",
    f"SELECT ord, sign, k0 AS v1 FROM (SELECT * FROM ({NAMES}) WHERE j0 IS NOT NULL)",
    "SELECT * FROM (SELECT ord, sign, h0 AS j0 FROM (SELECT ord, sign, c1 AS h0, c0 AS c0 FROM delta)) "
    "WHERE j0 IS NOT NULL",
]
OTHERS = [
    "SELECT ord, sign, 1 AS k0 FROM delta",
    "SELECT ord, sign, NULL AS k0 FROM delta",
    "SELECT ord, sign, c1 AS k0, (c1 + 1) AS v0 FROM delta",
    "SELECT ord, sign, c1 AS k0 FROM delta WHERE c1 > 1",
    "SELECT ord, sign, h0 AS k0 FROM (SELECT ord, sign, (c1 + 1) AS h0 FROM delta)",
    f"SELECT * FROM ({NAMES}) WHERE j0 IS NOT NULL OR k0 IS NOT NULL",
    f"SELECT * FROM ({NAMES}) WHERE j0 IS NOT NULL AND k0 > 'a'",
]


@pytest.mark.parametrize("sql", MOVES + OTHERS)
def test_the_rows_are_those_of_duckdb(sql: str, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    monkeypatch.setattr(delta_rows, "run_sql", lambda sql, **tables: asked.append(sql) or run_sql(sql, **tables))
    expected = run_sql(sql, delta=DELTA)
    found = delta_rows.run_edge(sql, DELTA)

    assert found.schema == expected.schema and found.to_pylist() == expected.to_pylist()
    assert asked == ([] if sql in MOVES else [sql])


@pytest.mark.parametrize("signs", [[1, 1, -1], [-1, 1, -1, 1], [-1, -1], [1], [], [-1, 1]])
def test_inserted_and_deleted_rows_are_told_by_their_sign_in_any_order(signs: list[int]) -> None:
    rows = pa.table({"sign": pa.array(signs, pa.int32()), "x": list(range(len(signs)))})

    inserted, deleted = delta_rows.by_sign(rows)

    assert inserted["x"].to_pylist() == [place for place, sign in enumerate(signs) if sign > 0]
    assert deleted["x"].to_pylist() == [place for place, sign in enumerate(signs) if sign < 0]


def test_an_event_has_the_row_of_its_key_in_whatever_order_rows_pass() -> None:
    signs, column = [-1, 1, -1, 1, 1], Column("v", INT)
    passed = pa.table(
        {"ord": list(range(5)), "sign": pa.array(signs, pa.int32()), "v0": pa.array(range(5), pa.int32())}
    )
    keys = pa.array([b"%d" % place for place in range(5)])

    found = events(keys, np.zeros(5, np.uint32), passed, (column,))

    (values,) = decode_rows((column,), found["row"].combine_chunks())
    assert values.to_pylist() == [None, 1, None, 3, 4]
    assert found["key"].to_pylist() == keys.to_pylist()
