"""The SQL never fails: exactly the rows whose expression fails are left out, however DuckDB optimizes it."""

from __future__ import annotations

from decimal import ROUND_HALF_UP, Context, Decimal

import duckdb
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from viewkeeper.algebra.decimals import divide, scaled, unscaled
from viewkeeper.algebra.expressions import Literal
from viewkeeper.algebra.relations import Project, Scan, Select
from viewkeeper.codegen import expression_sql
from viewkeeper.codegen.expression_sql import emit, guarded
from viewkeeper.errors import UnsupportedSql
from viewkeeper.model.schema import Column, TableId, TableSchema
from viewkeeper.model.types import BIGINT, BOOLEAN, INT, STRING, SqlType, decimal
from viewkeeper.sql.bind_query import bind_query

COLUMNS = (
    Column("k", INT, nullable=False),
    Column("a", INT),
    Column("b", INT),
    Column("l", BIGINT),
    Column("s", STRING),
)
TABLE = TableSchema(TableId(1), "t", COLUMNS, ("k",))
MAX, MIN = 2**31 - 1, -(2**31)
ROWS = [
    (1, 1, 0, 5, "x"),
    (2, MAX, 1, 2**63 - 1, "y"),
    (3, None, 0, None, None),
    (4, MIN, -1, -(2**63), ""),
    (5, 6, 3, 2, "z"),
]
CONNECTION = duckdb.connect()


def run(query: str) -> dict[int, tuple[object, ...]]:
    """Key → the other columns, of the rows of ROWS that pass and on which nothing fails; the key is the first column."""
    tree = bind_query(query, lambda _: Scan(TABLE))
    assert isinstance(tree, Project)
    predicate = tree.input.predicate if isinstance(tree.input, Select) else Literal(True, BOOLEAN)
    images = {
        f"c{place}": pa.array([row[place] for row in ROWS], column.type.arrow) for place, column in enumerate(COLUMNS)
    }
    CONNECTION.register("images", pa.table({"ord": pa.array(range(len(ROWS))), **images}))
    passing = f"(SELECT *, {guarded([emit(predicate)], 'ord')} AS w FROM images) WHERE w.v0"
    fields = guarded([emit(output.expression) for output in tree.outputs], "ord")
    rows = CONNECTION.sql(f"SELECT {fields} AS t FROM {passing}").fetchall()
    found = [tuple(struct.values()) for (struct,) in rows if struct is not None]
    return {row[0]: row[1:] for row in found}


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("a + 1", {1: 2, 3: None, 4: MIN + 1, 5: 7}),
        ("a / b", {2: float(MAX), 3: None, 4: 2147483648.0, 5: 2.0}),
        ("a % b", {2: 0, 3: None, 4: 0, 5: 0}),
        ("a div b", {2: MAX, 3: None, 4: 2**31, 5: 2}),
        ("l div b", {2: 2**63 - 1, 3: None, 5: 0}),
        ("case when b = 0 then -1 else a div b end", {1: -1, 2: MAX, 3: -1, 4: 2**31, 5: 2}),
        ("b = 0 or a div b > 2", {1: True, 2: True, 3: True, 4: True, 5: False}),
        ("b <> 0 and a div b > 2", {1: False, 2: True, 3: False, 4: True, 5: False}),
        ("coalesce(a, a + 1)", {1: 1, 2: MAX, 3: None, 4: MIN, 5: 6}),
        ("a + 1 > 0", {1: True, 3: None, 4: False, 5: True}),
        ("a * 2 <=> 12", {1: False, 3: False, 5: True}),
        ("(a + b) * (a + b)", {1: 1, 3: None, 5: 81}),
        ("cast(l as int)", {1: 5, 3: None, 5: 2}),
        ("a + (b + 2147483647)", {3: None, 4: -2}),
        ("-(-2147483648)", {}),
        ("-a", {1: -1, 2: -MAX, 3: None, 5: -6}),
    ],
)
def test_a_row_is_left_out_exactly_when_its_expression_fails(expression: str, expected: dict[int, object]) -> None:
    found = {key: row[0] for key, row in run(f"SELECT k, {expression} AS x FROM t").items()}
    assert found == expected


