"""Texts become statements; what is not understood is refused with a place and a way out."""

from __future__ import annotations

import datetime
import pickle
from decimal import Decimal

import pytest

import viewkeeper as vk
from viewkeeper.errors import DuplicateName, SqlError, UnknownName, UnsupportedSql
from viewkeeper.model.schema import Column
from viewkeeper.model.syntax import (
    AddColumns,
    CreateIndex,
    CreateTable,
    CreateView,
    DeleteRow,
    Describe,
    Drop,
    Explain,
    Insert,
    ShowTables,
    ShowViews,
    Update,
)
from viewkeeper.model.types import BIGINT, STRING, decimal
from viewkeeper.sql.statement_parser import parse_statements


def parse_one(text: str) -> object:
    statements = parse_statements(text)
    assert len(statements) == 1
    return statements[0]


def test_several_statements_with_comments_are_read_in_order() -> None:
    text = "-- first\nSHOW TABLES; /* second ; */ SHOW VIEWS;\n;; DESCRIBE orders -- end"
    assert parse_statements(text) == [ShowTables(), ShowViews(), Describe("orders")]


def test_an_empty_text_has_no_statements() -> None:
    assert parse_statements(" -- nothing\n ; ") == []


def test_a_table_keeps_spelling_types_and_key_order() -> None:
    text = """CREATE TABLE IF NOT EXISTS Orders (
        Id BIGINT, `Region` STRING NOT NULL, price DECIMAL(10, 2), PRIMARY KEY (region, ID))"""
    columns = (Column("Id", BIGINT, False), Column("Region", STRING, False), Column("price", decimal(10, 2)))
    assert parse_one(text) == CreateTable("Orders", columns, ("Region", "Id"), if_not_exists=True)


def test_a_column_may_be_the_primary_key_by_itself() -> None:
    statement = parse_one("create table t (k string primary key, v int)")
    assert isinstance(statement, CreateTable)
    assert statement.key == ("k",)
    assert [column.nullable for column in statement.columns] == [False, True]


def test_a_view_keeps_the_users_own_characters() -> None:
    query = "SELECT  region,\n  'it''s; -- no' AS `x` /* why */ FROM orders"
    text = f"SHOW TABLES;\nCREATE MATERIALIZED VIEW v AS {query} ; SHOW VIEWS"
    assert parse_statements(text)[1] == CreateView("v", query, if_not_exists=False)


def test_an_index_names_its_columns_and_what_it_covers() -> None:
    assert parse_one("CREATE INDEX i ON t (a, b) INCLUDE (c)") == CreateIndex("i", "t", ("a", "b"), ("c",), False)
    assert parse_one("CREATE INDEX IF NOT EXISTS i ON t (a)") == CreateIndex("i", "t", ("a",), (), True)


def test_drops() -> None:
    assert parse_one("DROP TABLE IF EXISTS t") == Drop("table", "t", if_exists=True)
    assert parse_one("DROP MATERIALIZED VIEW v") == Drop("view", "v", if_exists=False)
    assert parse_one("DROP INDEX i") == Drop("index", "i", if_exists=False)


def test_explain_takes_a_name_a_query_or_nothing() -> None:
    assert parse_one("EXPLAIN") == Explain(None, None)
    assert parse_one("EXPLAIN v") == Explain("v", None)
    assert parse_one("EXPLAIN SELECT a FROM t") == Explain(None, "SELECT a FROM t")
    assert parse_one("EXPLAIN CREATE MATERIALIZED VIEW v AS SELECT a FROM t") == Explain(None, "SELECT a FROM t")


def test_insert_reads_all_literals() -> None:
    text = """INSERT INTO t (a, b, c, d, e, f, g, h, i) VALUES
        (1, -2.50, 'it''s', NULL, TRUE, DATE '2024-02-29', TIMESTAMP '2024-01-01 10:00:00.5', X'00fF', -1e3),
        (3000000000, 1.5BD, "x\\n", FALSE, 7L, NULL, TIMESTAMP '2024-01-01 10:00:00+02:00', X'', 2D)"""
    moment = datetime.datetime(2024, 1, 1, 10, 0, 0, 500000, datetime.UTC)
    early = datetime.datetime(2024, 1, 1, 8, tzinfo=datetime.UTC)
    assert parse_one(text) == Insert(
        "t",
        ("a", "b", "c", "d", "e", "f", "g", "h", "i"),
        (
            (1, Decimal("-2.50"), "it's", None, True, datetime.date(2024, 2, 29), moment, b"\x00\xff", -1000.0),
            (3000000000, Decimal("1.5"), "x\n", False, 7, None, early, b"", 2.0),
        ),
    )


