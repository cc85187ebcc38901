"""SELECT: one dialect, that of views; only our own SQL reaches DuckDB; what fails says so."""

from __future__ import annotations

import datetime as dt
import os
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path

import pytest

import viewkeeper as vk
from tests.support.running import keep_up
from viewkeeper.client import select as select_module
from viewkeeper.errors import SqlError

ROWS = [
    (1, "UA", 3, "1.25", 0.1, dt.datetime(2024, 1, 1, 8, tzinfo=dt.UTC), dt.date(2024, 1, 1)),
    (2, "UA", 0, "2.50", 0.2, dt.datetime(2024, 1, 1, 10, tzinfo=dt.UTC), None),
    (3, "carrier", None, None, 1e300, None, dt.date(2024, 2, 29)),
    (4, None, -7, "-0.05", -1e300, None, None),
]


@pytest.fixture(scope="module")
def db(tmp_path_factory: pytest.TempPathFactory) -> vk.Database:
    db = vk.connect(f"embedded:{tmp_path_factory.mktemp('select') / 's'}?sync=off")
    db.execute(
        "CREATE TABLE t (k INT PRIMARY KEY, carrier STRING, n INT, d DECIMAL(10,2), f DOUBLE, at TIMESTAMP, day DATE)"
    )
    db.execute("CREATE MATERIALIZED VIEW sums AS SELECT carrier, SUM(n) AS s FROM t GROUP BY carrier")
    db.execute("CREATE INDEX by_n ON t (n) INCLUDE (carrier)")
    names = [column.name for column in db.table("t").schema.columns]
    rows = [dict(zip(names, row, strict=True)) for row in ROWS]
    db.table("t").put_many([row | {"d": None if row["d"] is None else Decimal(str(row["d"]))} for row in rows])
    keep_up(db)
    return db


def test_double_quotes_are_a_string_and_backticks_a_name(db: vk.Database) -> None:
    assert db.execute("""SELECT k FROM t WHERE "carrier" = 'UA'""").rows == ()
    assert db.execute("""SELECT k FROM t WHERE carrier = "carrier" """).rows == ((3,),)
    assert db.execute("SELECT k FROM t WHERE `carrier` = 'UA' ORDER BY k").rows == ((1,), (2,))


def test_a_string_cannot_end_itself_and_begin_a_statement(db: vk.Database) -> None:
    text = r"SELECT '\'; CREATE TABLE stolen AS SELECT 1 --' AS s, 'it''s' AS q, '\\' AS b"

    assert db.execute(text).rows == (("'; CREATE TABLE stolen AS SELECT 1 --", "it's", "\\"),)


def test_the_offset_of_a_timestamp_counts(db: vk.Database) -> None:
    same = "SELECT k FROM t WHERE at = TIMESTAMP '2024-01-01 10:00:00+02:00'"

    assert db.execute(same).rows == ((1,),)
    assert db.execute("SELECT k FROM t WHERE at = '2024-01-01T10:00:00+02:00'").rows == ((1,),)


def test_functions_and_division_are_those_of_views(db: vk.Database) -> None:
    query = "SELECT 7 / 2 AS q, 7 div 2 AS w, -7 % 3 AS r, DAYOFWEEK(DATE '2024-01-07') AS sunday, 'a' || 'b' AS ab"

    assert db.execute(query).to_dicts() == [{"q": 3.5, "w": 2 + 1, "r": -1, "sunday": 1, "ab": "ab"}]


def test_values_are_those_that_a_table_gives(db: vk.Database) -> None:
    (row,) = db.execute("SELECT *, X'00ff' AS raw, n > 0 AS up FROM t WHERE k = 1").rows
    expected = tuple(db.table("t").get(1).values())

    assert row == (*expected, b"\x00\xff", True)
    assert [type(value) for value in row[:-2]] == [type(value) for value in expected]
    assert row[5].tzinfo is dt.UTC


def test_a_select_may_be_in_any_order_and_of_any_length(db: vk.Database) -> None:
    assert db.execute("SELECT k FROM t ORDER BY k DESC").rows == ((4,), (3,), (2,), (1,))
    assert db.execute("SELECT k FROM t ORDER BY carrier DESC, k DESC").rows == ((3,), (2,), (1,), (4,))
    assert db.execute("SELECT k FROM t ORDER BY n NULLS LAST").rows == ((4,), (2,), (1,), (3,))
    assert len(db.execute("SELECT k FROM t LIMIT 3")) == 3
    assert len(db.execute("SELECT k FROM t LIMIT 0")) == 0
    assert len(db.execute("SELECT k FROM t LIMIT ALL")) == 4
    assert db.execute("SELECT k FROM t ORDER BY k LIMIT 2 OFFSET 1").rows == ((2,), (3,))
    assert db.execute("SELECT k FROM t ORDER BY k OFFSET 3").rows == ((4,),)
    assert db.execute("SELECT k FROM t WHERE k < 3 UNION ALL SELECT n FROM t ORDER BY 1 LIMIT 2").rows == (
        (None,),
        (-7,),
    )
    assert db.execute("SELECT carrier, COUNT(*) AS n FROM t GROUP BY carrier ORDER BY n DESC, 1").rows[0] == ("UA", 2)


