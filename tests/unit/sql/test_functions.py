"""Functions are found by Spark's names, and a call has one canonical text whatever its spelling."""

from __future__ import annotations

import re

import duckdb
import pytest

import viewkeeper as vk
from viewkeeper.algebra.expressions import Expression, Literal
from viewkeeper.algebra.relations import Scan, expressions_of
from viewkeeper.codegen.expression_sql import emit
from viewkeeper.errors import SqlError, UnsupportedSql
from viewkeeper.model.schema import Column, TableId, TableSchema
from viewkeeper.model.types import DATE, INT, STRING, TIMESTAMP, SqlType, decimal
from viewkeeper.sql.bind_query import bind_query
from viewkeeper.sql.function_rows import INT_MAX, Function, Together, integer, number, text
from viewkeeper.sql.function_table import NAMED, SCALARS, SECTIONS

TABLE = TableSchema(
    TableId(1),
    "t",
    (
        Column("k", INT, nullable=False),
        Column("s", STRING),
        Column("day", DATE),
        Column("at", TIMESTAMP),
        Column("month", STRING),
    ),
    ("k",),
)


def bind(text: str) -> Expression:
    (expression,) = expressions_of(bind_query(f"SELECT {text} AS x FROM t", lambda _: Scan(TABLE)))
    return expression


@pytest.mark.parametrize(
    ("written", "canonical"),
    [
        ("UCASE( S )", "upper(s)"),
        ("Len(s)", "length(s)"),
        ("ceiling(k)", "ceil(k)"),
        ("substr(s, 2)", "substring(s, 2)"),
        ("BTRIM(s, 'x')", "trim(s, 'x')"),
        ("ltrim('x', s)", "ltrim(s, 'x')"),
        ("position('a' in s)", "locate('a', s)"),
        ("extract(DOY from day)", "dayofyear(day)"),
        ("date_part('Week', day)", "weekofyear(day)"),
        ("date_trunc('MM', at)", "date_trunc('month', at)"),
        ("day + interval 2 weeks", "date_add(day, 14)"),
        ("day - interval '1' year", "add_months(day, -12)"),
        ("at - interval 1 minute", "timestamp_add_micros(at, -60000000l)"),
        ("day - 1", "date_sub(day, 1)"),
        ("k & 1 & 3", "(k & 1) & 3"),
        ("s like 'a!%' escape '!'", "s like 'a\\\\%'"),
        ("s like 'a!!' escape '!'", "s like 'a!'"),
        ("k << 2", "shiftleft(k, 2)"),
        ("to_date(at)", "cast(at as date)"),
    ],
)
def test_a_call_has_one_text_whatever_its_spelling(written: str, canonical: str) -> None:
    assert bind(written).text == canonical


def test_an_interval_gives_the_type_of_its_smallest_unit() -> None:
    kinds: dict[str, SqlType] = {unit: bind(f"day + interval 1 {unit}").type for unit in ("year", "day", "hour")}
    assert kinds == {"year": DATE, "day": DATE, "hour": TIMESTAMP}


def test_a_column_called_like_a_unit_is_no_unit() -> None:
    assert bind("date_trunc('month', at)").type == TIMESTAMP
    with pytest.raises(UnsupportedSql, match="literal"):
        bind("date_trunc(month, at)")


@pytest.mark.parametrize("mixed", ["k | 1 & 2", "k ^ 1 | 2", "k & 1 << 2", "k << 1 | 2"])
def test_bit_operators_of_different_precedence_need_parentheses(mixed: str) -> None:
    with pytest.raises(UnsupportedSql, match="parentheses"):
        bind(mixed)


@pytest.mark.parametrize("call", ["left(s)", "upper()", "upper(s, s)", "nvl2(s, s)", "make_date(1, 2)", "greatest(k)"])
def test_a_wrong_number_of_arguments_is_said(call: str) -> None:
    with pytest.raises(SqlError, match="argument"):
        bind(call)


def test_a_nest_of_functions_does_not_blow_up_its_sql() -> None:
    nested = "s"
    for _ in range(6):
        nested = f"right(lpad({nested}, 9, s), k)"
    assert len(emit(bind(nested))) < 20_000