@pytest.mark.parametrize(
    "expression",
    [
        "date_add(DATE '9999-12-31', 1)",
        "DATE '0001-01-01' - 1",
        "make_date(2023, 2, 29)",
        "TIMESTAMP '9999-12-31 23:59:59' + INTERVAL 1 SECOND",
        "pmod(1, 0)",
        "floor(1e300)",
        "cast(concat('x', 'y') as int)",
        "cast(concat('x', 'y') as boolean)",
        "to_date(concat('x', 'y'))",
        "cast(1e300 as bigint)",
    ],
)
def test_a_constant_that_fails_leaves_out_all_rows(expression: str) -> None:
    assert run(f"SELECT k, {expression} AS x FROM t") == {}
    assert run(f"SELECT k, CASE WHEN k > 0 THEN 1 ELSE length(cast({expression} AS string)) END AS x FROM t") == {
        key: (1,) for key in range(1, 6)
    }


def test_what_two_columns_compute_alike_does_not_fail_outside_of_try() -> None:
    assert run("SELECT k, a + 1 AS x, (a + 1) * 1 AS y, a + 1 + b AS z FROM t WHERE a + 1 > 0 OR b < 0") == {
        1: (2, 2, 2),
        4: (MIN + 1, MIN + 1, MIN),
        5: (7, 7, 10),
    }


def test_a_row_that_does_not_pass_is_not_there_whatever_its_columns_do() -> None:
    assert run("SELECT k, 1 div b AS x FROM t WHERE b <> 0") == {2: (1,), 4: (-1,), 5: (0,)}


def test_a_literal_is_data_and_never_sql() -> None:
    assert run("SELECT k, '''); DROP TABLE t; --' AS x, \"a'b\" AS y FROM t WHERE s = 'x'") == {
        1: ("'); DROP TABLE t; --", "a'b")
    }


def _decimals(type_: SqlType) -> st.SearchStrategy[Decimal]:
    most = 10**type_.precision - 1
    return st.integers(-most, most).map(lambda n: Decimal(n).scaleb(-type_.scale, Context(prec=60)))


TYPES = [
    decimal(10, 2),
    decimal(28, 2),
    decimal(38, 0),
    decimal(38, 19),
    decimal(38, 38),
    decimal(5, 5),
    decimal(19, 19),
]


@given(st.data())
def test_unscaled_and_back_is_the_same_number(data: st.DataObject) -> None:
    type_ = data.draw(st.sampled_from(TYPES))
    value = data.draw(_decimals(type_))
    sql = f"CAST('{value:f}' AS {type_.duckdb})"
    found = CONNECTION.sql(f"SELECT {unscaled(sql, type_)}, {scaled(unscaled(sql, type_), type_)}").fetchall()
    assert found == [(int(value.scaleb(type_.scale, Context(prec=60))), value)]


@given(st.data())
def test_a_quotient_is_rounded_half_up_at_39_digits_and_then_at_its_scale(data: st.DataObject) -> None:
    left, right, result = decimal(18, 4), decimal(12, 2), decimal(33, 17)
    dividend, divisor = data.draw(_decimals(left)), data.draw(_decimals(right).filter(bool))
    sides = [f"CAST('{value:f}' AS {type_.duckdb})" for value, type_ in ((dividend, left), (divisor, right))]
    sql = divide(sides[0], left, sides[1], right, result, divisor_max=10**12)
    exact = Context(prec=100).divide(dividend, divisor)
    for scale in (39, 17):
        exact = exact.quantize(Decimal(1).scaleb(-scale), ROUND_HALF_UP, Context(prec=100))
    assert CONNECTION.sql(f"SELECT {sql}").fetchall() == [(exact,)]


def test_an_expression_of_the_largest_size_is_run_and_a_larger_one_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    query = "SELECT k, a + 1 AS x FROM t"
    (_, output) = bind_query(query, lambda _: Scan(TABLE)).outputs
    size = len(emit(output.expression))
    expected = run(query)
    monkeypatch.setattr(expression_sql, "LENGTH_MAX", size)
    assert run(query) == expected
    monkeypatch.setattr(expression_sql, "LENGTH_MAX", size - 1)
    with pytest.raises(UnsupportedSql, match="the expression is too large; split it"):
        run(query)