def test_a_select_may_pair_every_row_with_every_row(db: vk.Database) -> None:
    assert db.execute("SELECT COUNT(*) FROM t a, t b").rows == ((16,),)
    assert db.execute("SELECT COUNT(*) FROM t a CROSS JOIN t b WHERE a.k < b.k").rows == ((6,),)
    assert db.execute("SELECT a.k, b.k FROM t a LEFT JOIN t b ON a.k > b.k + 2 ORDER BY 1, 2").rows == (
        (1, None),
        (2, None),
        (3, None),
        (4, 1),
    )


def test_a_select_may_read_no_table_and_name_a_column_twice(db: vk.Database) -> None:
    assert db.execute("SELECT 1 + 1").rows == ((2,),)
    assert db.execute("SELECT 1 AS one WHERE FALSE").rows == ()
    result = db.execute("SELECT k, k FROM t WHERE k = 1")
    assert (result.columns, result.rows) == (("k", "k"), ((1, 1),))


def test_tables_views_and_indexes_are_read_together(db: vk.Database) -> None:
    assert db.execute("SELECT t.k, s FROM t JOIN sums USING (carrier) ORDER BY k").rows == ((1, 3), (2, 3), (3, None))
    assert db.execute("SELECT k, carrier FROM by_n WHERE n IS NULL").rows == ((3, "carrier"),)
    with pytest.raises(vk.UnknownName, match="there is no table or view sum; did you mean sums"):
        db.execute("SELECT * FROM sum")
    with pytest.raises(vk.UnknownName, match="view sums has no column total; its columns are carrier, s"):
        db.execute("SELECT total FROM sums")


def test_sums_of_doubles_are_exact_whatever_the_order(db: vk.Database) -> None:
    assert db.execute("SELECT SUM(f), AVG(f) FROM t").rows == ((0.1 + 0.2, (0.1 + 0.2) / 4),)
    assert db.execute("SELECT carrier, SUM(f) FROM t WHERE k = 9 GROUP BY carrier").rows == ()
    assert db.execute("SELECT SUM(f), AVG(f) FROM t WHERE k = 9").rows == ((None, None),)


@pytest.mark.parametrize(
    ("query", "told"),
    [
        ("SELECT 10 div n FROM t", "^10 div n fails on a row: division by zero; leave such rows out with WHERE"),
        ("SELECT k FROM t WHERE 10 % n = 1", "10 % n.*division by zero"),
        ("SELECT CAST(carrier AS INT) FROM t", r"cast\(carrier as int\)"),
        ("SELECT n + 2147483647 FROM t", r"n \+ 2147483647.*[Oo]verflow"),
        ("SELECT carrier, SUM(10 div n) FROM t GROUP BY carrier", "10 div n"),
        ("SELECT SUM(k * 4000000000000000000) FROM t WHERE k < 3", r"sum\(k \* 4000000000000000000l\).*overflow"),
    ],
)
def test_a_row_that_fails_stops_the_select(db: vk.Database, query: str, told: str) -> None:
    with pytest.raises(vk.SqlError, match=told):
        db.execute(query)


@pytest.mark.parametrize(
    ("query", "fact"),
    [
        ("SELECT SUM(b), SUM(c) FROM big", "sum(b) or sum(c) fails on a group: "),
        (
            "SELECT k, SUM(b) FROM big GROUP BY k HAVING 1 div (COUNT(*) - 1) > 0",
            "fails on a group: division by zero",
        ),
        ("SELECT 10 div (COUNT(*) - 2) FROM big", "count(*) - 2 fails on a group: division by zero"),
        ("SELECT SUM(b + k) FROM big", "fails on a row or a group: "),
    ],
)
def test_a_group_that_fails_is_called_so(query: str, fact: str) -> None:
    with vk.connect("memory:") as db:
        db.execute("CREATE TABLE big (k INT PRIMARY KEY, b BIGINT, c BIGINT)")
        db.table("big").put_many([{"k": k, "b": 2**63 - 9, "c": 1} for k in (1, 2)])
        with pytest.raises(SqlError) as caught:
            db.execute(query)
    assert fact in caught.value.fact
    assert caught.value.hint == f"leave {'such rows' if ' row ' in fact else 'rows of such groups'} out with WHERE"


def test_a_row_that_does_not_pass_where_cannot_fail(db: vk.Database) -> None:
    assert db.execute("SELECT k, 10 div n FROM t WHERE n <> 0 ORDER BY k").rows == ((1, 3), (4, -1))
    nested = "SELECT k FROM (SELECT k, 10 div n AS q FROM (SELECT * FROM t WHERE n <> 0)) WHERE q > 1"
    assert db.execute(nested).rows == ((1,),)
    joined = "SELECT a.k FROM t a JOIN t b ON a.k = b.k WHERE a.n <> 0 AND 10 div b.n > 1"
    assert db.execute(joined).rows == ((1,),)
    assert db.execute("SELECT SUM(10 div n) FILTER (WHERE n > 0) FROM t").rows == ((3,),)