@pytest.mark.parametrize("text", ["ADD COLUMNS (a BIGINT, `B` STRING)", "add column a bigint, B string NULL"])
def test_columns_are_added_nullable_in_both_of_sparks_spellings(text: str) -> None:
    assert parse_one(f"ALTER TABLE t {text}") == AddColumns("t", (Column("a", BIGINT), Column("B", STRING)))


def test_update_and_delete_are_by_key() -> None:
    assert parse_one("UPDATE t SET a = 1, b = NULL WHERE k = 'x' AND (j = -2)") == Update(
        "t", (("a", 1), ("b", None)), (("k", "x"), ("j", -2))
    )
    assert parse_one("DELETE FROM t WHERE k = 5") == DeleteRow("t", (("k", 5),))


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("CREATE TABLE t (a INT)", SqlError),
        ("CREATE TABLE t (a INT PRIMARY KEY, A STRING)", DuplicateName),
        ("CREATE TABLE t (a INT PRIMARY KEY, PRIMARY KEY (a))", SqlError),
        ("CREATE TABLE t (a INT, PRIMARY KEY (b))", UnknownName),
        ("CREATE TABLE t (a FLOAT PRIMARY KEY)", UnsupportedSql),
        ("CREATE TABLE t (a INT128 PRIMARY KEY)", UnsupportedSql),
        ("CREATE TABLE t (a DECIMAL(39,2) PRIMARY KEY)", UnsupportedSql),
        ("CREATE TABLE t (a ARRAY<INT> PRIMARY KEY)", UnsupportedSql),
        ("CREATE TABLE t (`a b` INT PRIMARY KEY)", SqlError),
        ('CREATE TABLE "t" (a INT PRIMARY KEY)', SqlError),
        (f"CREATE TABLE {'x' * 65} (a INT PRIMARY KEY)", SqlError),
        ("CREATE VIEW v AS SELECT 1", UnsupportedSql),
        ("CREATE OR REPLACE TABLE t (a INT PRIMARY KEY)", UnsupportedSql),
        ("CREATE MATERIALIZED VIEW v AS SELEC a FROM t", SqlError),
        ("CREATE MATERIALIZED VIEW v AS SELECT a FROM", SqlError),
        ("ALTER TABLE t DROP COLUMN c", UnsupportedSql),
        ("ALTER TABLE t RENAME COLUMN a TO b", UnsupportedSql),
        ("ALTER MATERIALIZED VIEW v SET x", UnsupportedSql),
        ("CREATE OR REPLACE TABLE t (k INT PRIMARY KEY)", UnsupportedSql),
        ("ALTER MATERIALIZED VIEW v ADD COLUMN c INT", UnsupportedSql),
        ("ALTER TABLE t ADD c INT", SqlError),
        ("ALTER TABLE t ADD COLUMN c", SqlError),
        ("ALTER TABLE t ADD COLUMN c INT NOT NULL", UnsupportedSql),
        ("ALTER TABLE t ADD COLUMN c INT PRIMARY KEY", UnsupportedSql),
        ("ALTER TABLE t ADD COLUMN c INT DEFAULT 1", UnsupportedSql),
        ("ALTER TABLE t ADD COLUMN c INT FIRST", UnsupportedSql),
        ("ALTER TABLE t ADD COLUMN c INT AFTER a", UnsupportedSql),
        ("ALTER TABLE t ADD COLUMN c INT128", UnsupportedSql),
        ("ALTER TABLE t ADD COLUMNS (a INT, A STRING)", DuplicateName),
        ("ALTER TABLE t ADD COLUMNS (a INT", SqlError),
        ("ALTER TABLE t ADD COLUMNS ()", SqlError),
        ("INSERT INTO t SELECT * FROM u", UnsupportedSql),
        ("INSERT INTO t VALUES (1 + 1)", UnsupportedSql),
        ("INSERT INTO t (a, a) VALUES (1, 2)", DuplicateName),
        ("INSERT INTO t (a, b) VALUES (1)", SqlError),
        ("INSERT OVERWRITE t VALUES (1)", UnsupportedSql),
        ("UPDATE t SET a = a + 1 WHERE k = 1", UnsupportedSql),
        ("UPDATE t SET a = 1", UnsupportedSql),
        ("UPDATE t SET a = 1 WHERE k > 1", UnsupportedSql),
        ("DELETE FROM t", UnsupportedSql),
        ("DELETE FROM t WHERE k = 1 OR k = 2", UnsupportedSql),
        ("INSERT INTO t VALUES (DATE '2024-02-30')", SqlError),
        ("SELECT 'abc", SqlError),
        ("GRANT ALL", SqlError),
    ],
)
def test_what_is_refused_is_refused_with_the_right_class(text: str, kind: type[Exception]) -> None:
    with pytest.raises(kind) as caught:
        parse_statements(text)
    assert "\n" not in str(caught.value)
    assert str(pickle.loads(pickle.dumps(caught.value))) == str(caught.value)


