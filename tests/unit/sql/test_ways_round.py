"""What a refusal says to write instead is accepted, and means what was refused."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, field

import duckdb
import pytest

import viewkeeper as vk
from viewkeeper.errors import UnsupportedSql
from viewkeeper.plan.define import define_view
from viewkeeper.sql import alternatives

ROWS = [
    # k, g, x, y, n: x is NULL now and then, y the same in two rows of a group; n numbers the rows of a group by y
    (1, "eu", 10, 1, 1, 0.5, "abc", True, "2024-02-29"),
    (2, "eu", None, 2, 2, -1.0, "xab", False, "2023-12-31"),
    (3, "eu", 7, 2, 3, 10.0, "b", None, "2024-01-01"),
    (4, "us", -3, 5, 1, 9.99, "ABc", True, "1999-07-04"),
    (5, "us", 4, 6, 2, 3.25, "", True, "2024-02-01"),
    (6, "us", 4, 4, 0, 7.0, "12", False, "2024-02-29"),
    (7, "asia", None, 1, 1, 2.0, "7", None, "2000-01-01"),
    (8, "eu", 5, 9, 4, 4.0, "12a", False, "2020-05-05"),
]
DDL = "CREATE TABLE t (k INT PRIMARY KEY, g STRING, x INT, y INT, n INT, d DOUBLE, s STRING, p BOOLEAN, day DATE)"


@dataclass(frozen=True)
class Way:
    """A refused text, a part of its hint, and the text with that part, after its names are replaced by `names`.

    `duckdb` is the refused text as DuckDB takes it, if that differs.
    """

    refused: str
    hint: str
    instead: str
    duckdb: str = ""
    names: dict[str, str] = field(default_factory=dict)


_BEFORE = "FROM t a LEFT JOIN t b ON b.g = a.g AND b.y < a.y GROUP BY a.k"
_ONE = "(SELECT *, 1 AS one FROM t)"
_ALL = "(SELECT k, x, y, 1 AS g FROM t)"
WAYS = [
    Way(
        "SELECT k, SUM(x) OVER (PARTITION BY g) AS s FROM t",
        "FROM t JOIN (SELECT g, SUM(x) AS s FROM t GROUP BY g) USING (g)",
        "SELECT k, total FROM t JOIN (SELECT g, SUM(x) AS total FROM t GROUP BY g) USING (g)",
        names={"s": "total"},
    ),
    Way(
        "SELECT k, SUM(x) OVER (PARTITION BY g ORDER BY y) AS s FROM t",
        "SELECT a.k, SUM(b.x) FROM t a JOIN t b ON b.g = a.g AND b.y <= a.y GROUP BY a.k",
        "SELECT a.k, SUM(b.x) FROM t a JOIN t b ON b.g = a.g AND b.y <= a.y GROUP BY a.k",
    ),
    Way(
        "SELECT k, COUNT(*) OVER (ORDER BY y DESC) AS n FROM t",
        "SELECT a.k, COUNT(*) FROM t a JOIN t b ON b.g = a.g AND b.y <= a.y GROUP BY a.k",
        f"SELECT a.k, COUNT(*) FROM {_ALL} a JOIN {_ALL} b ON b.g = a.g AND b.y >= a.y GROUP BY a.k",
        names={"t": _ALL, "<=": ">="},
    ),
    Way(
        "SELECT k, MAX(x) OVER (PARTITION BY g ORDER BY n ROWS BETWEEN 2 PRECEDING AND CURRENT ROW) AS m FROM t WHERE k <> 6",
        "SELECT a.k, MAX(b.x) FROM t a JOIN t b ON b.g = a.g AND b.n BETWEEN a.n - 2 AND a.n GROUP BY a.k",
        "SELECT a.k, MAX(b.x) FROM (SELECT * FROM t WHERE k <> 6) a JOIN (SELECT * FROM t WHERE k <> 6) b "
        "ON b.g = a.g AND b.n BETWEEN a.n - 2 AND a.n GROUP BY a.k",
        names={"t": "(SELECT * FROM t WHERE k <> 6)"},
    ),
    Way(
        "SELECT k, RANK() OVER (PARTITION BY g ORDER BY y) AS r FROM t",
        f"SELECT a.k, COUNT(b.k) + 1 {_BEFORE}",
        f"SELECT a.k, COUNT(b.k) + 1 {_BEFORE}",
    ),
    Way(
        "SELECT k, DENSE_RANK() OVER (PARTITION BY g ORDER BY y) AS r FROM t",
        f"SELECT a.k, COUNT(DISTINCT b.y) + 1 {_BEFORE}",
        f"SELECT a.k, COUNT(DISTINCT b.y) + 1 {_BEFORE}",
    ),
    Way(
        "SELECT k, ROW_NUMBER() OVER (PARTITION BY g ORDER BY n) AS r FROM t",
        f"SELECT a.k, COUNT(b.k) + 1 {_BEFORE}",
        f"SELECT a.k, COUNT(b.k) + 1 {_BEFORE}".replace(".y", ".n"),
        names={"b.y": "b.n", "a.y": "a.n"},
    ),
    Way(
        "SELECT k FROM t QUALIFY RANK() OVER (PARTITION BY g ORDER BY y) <= 2",
        f"SELECT a.k {_BEFORE} HAVING COUNT(b.k) < n",
        f"SELECT a.k {_BEFORE} HAVING COUNT(b.k) < 2",
        names={"n": "2"},
    ),
    Way(
        "SELECT DISTINCT ON (g) k FROM t ORDER BY g, n",
        f"SELECT a.k {_BEFORE} HAVING COUNT(b.k) < n",
        f"SELECT a.k {_BEFORE} HAVING COUNT(b.k) < 1".replace(".y", ".n"),
        names={"b.y": "b.n", "a.y": "a.n", "n": "1"},
    ),
    Way(
        "SELECT k, LAG(x) OVER (PARTITION BY g ORDER BY n) AS p FROM t",
        "SELECT a.k, b.x FROM t a LEFT JOIN t b ON b.g = a.g AND b.n = a.n - 1",
        "SELECT a.k, b.x FROM t a LEFT JOIN t b ON b.g = a.g AND b.n = a.n - 1",
    ),
    Way(
        "SELECT k, LEAD(x) OVER (PARTITION BY g ORDER BY n) AS p FROM t",
        "SELECT a.k, b.x FROM t a LEFT JOIN t b ON b.g = a.g AND b.n = a.n + 1",
        "SELECT a.k, b.x FROM t a LEFT JOIN t b ON b.g = a.g AND b.n = a.n + 1",
    ),
    Way(
        "SELECT g, MAX_BY(k, n) AS k FROM t GROUP BY g",
        "SELECT g, MAX(x) FROM t JOIN (SELECT g, MAX(y) AS y FROM t GROUP BY g) USING (g, y) GROUP BY g",
        "SELECT g, MAX(k) FROM t JOIN (SELECT g, MAX(n) AS n FROM t GROUP BY g) USING (g, n) GROUP BY g",
        names={"x": "k", "y": "n"},
    ),
    Way(
        "SELECT MIN_BY(g, k) AS g FROM t",
        "SELECT MAX(x) FROM t WHERE y IN (SELECT MIN(y) FROM t)",
        "SELECT MAX(g) FROM t WHERE k IN (SELECT MIN(k) FROM t)",
        names={"x": "g", "y": "k"},
    ),
    Way("SELECT STD(x) AS s FROM t", "STDDEV(x)", "SELECT STDDEV(x) FROM t WHERE k IN (3, 8)", "SELECT sqrt(2)"),
    Way(
        "SELECT EVERY(p) AS e FROM t",
        "BOOL_AND(x)",
        "SELECT BOOL_AND(p) FROM t",
        "SELECT BOOL_AND(p) FROM t",
        {"x": "p"},
    ),
    Way("SELECT SOME(p) AS e FROM t", "BOOL_OR(x)", "SELECT BOOL_OR(p) FROM t", "SELECT BOOL_OR(p) FROM t", {"x": "p"}),
    Way(
        "SELECT APPROX_COUNT_DISTINCT(g) AS n FROM t",
        "COUNT(DISTINCT x)",
        "SELECT COUNT(DISTINCT g) FROM t",
        "SELECT COUNT(DISTINCT g) FROM t",
        {"x": "g"},
    ),
    Way(
        "SELECT COUNT(x, p) AS n FROM t",
        "COUNT(*) FILTER (WHERE a IS NOT NULL AND b IS NOT NULL)",
        "SELECT COUNT(*) FILTER (WHERE x IS NOT NULL AND p IS NOT NULL) FROM t",
        "SELECT SUM(CAST(x IS NOT NULL AND p IS NOT NULL AS INT)) FROM t",
        {"a": "x", "b": "p"},
    ),
    Way(
        "SELECT COUNT_IF(DISTINCT p) AS n FROM t",
        "COALESCE(CAST(BOOL_OR(condition) AS BIGINT), 0)",
        "SELECT COALESCE(CAST(BOOL_OR(p) AS BIGINT), 0) FROM t",
        "SELECT COUNT(DISTINCT CASE WHEN p THEN 1 END) FROM t",
        {"condition": "p"},
    ),
    Way(
        "SELECT k FROM t WHERE (k, x) = (5, 4)",
        "a = x AND b = y",
        "SELECT k FROM t WHERE k = 5 AND x = 4",
        names={"a": "k", "b": "x", "x": "5", "y": "4"},
    ),
    Way(
        "SELECT k FROM t WHERE (k, y) < (5, 7)",
        "a < x OR (a = x AND b < y)",
        "SELECT k FROM t WHERE k < 5 OR (k = 5 AND y < 7)",
        names={"a": "k", "b": "y", "x": "5", "y": "7"},
    ),
    Way(
        "SELECT k FROM t WHERE (k, y) <> (5, 6)",
        "a <> x OR b <> y",
        "SELECT k FROM t WHERE k <> 5 OR y <> 6",
        names={"a": "k", "b": "y", "x": "5", "y": "6"},
    ),
    Way(
        "SELECT k FROM t WHERE (k, y) IN ((5, 6), (1, 2))",
        "(a = x AND b = y) OR (a = z AND b = w)",
        "SELECT k FROM t WHERE (k = 5 AND y = 6) OR (k = 1 AND y = 2)",
        names={"a": "k", "b": "y", "x": "5", "y": "6", "z": "1", "w": "2"},
    ),
    Way(
        "SELECT k FROM t WHERE s RLIKE '^ab'",
        "x LIKE 'ab%'",
        "SELECT k FROM t WHERE s LIKE 'ab%'",
        "SELECT k FROM t WHERE regexp_matches(s, '^ab')",
        {"x": "s"},
    ),
    Way(
        "SELECT k FROM t WHERE REGEXP_LIKE(s, 'ab')",
        "x LIKE '%ab%'",
        "SELECT k FROM t WHERE s LIKE '%ab%'",
        "SELECT k FROM t WHERE regexp_matches(s, 'ab')",
        {"x": "s"},
    ),
    Way(
        "SELECT k FROM t WHERE s ILIKE 'Ab%'",
        "LOWER(x) LIKE '…'",
        "SELECT k FROM t WHERE LOWER(s) LIKE 'ab%'",
        names={"x": "s", "…": "ab%"},
    ),
    Way(
        "SELECT k FROM t WHERE s LIKE ANY ('a%', 'b')",
        "x LIKE a OR x LIKE b",
        "SELECT k FROM t WHERE s LIKE 'a%' OR s LIKE 'b'",
        "SELECT k FROM t WHERE s LIKE 'a%' OR s = 'b'",
        {"x": "s", "a": "'a%'", "b": "'b'"},
    ),
    Way(
        "SELECT k FROM t WHERE x BETWEEN SYMMETRIC 5 AND y",
        "x BETWEEN a AND b OR x BETWEEN b AND a",
        "SELECT k FROM t WHERE x BETWEEN 5 AND y OR x BETWEEN y AND 5",
        "SELECT k FROM t WHERE x >= least(5, y) AND x <= greatest(5, y)",
        {"a": "5", "b": "y"},
    ),
    Way(
        "SELECT k, WIDTH_BUCKET(d, 0, 10, 5) AS w FROM t",
        "CASE WHEN x < low THEN 0 WHEN x >= high THEN n + 1 ELSE FLOOR(n * (x - low) / (high - low)) + 1 END",
        "SELECT k, CASE WHEN d < 0 THEN 0 WHEN d >= 10 THEN 5 + 1 ELSE FLOOR(5 * (d - 0) / (10 - 0)) + 1 END FROM t",
        "SELECT k, greatest(0, least(6, CAST(floor(d / 2) AS INT) + 1)) FROM t",
        {"x": "d", "low": "0", "high": "10", "n": "5"},
    ),
    Way(
        "SELECT k, TRY_CAST(s AS INT) AS i FROM t",
        "CASE WHEN LENGTH(x) BETWEEN 1 AND 9 AND TRANSLATE(x, '0123456789', '') = '' THEN CAST(x AS INT) END",
        "SELECT k, CASE WHEN LENGTH(s) BETWEEN 1 AND 9 AND TRANSLATE(s, '0123456789', '') = '' THEN CAST(s AS INT) END "
        "FROM t",
        names={"x": "s"},
    ),
    Way(
        "SELECT k, TRY_DIVIDE(k, x + 3) AS q FROM t",
        "a / NULLIF(b, 0)",
        "SELECT k, k / NULLIF(x + 3, 0) FROM t",
        "SELECT k, CASE WHEN x <> -3 THEN k / (x + 3) END FROM t",
        {"a": "k", "b": "x + 3"},
    ),
    Way(
        "SELECT k, ZEROIFNULL(x) AS z FROM t",
        "COALESCE(x, 0)",
        "SELECT k, COALESCE(x, 0) FROM t",
        "SELECT k, ifnull(x, 0) FROM t",
    ),
    Way(
        "SELECT k, IFF(x > 4, 1, 2) AS z FROM t",
        "IF(condition, value, other value)",
        "SELECT k, IF(x > 4, 1, 2) FROM t",
        "SELECT k, if(x > 4, 1, 2) FROM t",
        {"condition": "x > 4", "other value": "2", "value": "1"},
    ),
    Way("SELECT k, POW(x, 2) AS z FROM t", "x * x", "SELECT k, CAST(x * x AS DOUBLE) FROM t"),
    Way(
        "SELECT k, INITCAP(s) AS z FROM t WHERE k <> 8",
        "CONCAT(UPPER(LEFT(x, 1)), LOWER(SUBSTRING(x, 2)))",
        "SELECT k, CONCAT(UPPER(LEFT(s, 1)), LOWER(SUBSTRING(s, 2))) FROM t WHERE k <> 8",
        "SELECT k, upper(s[1]) || lower(s[2:]) FROM t WHERE k <> 8",
        {"x": "s"},
    ),
    Way(
        "SELECT k, DATE_FORMAT(day, 'yyyy-MM') AS m FROM t",
        "SUBSTRING(CAST(x AS STRING), 1, 7)",
        "SELECT k, SUBSTRING(CAST(day AS STRING), 1, 7) FROM t",
        "SELECT k, strftime(day, '%Y-%m') FROM t",
        {"x": "day"},
    ),
    Way(
        "SELECT k, DATE_ADD(MONTH, 1, day) AS m FROM t",
        "x + INTERVAL n MONTH",
        "SELECT k, day + INTERVAL 1 MONTH FROM t",
        "SELECT k, CAST(day + INTERVAL 1 MONTH AS DATE) FROM t",
        {"x": "day", "n": "1"},
    ),
    Way(
        "SELECT k FROM t WHERE x = (SELECT MAX(x) FROM t)",
        "IN (SELECT …)",
        "SELECT k FROM t WHERE x IN (SELECT MAX(x) FROM t)",
        names={"…": "MAX(x) FROM t"},
    ),
    Way(
        "SELECT k FROM t WHERE x > (SELECT AVG(x) FROM t)",
        "1 AS one",
        "SELECT k FROM (SELECT k, x, 1 AS one FROM t) LEFT JOIN (SELECT one, AVG(x) AS a FROM (SELECT x, 1 AS one FROM t) "
        "GROUP BY one) USING (one) WHERE x > a",
    ),
    Way(
        "SELECT k FROM t WHERE x = ANY (SELECT y FROM t)",
        "= ANY is IN",
        "SELECT k FROM t WHERE x IN (SELECT y FROM t)",
        names={"= ANY is IN": "IN"},
    ),
    Way(
        "SELECT k FROM t WHERE k <> ALL (SELECT y FROM t)",
        "<> ALL is NOT IN",
        "SELECT k FROM t WHERE k NOT IN (SELECT y FROM t)",
        names={"<> ALL is NOT IN": "NOT IN"},
    ),
    Way(
        "SELECT k FROM t WHERE x IN (SELECT y FROM t) OR k = 1",
        "UNION",
        "SELECT k FROM t WHERE x IN (SELECT y FROM t) UNION SELECT k FROM t WHERE k = 1",
    ),
    Way(
        "SELECT a.k, b.k AS bk FROM t a JOIN t b ON a.x > b.y",
        "ON a.one = b.one AND …",
        f"SELECT a.k, b.k AS bk FROM {_ONE} a JOIN {_ONE} b ON a.one = b.one AND a.x > b.y",
        names={"…": "a.x > b.y"},
    ),
    Way(
        "SELECT a.k, b.k AS bk FROM t a LEFT JOIN t b ON a.x > b.y",
        "(SELECT *, 1 AS one FROM t)",
        f"SELECT a.k, b.k AS bk FROM {_ONE} a LEFT JOIN {_ONE} b ON a.one = b.one AND a.x > b.y",
    ),
    Way(
        "SELECT * FROM (SELECT n, g, x FROM t) PIVOT (SUM(x) FOR g IN ('eu', 'us'))",
        "SUM(x) FILTER (WHERE c = value) AS name",
        "SELECT n, SUM(x) FILTER (WHERE g = 'eu') AS eu, SUM(x) FILTER (WHERE g = 'us') AS us FROM t GROUP BY n",
        "SELECT * FROM (SELECT n, g, x FROM t) PIVOT (SUM(x) FOR g IN ('eu', 'us') GROUP BY n)",
        {"c": "g", "value": "'eu'", "name": "eu"},
    ),
    Way(
        "SELECT k, name, value FROM (SELECT k, x, y FROM t) UNPIVOT (value FOR name IN (x, y))",
        "SELECT k, 'a' AS name, a AS value FROM t WHERE a IS NOT NULL",
        "SELECT k, 'x' AS name, x AS value FROM t WHERE x IS NOT NULL UNION ALL "
        "SELECT k, 'y' AS name, y AS value FROM t WHERE y IS NOT NULL",
        names={"a": "x", "'a'": "'x'"},
    ),
]


@pytest.fixture(scope="module")
def db() -> vk.Database:
    database = vk.connect("memory:")
    database.execute(DDL)
    values = ", ".join(f"({', '.join(map(_literal, row))})" for row in ROWS)
    database.execute(f"INSERT INTO t VALUES {values}")
    return database


@pytest.fixture(scope="module")
def judge(db: vk.Database) -> duckdb.DuckDBPyConnection:
    connection = duckdb.connect()
    connection.execute(DDL.replace("STRING", "VARCHAR"))
    connection.register("rows", db.table("t").to_arrow())
    connection.execute("INSERT INTO t SELECT * FROM rows")
    return connection


def _literal(value: object) -> str:
    if isinstance(value, str):
        return f"DATE '{value}'" if re.fullmatch(r"\d{4}-\d\d-\d\d", value) else f"'{value}'"
    return "NULL" if value is None else f"{value}D" if isinstance(value, float) else str(value)


def _renamed(text: str, names: dict[str, str]) -> str:
    """The text with all names replaced at once."""
    if not names:
        return text
    words = sorted(names, key=len, reverse=True)
    pattern = "|".join(
        rf"(?<![\w.']){re.escape(word)}(?![\w'.])" if word[0].isalpha() else re.escape(word) for word in words
    )
    return re.sub(pattern, lambda found: names[found[0]], text)


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.refused)
def test_a_hint_means_what_was_refused(db: vk.Database, judge: duckdb.DuckDBPyConnection, way: Way) -> None:
    with pytest.raises(UnsupportedSql) as refusal:
        define_view(db.catalog(), "v", way.refused)

    assert way.hint in str(refusal.value.hint)
    assert _renamed(way.hint, way.names) in way.instead
    assert define_view(db.catalog(), "v", way.instead)
    assert Counter(map(tuple, db.execute(way.instead))) == Counter(judge.sql(way.duckdb or way.refused).fetchall())


def test_every_function_that_is_refused_has_a_way_round() -> None:
    assert all({**alternatives.INSTEAD_OF_AGGREGATES, **alternatives.INSTEAD_OF_FUNCTIONS}.values())
    assert alternatives.of_function("frobnicate")


def test_is_distinct_from_is_the_opposite_of_null_safe_equality(db: vk.Database) -> None:
    texts = ["g IS DISTINCT FROM 'eu'", "NOT g <=> 'eu'", "NOT (g IS NOT DISTINCT FROM 'eu')"]
    views = [define_view(db.catalog(), "v", f"SELECT k FROM t WHERE {text}")[0] for text in texts]

    assert views[0].node == views[1].node == views[2].node
