"""An edge that only moves columns is done by Arrow, to what DuckDB returns for its SQL."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from tests.support.plans import nodes_of, with_view
from viewkeeper.catalog.catalog import Catalog
from viewkeeper.model.rowbatches import decode_rows
from viewkeeper.model.schema import Column, TableId, TableSchema
from viewkeeper.model.types import DOUBLE, INT, STRING
from viewkeeper.operators import delta_rows
from viewkeeper.operators.operator import events
from viewkeeper.plan.nodes import Edge, Moves

DELTA = pa.table(
    {
        "ord": pa.array([5, 6, 1, 2, 9]),
        "sign": pa.array([1, 1, 1, -1, -1], pa.int32()),
        "c0": ["a", None, "c", None, ""],
        "c1": pa.array([1, 2, None, None, 5], pa.int32()),
        "c12": [b"x", b"", b"\x00", b"y", b"z"],
    }
)
MOVES = {
    "SELECT ord, sign FROM delta": Moves(()),
    "SELECT ord, sign, c1 AS j0, c0 AS k0, c12 AS v0 FROM delta": Moves((("j0", "c1"), ("k0", "c0"), ("v0", "c12"))),
    "SELECT ord, sign, c12 AS k0, c12 AS v0 FROM delta": Moves((("k0", "c12"), ("v0", "c12"))),
    "SELECT ord, sign, c1 AS j0 FROM delta WHERE c1 IS NOT NULL": Moves((("j0", "c1"),), ("c1",)),
    "SELECT ord, sign, c1 AS j0, c0 AS j1 FROM delta WHERE c1 IS NOT NULL AND c0 IS NOT NULL": Moves(
        (("j0", "c1"), ("j1", "c0")), ("c1", "c0")
    ),
    "SELECT ord, sign, c12 AS j0 FROM delta WHERE c12 IS NOT NULL": Moves((("j0", "c12"),), ("c12",)),
}


def edge(rows: str | None, moves: Moves | None) -> Edge:
    return Edge(TableId(1), (0, 1, 12), (), rows, moves, None)


@pytest.mark.parametrize("sql", MOVES)
def test_the_rows_are_those_of_duckdb(sql: str) -> None:
    expected = delta_rows.run_edge(edge(sql, None), DELTA)
    found = delta_rows.run_edge(edge(None, MOVES[sql]), DELTA)

    assert found.schema == expected.schema and found.to_pylist() == expected.to_pylist()


TABLE = TableSchema(TableId(1), "t", (Column("k", INT, False), Column("g", STRING), Column("f", DOUBLE)), ("k",))
TEXTS = {
    "SELECT g, k FROM t": Moves((("k0", "c0"), ("v0", "c1"))),
    "SELECT a FROM (SELECT g AS a, k AS b FROM t) q": Moves((("k0", "c0"), ("v0", "c1"))),
    "SELECT g FROM t WHERE k > 1": None,
    "SELECT k, f + 1 AS x FROM t": None,
    "SELECT p.g FROM t p JOIN t q ON p.g = q.g": Moves((("j0", "c1"), ("k0", "c0")), ("c1",)),
    "SELECT p.g FROM t p JOIN t q ON p.f = q.f": None,  # -0.0 joins 0.0
    "SELECT g, f FROM t ORDER BY g LIMIT 3": Moves((("o0", "c1"), ("k0", "c0"), ("v0", "c1"), ("v1", "c2"))),
}


@pytest.mark.parametrize("text", TEXTS)
def test_the_planner_knows_which_edges_only_move_columns(text: str) -> None:
    catalog = with_view(Catalog().with_table(TABLE), "v", text)
    (one, *_) = nodes_of(catalog, "v")[0].edges

    assert one.moves == TEXTS[text]
    assert (one.rows is None) == (one.moves is not None)


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
