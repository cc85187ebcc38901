"""What a refusal says to write instead is accepted."""

from __future__ import annotations

import pytest

from tests.golden.conftest import TABLES
from viewkeeper.catalog.catalog import Catalog
from viewkeeper.catalog.define import define_view
from viewkeeper.errors import UnsupportedSql
from viewkeeper.model.schema import TableId, TableSchema
from viewkeeper.sql import ways_round
from viewkeeper.sql.statements import parse_statements
from viewkeeper.sql.syntax import CreateTable


@pytest.fixture(scope="module")
def catalog() -> Catalog:
    catalog = Catalog()
    for statement in parse_statements(TABLES):
        assert isinstance(statement, CreateTable)
        catalog = catalog.with_table(
            TableSchema(TableId(catalog.next_id), statement.name, statement.columns, statement.key)
        )
    return catalog


@pytest.mark.parametrize(
    ("refused", "instead"),
    [
        ("SELECT MEDIAN(amount) FROM orders", "SELECT amount, COUNT(*) AS n FROM orders GROUP BY amount"),
        ("SELECT STD(amount) FROM orders", "SELECT STDDEV(amount) FROM orders"),
        (
            "SELECT region, MAX_BY(id, amount) FROM orders GROUP BY region",
            "SELECT o.region, o.id FROM orders o "
            "JOIN (SELECT region, MAX(amount) AS amount FROM orders GROUP BY region) b USING (region, amount)",
        ),
        (
            "SELECT id, SUM(amount) OVER (PARTITION BY region) FROM orders",
            "SELECT id, s FROM orders JOIN (SELECT region, SUM(amount) AS s FROM orders GROUP BY region) USING (region)",
        ),
        ("SELECT ANY_VALUE(region) FROM orders", "SELECT MIN(region) FROM orders"),
        ("SELECT EVERY(paid) FROM orders", "SELECT BOOL_AND(paid) FROM orders"),
        ("SELECT id FROM orders WHERE (id, amount) = (1, 2)", "SELECT id FROM orders WHERE id = 1 AND amount = 2"),
        ("SELECT id FROM orders WHERE region ILIKE 'a%'", "SELECT id FROM orders WHERE LOWER(region) LIKE 'a%'"),
        (
            "SELECT id FROM orders WHERE region LIKE ANY ('a', 'b')",
            "SELECT id FROM orders WHERE region LIKE 'a' OR region LIKE 'b'",
        ),
        (
            "SELECT id FROM orders WHERE amount BETWEEN SYMMETRIC 1 AND id",
            "SELECT id FROM orders WHERE amount BETWEEN LEAST(1, id) AND GREATEST(1, id)",
        ),
        (
            "SELECT TRY_CAST(region AS INT) AS n FROM orders",
            "SELECT CASE WHEN region <> '' AND TRANSLATE(region, '0123456789', '') = '' THEN CAST(region AS INT) END AS n "
            "FROM orders",
        ),
        ("SELECT TRY_DIVIDE(amount, id) AS q FROM orders", "SELECT amount / NULLIF(id, 0) AS q FROM orders"),
        ("SELECT ZEROIFNULL(amount) AS n FROM orders", "SELECT COALESCE(amount, 0) AS n FROM orders"),
        (
            "SELECT id FROM orders WHERE amount = (SELECT MAX(amount) FROM orders)",
            "SELECT id FROM orders WHERE amount IN (SELECT MAX(amount) FROM orders)",
        ),
        (
            "SELECT id FROM orders WHERE amount > (SELECT AVG(amount) FROM orders)",
            "SELECT id FROM (SELECT id, amount, 1 AS one FROM orders) "
            "JOIN (SELECT one, AVG(amount) AS a FROM (SELECT amount, 1 AS one FROM orders) GROUP BY one) USING (one) "
            "WHERE amount > a",
        ),
        (
            "SELECT * FROM orders PIVOT (SUM(amount) FOR region IN ('eu', 'us'))",
            "SELECT SUM(amount) FILTER (WHERE region = 'eu') AS eu, SUM(amount) FILTER (WHERE region = 'us') AS us "
            "FROM orders",
        ),
        ("SELECT id FROM orders TABLESAMPLE (10 PERCENT)", "SELECT id FROM orders WHERE id % 10 = 0"),
        ("SELECT MONTHS_BETWEEN(day, day) FROM orders", "SELECT DATEDIFF(day, day) AS d FROM orders"),
        ("SELECT DATE_ADD(MONTH, 1, day) FROM orders", "SELECT day + INTERVAL 1 MONTH AS d FROM orders"),
    ],
)
def test_what_is_refused_can_be_written_otherwise(catalog: Catalog, refused: str, instead: str) -> None:
    with pytest.raises(UnsupportedSql) as refusal:
        define_view(catalog, "v", refused)

    assert refusal.value.hint
    assert define_view(catalog, "v", instead)


def test_every_function_that_is_refused_has_a_way_round() -> None:
    assert all({**ways_round.AGGREGATES, **ways_round.FUNCTIONS}.values())
    assert ways_round.of_function("frobnicate") and ways_round.of_aggregate("kurtosis")


def test_is_distinct_from_is_the_opposite_of_null_safe_equality(catalog: Catalog) -> None:
    texts = ["region IS DISTINCT FROM 'eu'", "NOT region <=> 'eu'", "NOT (region IS NOT DISTINCT FROM 'eu')"]
    views = [define_view(catalog, "v", f"SELECT id FROM orders WHERE {text}")[0] for text in texts]

    assert views[0].node == views[1].node == views[2].node