@pytest.mark.parametrize(
    "text", ["SELECT * FROM t ${c}", "SELECT k $c FROM t", "SELECT * FROM t @x", "SELECT * FROM {t}"]
)
def test_variables_are_refused_wherever_they_stand(db: vk.Database, text: str) -> None:
    with pytest.raises(vk.SqlError, match="variable"):
        db.execute(text)
    with pytest.raises(vk.SqlError, match="variable"):
        db.execute(f"CREATE MATERIALIZED VIEW v AS {text}")


@pytest.mark.parametrize(
    "text", ["SELECT k AS 'x' FROM t", 'SELECT * FROM t AS "x"', "SELECT * FROM 't'", "SELECT * FROM t 'x'"]
)
def test_a_string_is_no_name(db: vk.Database, text: str) -> None:
    with pytest.raises(vk.SqlError, match="backticks"):
        db.execute(text)


@pytest.mark.parametrize("name", ["VARCHAR", "CHAR", "TEXT", "BOOL", "BLOB", "FLOAT"])
def test_cast_and_create_table_know_the_same_types(db: vk.Database, name: str) -> None:
    for text in (
        f"SELECT CAST(carrier AS {name}) FROM t",
        f"CREATE MATERIALIZED VIEW v AS SELECT k, CAST(carrier AS {name}) AS c FROM t",
        f"CREATE TABLE u (k {name} PRIMARY KEY)",
    ):
        with pytest.raises(vk.UnsupportedSql, match=f"type {name} is not supported"):
            db.execute(text)
    assert db.execute("SELECT CAST('7' AS INTEGER), CAST(k AS LONG), CAST(k AS NUMERIC(5,1)) FROM t WHERE k = 1").rows


@pytest.mark.parametrize("name", ["VARCHAR(1)", "char(9)", "CHARACTER (1)"])
def test_a_length_of_characters_means_nothing_in_cast_and_is_refused_for_a_column(db: vk.Database, name: str) -> None:
    plain = db.execute("SELECT carrier, CAST(k AS STRING) FROM t")

    assert db.execute(f"SELECT CAST(carrier AS {name}), CAST(k AS {name}) FROM t").rows == plain.rows
    with pytest.raises(vk.UnsupportedSql, match="is not supported; write STRING, which has no length"):
        db.execute(f"CREATE TABLE u (k INT PRIMARY KEY, c {name})")


@pytest.fixture
def memory(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], None]:
    """Sets how many bytes a SELECT may take."""
    there = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return lambda size: monkeypatch.setattr(select_module, "_MEMORY_SHARE", size / there)


def test_a_join_holds_its_tables_in_memory_and_not_the_pairs(tmp_path: Path, memory: Callable[[int], None]) -> None:
    rows = 2_000
    with vk.connect(f"embedded:{tmp_path / 'pairs'}?sync=off") as db:
        db.execute("CREATE TABLE t (k INT PRIMARY KEY, g INT)")
        db.table("t").put_many([{"k": number, "g": 1} for number in range(rows)])
        count = "SELECT COUNT(*) AS n FROM t a JOIN t b ON a.g = b.g JOIN t c ON b.k = c.k"
        memory(32 << 20)
        assert db.execute(count).rows == ((rows**2,),)
        memory(64 << 10)
        with pytest.raises(SqlError, match="the SELECT needs more than 0 MiB of memory"):
            db.execute(count)


def test_a_result_that_does_not_fit_in_memory_is_refused_before_it_is_there(
    tmp_path: Path, memory: Callable[[int], None]
) -> None:
    with vk.connect(f"embedded:{tmp_path / 'pairs'}?sync=off") as db:
        db.execute("CREATE TABLE t (k INT PRIMARY KEY, g INT)")
        db.table("t").put_many([{"k": number, "g": 1} for number in range(2_000)])
        memory(6 << 20)
        with pytest.raises(SqlError, match="the SELECT needs more than 6 MiB of memory"):
            db.execute("SELECT a.k, b.k AS l, repeat('x', 20) AS m FROM t a, t b")


def test_a_row_that_fails_in_a_late_batch_is_told_like_any_other(tmp_path: Path) -> None:
    with vk.connect(f"embedded:{tmp_path / 'late'}?sync=off") as db:
        db.execute("CREATE TABLE t (k INT PRIMARY KEY)")
        db.table("t").put_many([{"k": number} for number in range(1_500)])
        with pytest.raises(SqlError, match="fails on a row: division by zero"):
            db.execute("SELECT 1 / (1499 * 1499 - a.k * b.k) AS x FROM t a, t b")
