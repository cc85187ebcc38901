"""The text of a view over base tables alone: names mean what they meant, whatever stands around them and came since."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import duckdb
import pytest
import sqlglot
from sqlglot import expressions as exp

import viewkeeper as vk
from tests.support.running import keep_up
from viewkeeper.catalog.catalog import Catalog, ViewDefinition
from viewkeeper.check import query_blocks
from viewkeeper.check.oracle_sql import oracle_query_for
from viewkeeper.check.query_blocks import Tables, text_of
from viewkeeper.errors import InvariantBroken
from viewkeeper.sql.query_parser import ViewSpark

ROWS = {
    "t": [{"k": k, "g": g, "x": x} for k, g, x in (("a", "p", 1), ("b", "p", 5), ("c", "q", 9), ("d", None, 2))],
    "u": [{"k": k, "g": g, "x": x} for k, g, x in (("a", "q", 3), ("e", "p", 4))],
}


@pytest.fixture
def db(tmp_path: Path) -> vk.Database:
    db = vk.connect(f"embedded:{tmp_path / 's'}?sync=off")
    for name, rows in ROWS.items():
        db.execute(f"CREATE TABLE {name} (k STRING PRIMARY KEY, g STRING, x INT)")
        db.table(name).put_many(rows)
    return db


def expanded_query(catalog: Catalog, view: ViewDefinition) -> tuple[str, Tables]:
    tree, tables = query_blocks.expanded_query(catalog, view)
    return text_of(tree), tables


def tables_in(sql: str) -> Counter:
    """The names of tables in a text, which has no common tables."""
    tree = sqlglot.parse_one(sql, dialect=ViewSpark)
    assert tree.find(exp.With) is None
    return Counter(table.name for table in tree.find_all(exp.Table))


def judge(db: vk.Database, name: str = "v") -> str:
    """The expansion, after DuckDB made of it what the view holds, with no table in reach but those it names."""
    view = db.catalog().view(name)
    sql, tables = expanded_query(db.catalog(), view)
    keep_up(db)
    with duckdb.connect() as connection:
        for known, table in tables.items():
            rows = db.table(db.catalog().tables_by_id[table.id].name).to_arrow()
            connection.register(known, rows.select([column.name for column in table.columns]))
        (plain,) = sqlglot.transpile(sql, read=ViewSpark, write="duckdb")
        expected = Counter(connection.sql(plain).fetchall())
    assert Counter(tuple(row.values()) for row in db.view(name).scan()) == expected
    assert set(tables_in(sql)) <= set(tables)
    return sql


def create(db: vk.Database, text: str, name: str = "v") -> None:
    db.execute(f"CREATE MATERIALIZED VIEW {name} AS {text}")


def test_a_table_stands_under_a_name_of_its_own_with_the_name_it_had_as_alias(db: vk.Database) -> None:
    create(db, "SELECT t.k, T.x FROM t WHERE t.x > 1")
    sql, tables = expanded_query(db.catalog(), db.catalog().view("v"))

    assert sql == "SELECT t.k, T.x FROM `__table_1_3` AS `t` WHERE t.x > 1"
    assert tables == {"__table_1_3": db.catalog().table("t")}
    judge(db)


@pytest.mark.parametrize(
    "text",
    [
        "SELECT a.k, b.x FROM t a JOIN t AS b ON a.k = b.k",
        "SELECT t.k FROM u t WHERE t.x > 3",  # an alias that is the name of another table
        "SELECT u.k, t.k AS o FROM t u JOIN u t ON u.k = t.k",  # aliases that swap the names
        "SELECT k FROM t WHERE g IN (SELECT u.g FROM u) UNION ALL SELECT k FROM u",
        "SELECT k FROM t WHERE EXISTS (SELECT 1 FROM u WHERE u.g = t.g AND u.x < t.x)",
        "SELECT q.g, n FROM (SELECT g, COUNT(*) AS n FROM t GROUP BY g) q JOIN u ON q.g = u.g",
        "SELECT a.p, a.r FROM t AS a (p, q, r) WHERE a.q = 'p'",
        "SELECT t.k, u.x FROM (t JOIN u ON t.k = u.k)",
        "SELECT t.k, u.x, w.g FROM (t LEFT JOIN u ON t.k = u.k) JOIN u w ON w.g = t.g",
        "SELECT t.k FROM t, u WHERE t.k = u.k",
        "SELECT t.k, u.x FROM t JOIN u USING (k)",
    ],
)
def test_aliases_mean_what_they_meant(db: vk.Database, text: str) -> None:
    create(db, text)
    judge(db)


@pytest.mark.parametrize(
    ("text", "tables"),
    [
        ("WITH q AS (SELECT k, x FROM t) SELECT k FROM q WHERE x > 1", {"t": 1}),
        ("WITH q (a, b) AS (SELECT k, x FROM t) SELECT a FROM q WHERE b > 1", {"t": 1}),
        ("WITH q (a, b) AS (SELECT k, x FROM t) SELECT c FROM q AS r (c, d) WHERE d > 1", {"t": 1}),
        ("WITH t AS (SELECT k, x + 10 AS x FROM t) SELECT k, x FROM t", {"t": 1}),  # the inner one is the table
        ("WITH t AS (SELECT k, x FROM u) SELECT k, x FROM t", {"u": 1}),
        ("WITH t AS (SELECT k, x FROM u) SELECT t.k, q.x FROM t JOIN (SELECT k, x FROM t) q ON t.k = q.k", {"u": 2}),
        ("WITH q AS (SELECT k FROM t), t AS (SELECT k FROM u) SELECT t.k FROM t JOIN q ON t.k = q.k", {"t": 1, "u": 1}),
        ("WITH T AS (SELECT k FROM u) SELECT k FROM t", {"u": 1}),
        ("WITH t AS (SELECT k, x FROM t), u AS (SELECT k, x FROM t WHERE x > 2) SELECT k, x FROM u", {"t": 1}),
        ("SELECT q.k, t.x FROM (WITH t AS (SELECT k FROM u) SELECT k FROM t) q JOIN t ON t.k = q.k", {"u": 1, "t": 1}),
        ("WITH u AS (SELECT k, x FROM t WHERE x > 1) SELECT k FROM t WHERE EXISTS (SELECT 1 FROM u WHERE u.k = t.k)",
         {"t": 2}),
        ("WITH t AS (SELECT k, x FROM u) SELECT k FROM t UNION ALL SELECT k FROM t WHERE x > 3", {"u": 2}),
        ("WITH t AS (WITH t AS (SELECT k, x FROM t WHERE x > 1) SELECT k, x FROM t WHERE x > 2) SELECT k FROM t",
         {"t": 1}),
        ("WITH q AS (SELECT k FROM (WITH u AS (SELECT k FROM t) SELECT k FROM u) r) SELECT u.k FROM u JOIN q ON q.k = u.k",
         {"t": 1, "u": 1}),
    ],
)  # fmt: skip
def test_a_common_table_stands_as_a_subquery_and_may_have_a_tables_name(
    db: vk.Database, text: str, tables: dict
) -> None:
    create(db, text)
    sql = judge(db)
    ids = {"t": "__table_1_3", "u": "__table_2_3"}

    assert tables_in(sql) == Counter({ids[name]: count for name, count in tables.items()})


def test_a_view_over_a_view_over_a_view_is_subqueries(db: vk.Database) -> None:
    create(db, "SELECT * FROM t WHERE x > 1", "one")
    create(db, "SELECT g, SUM(x) AS s FROM one o GROUP BY g", "two")
    create(db, "SELECT two.g, s, u.k FROM two LEFT JOIN u ON two.g = u.g", "three")
    create(db, "WITH one AS (SELECT g FROM three) SELECT one.g, three.s FROM one JOIN three ON one.g = three.g")
    sql = judge(db)

    assert tables_in(judge(db, "three")) == {"__table_1_3": 1, "__table_2_3": 1}
    assert tables_in(sql) == {"__table_1_3": 2, "__table_2_3": 2}
    assert "(SELECT * FROM `__table_1_3` AS `t` WHERE x > 1) AS `o`" in sql


def test_views_keep_the_names_of_their_columns_and_what_is_joined_to_them(db: vk.Database) -> None:
    create(db, "SELECT k, x FROM t WHERE x > 1", "one")
    create(db, "SELECT a.p, u.g FROM (one AS a (p, q) JOIN u ON u.k = a.p)", "two")
    create(db, "SELECT two.g, one.x FROM (two JOIN one ON two.p = one.k) JOIN t ON t.k = one.k")
    judge(db, "two")

    assert tables_in(judge(db)) == {"__table_1_3": 3, "__table_2_3": 1}


def test_common_tables_of_one_name_in_views_over_each_other_stay_apart(db: vk.Database) -> None:
    create(db, "WITH q AS (SELECT k, x FROM t WHERE x > 1) SELECT k, x FROM q", "one")
    create(db, "WITH q AS (SELECT k, x FROM u) SELECT k, x FROM q", "two")
    create(db, "WITH q AS (SELECT k FROM one WHERE x > 3) SELECT q.k, two.x FROM q LEFT JOIN two ON q.k = two.k")

    assert judge(db).count("AS `q`") == 3


def test_a_view_whose_common_table_has_the_name_of_a_view_below(db: vk.Database) -> None:
    """The subquery that a view stands as is not inside the WITH of the text around it."""
    create(db, "SELECT k, x FROM t WHERE x > 1", "one")
    create(db, "SELECT k, x FROM one", "two")
    create(db, "WITH t AS (SELECT k FROM u) SELECT two.k, x FROM two LEFT JOIN t ON two.k = t.k")
    sql = judge(db)

    assert tables_in(sql) == {"__table_1_3": 1, "__table_2_3": 1}


def test_a_renamed_table_is_the_one_that_was_meant(db: vk.Database) -> None:
    create(db, "SELECT t.g, COUNT(*) AS n FROM t GROUP BY t.g")
    create(db, "SELECT n FROM v WHERE g = 'p'", "w")
    db.execute("ALTER TABLE t RENAME TO s; ALTER TABLE u RENAME TO t; ALTER MATERIALIZED VIEW v RENAME TO u")
    sql = judge(db, "u")

    assert sql == "SELECT t.g, COUNT(*) AS n FROM `__table_1_3` AS `t` GROUP BY t.g"
    assert tables_in(judge(db, "w")) == {"__table_1_3": 1}


def test_a_table_has_the_columns_that_it_had(db: vk.Database) -> None:
    create(db, "SELECT * FROM t", "before")
    create(db, "SELECT * FROM before", "over")
    db.execute("ALTER TABLE t ADD COLUMN note STRING")
    create(db, "SELECT * FROM t", "after")
    db.execute("ALTER TABLE t ADD COLUMN more INT")
    create(db, "SELECT b.k, a.note, t.more FROM before b JOIN after a ON a.k = b.k JOIN t ON t.k = a.k")
    db.table("t").put("a", {"note": "n", "more": 4})
    for name in ("before", "over", "after"):
        judge(db, name)
    judge(db)
    _, tables = expanded_query(db.catalog(), db.catalog().view("v"))

    assert {name: len(table.columns) for name, table in tables.items()} == {
        "__table_1_3": 3, "__table_1_4": 4, "__table_1_5": 5,
    }  # fmt: skip


def test_names_of_columns_that_are_names_of_tables_are_left_alone(db: vk.Database) -> None:
    create(db, "SELECT q.t, q.u FROM (SELECT k AS t, x AS u FROM t) q WHERE q.u > 1")

    assert "q.t, q.u" in judge(db)


def test_an_index_has_no_text_to_spell_out(db: vk.Database) -> None:
    db.execute("CREATE INDEX i ON t (g)")
    with pytest.raises(InvariantBroken, match="no query"):
        expanded_query(db.catalog(), db.catalog().view("i"))


def test_a_column_that_the_text_gives_no_name_has_ours(db: vk.Database) -> None:
    create(db, "SELECT COUNT(*) FROM t", "counted")
    create(db, "SELECT `count(*)` AS n FROM counted")

    assert "`counted`(`count(*)`)" in judge(db)


@pytest.mark.parametrize(
    ("digits", "function", "is_doubtful"),
    [(28, "SUM", False), (29, "SUM", True), (29, "MAX", False), (38, "AVG", True)],
)
def test_a_sum_that_may_leave_38_digits_in_spark_on_its_way_is_in_doubt(
    digits: int, function: str, is_doubtful: bool
) -> None:
    with vk.connect("memory:") as db:
        db.execute(f"CREATE TABLE t (k INT PRIMARY KEY, d DECIMAL({digits},2))")
        db.execute(f"CREATE MATERIALIZED VIEW v AS SELECT {function}(d) AS s FROM t")
        catalog = db.catalog()
        error_tolerant, plain = (
            oracle_query_for(catalog, catalog.view("v"), error_tolerant=error_tolerant).doubt
            for error_tolerant in (True, False)
        )

    assert plain is None
    assert (error_tolerant or "").startswith("a sum of DECIMAL leaves 38 digits") is is_doubtful