def test_an_error_names_line_and_column_of_the_whole_text() -> None:
    with pytest.raises(SqlError, match="^line 3, column 9: unexpected x after column a"):
        parse_statements("SHOW TABLES;\nCREATE TABLE t (\n  a INT x PRIMARY KEY)")
    with pytest.raises(SqlError, match="^line 2, column "):
        parse_statements("SHOW TABLES;\nSELECT a FROM t WHERE (")


@pytest.mark.parametrize(
    ("text", "fact"),
    [
        ("SELECT VAR_POP() FROM t", "^line 1, column 15: VAR_POP takes one argument, not 0; write VAR_POP.column.$"),
        ("SELECT SUM(k, x) FROM t", "^line 1, column 15: SUM takes one argument, not 2; write SUM.column.$"),
        ("SELECT BOOL_OR(*) FROM t", r"^BOOL_OR\(\*\) is not a function"),
        ("SELECT NULLIF(x) FROM t", "NULLIF lacks an argument"),
        ("SELECT k FROM t WHERE x LIKE", "an operand is missing"),
        ("SELECT STDEV(x) FROM t", "aggregate STDEV is not supported; use STDDEV"),
        ("SELECT VARIANCE_SAMP(x) FROM t", "aggregate VARIANCE_SAMP is not supported; use VAR_SAMP"),
        ("SELECT variance_pop(x) FROM t", "aggregate variance_pop is not supported; use VAR_POP"),
        ("SELECT LOGICAL_AND(x > 1) FROM t", "aggregate LOGICAL_AND is not supported; use BOOL_AND"),
        ("SELECT BOOLAND_AGG(x > 1) FROM t", "aggregate BOOLAND_AGG is not supported; use BOOL_AND"),
        ("SELECT LOGICAL_OR(x > 1) FROM t", "aggregate LOGICAL_OR is not supported; use BOOL_OR"),
        ("SELECT BOOLOR_AGG(x > 1) FROM t", "aggregate BOOLOR_AGG is not supported; use BOOL_OR"),
        ("SELECT COUNTIF(x > 1) FROM t", "aggregate COUNTIF is not supported; use COUNT_IF"),
        ("SELECT IIF(x > 1, 1, 2) FROM t", "function IIF is not supported; write IF"),
        ("SELECT STRPOS('ab', 'b') FROM t", "function STRPOS is not supported; use INSTR"),
        ("SELECT STR_POSITION('ab', 'b') FROM t", "function STR_POSITION is not supported; use INSTR"),
        ("SELECT TS_OR_DS_TO_DATE_STR('ab') FROM t", "function TS_OR_DS_TO_DATE_STR is not supported"),
    ],
)
def test_a_call_that_cannot_be_bound_is_told_in_plain_words(text: str, fact: str) -> None:
    with vk.connect("memory:calls") as db, pytest.raises(SqlError, match=fact):
        db.execute("CREATE TABLE IF NOT EXISTS t (k INT PRIMARY KEY, x INT)")
        db.execute(text)


LONG = "9" * 5_000


@pytest.mark.parametrize(
    "text",
    [
        f"SELECT {LONG}",
        f"SELECT k FROM t LIMIT {LONG}",
        f"SELECT k FROM t ORDER BY {LONG}",
        f"SELECT CAST(k AS DECIMAL({LONG}, 1)) FROM t",
        f"INSERT INTO t VALUES ({LONG})",
        f"DELETE FROM t WHERE k = -{LONG}",
        "SELECT 1e99999999999999999999BD",
        "SELECT DECIMAL '1e99999999999999999999'",
        "SELECT DECIMAL '-1e-99999999999999999999'",
    ],
)
def test_a_number_that_python_cannot_read_is_refused_like_any_other(text: str) -> None:
    with vk.connect("memory:") as db:
        db.execute("CREATE TABLE t (k INT PRIMARY KEY)")
        with pytest.raises(SqlError, match="a number of 5,000 digits|cannot be read as DECIMAL"):
            db.execute(text)


def test_a_missing_name_is_told_with_the_right_article() -> None:
    for statement, words in (("CREATE INDEX 'i' ON t (a)", "an index"), ("CREATE TABLE 't' (a INT)", "a table")):
        with pytest.raises(SqlError, match=f"expected the name of {words}"):
            list(parse_statements(statement))