def test_what_may_fail_is_known() -> None:
    failing = {call: bind(call).fallible for call in ("date_add(day, 1)", "year(day)", "pmod(k, 7)", "pmod(7, k)")}
    assert failing == {"date_add(day, 1)": True, "year(day)": False, "pmod(k, 7)": False, "pmod(7, k)": True}


def test_a_function_is_added_by_one_row(monkeypatch: pytest.MonkeyPatch) -> None:
    row = Function(
        "twice", "s [, n]", (text, integer), STRING, "repeat({0}, {1})", also="doubled", default=Literal(2, INT)
    )
    monkeypatch.setitem(SCALARS, "twice", row)
    for name in row.names:
        monkeypatch.setitem(NAMED, name, row)

    assert bind("DOUBLED(s)").text == "twice(s, 2)"
    assert duckdb.sql(f"SELECT {emit(bind('twice(s)'))} FROM (VALUES ('ab')) AS t(c1)").fetchall() == [("abab",)]
    with pytest.raises(SqlError, match="twice takes 1 to 2 arguments, not 3"):
        bind("twice(s, 1, 2)")
    with pytest.raises(SqlError, match="twice needs STRING, not INT"):
        bind("twice(k)")


def test_no_name_stands_in_two_rows() -> None:
    rows = [row for section in SECTIONS.values() for row in section]
    called = [name for row in rows for name in row.names]
    bound = [row.name for row in rows if isinstance(row, Function)]

    assert sorted(called) == sorted(NAMED)
    assert sorted(bound) == sorted(SCALARS)


@pytest.mark.parametrize("row", SCALARS.values(), ids=lambda row: row.name)
def test_a_row_has_a_kind_for_each_argument_that_it_lists(row: Function) -> None:
    listed = re.findall(r"\w+|…", row.arguments)

    assert isinstance(row.takes, Together) or "…" in listed or len(row.takes) == len(listed)


def test_copies_of_copies_are_counted_and_refused_before_they_fill_the_memory() -> None:
    with vk.connect("memory:") as db:
        db.execute("CREATE TABLE t (k INT PRIMARY KEY, s STRING)")
        db.table("t").put(1, {"s": "ab"})
        assert db.execute("SELECT length(repeat(upper(repeat(s, 100)), 100)) AS n FROM t").rows == ((20_000,),)
        with pytest.raises(UnsupportedSql, match="repeat within repeat makes 100,000,000 copies"):
            db.execute("SELECT repeat(concat(s, repeat(s, 10000)), 10000) AS x FROM t")


@pytest.mark.parametrize("written", ["-d", "abs(d)"])
def test_a_sign_changes_as_many_digits_as_spark_computes_exactly(written: str) -> None:
    def typed(digits: int) -> SqlType:
        columns = (Column("k", INT, nullable=False), Column("d", decimal(digits, 2)))
        table = TableSchema(TableId(1), "t", columns, ("k",))
        (bound,) = expressions_of(bind_query(f"SELECT {written} AS x FROM t", lambda _: Scan(table)))
        return bound.type

    assert typed(34) == decimal(34, 2)
    with pytest.raises(UnsupportedSql, match=r"of DECIMAL\(35,2\) is not supported; CAST it to DECIMAL\(34,s\)"):
        typed(35)


@pytest.mark.parametrize(
    ("least", "most", "shown"),
    [
        (0, INT_MAX - 1, "a literal from 0 up to 2147483646"),
        (0, INT_MAX, "a literal from 0"),
        (-INT_MAX, 7, "a literal up to 7"),
        (-INT_MAX, INT_MAX, "a literal"),
    ],
)
def test_of_a_literal_the_bounds_that_an_int_does_not_have_itself_are_shown(least: int, most: int, shown: str) -> None:
    kind = number(least, most)

    assert kind.shown == shown
    for value in (least, most):
        assert kind.take(Literal(value, INT), "f") == Literal(value, INT)
    for value in (least - 1, most + 1):
        with pytest.raises(UnsupportedSql, match=f"f takes an integer literal from {least} to {most} here"):
            kind.take(Literal(value, INT), "f")
