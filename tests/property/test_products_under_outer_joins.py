"""`FROM a, b RIGHT JOIN c … WHERE a.x = b.x`: WHERE has the key of a product inside of an outer join; the view is its text.

DuckDB gets CROSS JOIN for each comma, because only in Spark, and here, a comma binds as strongly as JOIN.
"""

from __future__ import annotations

import random
from collections import Counter

import duckdb
import pytest

import viewkeeper as vk
from tests.support.running import keep_up
from tests.support.tiers import examples

COLUMNS = "a.k AS ak, a.x AS ax, b.k AS bk, b.x AS bx, b.y AS yb, c.k AS ck, c.y AS cy"
TEXTS = {
    "right": f"SELECT {COLUMNS} FROM a, b RIGHT JOIN c ON b.y = c.y WHERE a.x = b.x",
    "full": f"SELECT {COLUMNS} FROM a, b FULL JOIN c ON b.y = c.y WHERE a.x = b.x",
    "left": f"SELECT {COLUMNS} FROM a, b LEFT JOIN c ON b.y = c.y WHERE a.x = b.x",
    "residual": f"SELECT {COLUMNS} FROM a, b RIGHT JOIN c ON b.y = c.y AND a.k < c.k WHERE a.x = b.x AND c.k > 1",
    "full_residual": f"SELECT {COLUMNS} FROM a, b FULL JOIN c ON b.y = c.y AND a.k < c.k WHERE a.x = b.x",
    "second_side": f"SELECT {COLUMNS} FROM c LEFT JOIN (a CROSS JOIN b) ON b.y = c.y WHERE a.x = b.x",
    "full_second": f"SELECT {COLUMNS} FROM c FULL JOIN (a CROSS JOIN b) ON b.y = c.y WHERE a.x = b.x",
    "coalesced": f"SELECT {COLUMNS} FROM a, b RIGHT JOIN c ON b.y = c.y WHERE COALESCE(a.x, 1) = b.x",
    "twice": f"SELECT {COLUMNS}, d.k AS dk FROM a, b RIGHT JOIN c ON b.y = c.y RIGHT JOIN c d ON d.k = c.k WHERE a.x = b.x",
    "next": f"SELECT {COLUMNS}, d.k AS dk FROM a, b RIGHT JOIN c ON b.y = c.y FULL JOIN c d ON d.k = a.k WHERE a.x = b.x",
    "grouped": "SELECT c.y, COUNT(a.k) AS n FROM a, b RIGHT JOIN c ON b.y = c.y WHERE a.x = b.x GROUP BY c.y",
}


def _change(db: vk.Database, source: random.Random) -> None:
    for _ in range(12):
        name, values = source.choice([("a", "x"), ("b", "xy"), ("c", "y")])
        row = {column: source.choice((None, 1, 2, 3)) for column in values}
        table, key = db.table(name), source.randrange(6)
        table.put(key, row) if source.random() < 0.8 else table.delete(key)


def _wrong(db: vk.Database) -> list[str]:
    with duckdb.connect() as judge:
        for name in "abc":
            judge.register(name, db.table(name).to_arrow())
        return [
            name
            for name, text in TEXTS.items()
            if Counter(judge.sql(text.replace("FROM a, b", "FROM a CROSS JOIN b")).fetchall())
            != Counter(tuple(row.values()) for row in db.view(f"{name}_v").scan())
        ]


@pytest.mark.parametrize("seed", range(examples(1, deep=4)))
def test_views_with_a_product_inside_of_an_outer_join_are_what_their_texts_say(seed: int) -> None:
    source, db = random.Random(seed), vk.connect("memory:")
    db.execute("CREATE TABLE a (k INT PRIMARY KEY, x INT); CREATE TABLE c (k INT PRIMARY KEY, y INT)")
    db.execute("CREATE TABLE b (k INT PRIMARY KEY, x INT, y INT)")
    _change(db, source)
    for name, text in TEXTS.items():
        db.execute(f"CREATE MATERIALIZED VIEW {name}_v AS {text}")
    for _ in range(examples(2, deep=5)):
        keep_up(db)
        assert _wrong(db) == []
        _change(db, source)


@pytest.mark.parametrize(
    "where", ["a.x <=> b.x", "COALESCE(a.x, 1) = COALESCE(b.x, 1)", "a.x = b.x OR a.k = 1", "a.x = c.y", "a.x > b.x"]
)
def test_a_condition_that_may_hold_where_the_side_is_absent_is_no_key_of_it(where: str) -> None:
    db = vk.connect("memory:")
    db.execute("CREATE TABLE a (k INT PRIMARY KEY, x INT); CREATE TABLE c (k INT PRIMARY KEY, y INT)")
    db.execute("CREATE TABLE b (k INT PRIMARY KEY, x INT, y INT)")

    with pytest.raises(vk.UnsupportedSql, match="has no equality between its sides"):
        db.execute(f"CREATE MATERIALIZED VIEW v AS SELECT {COLUMNS} FROM a, b FULL JOIN c ON b.y = c.y WHERE {where}")
