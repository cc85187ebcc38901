"""ORDER BY … LIMIT with ties: a SELECT returns the rows of the view of the same text, in the order of its ranks."""

from __future__ import annotations

import math
import random

import pytest

import viewkeeper as vk
from tests.support.tiers import examples

TABLES = (
    "CREATE TABLE t (k INT PRIMARY KEY, g INT, s STRING, d DOUBLE, b BOOLEAN, x INT)",
    "CREATE TABLE u (s STRING, n BIGINT, g INT, d DOUBLE, x INT, PRIMARY KEY (s, n))",
    "CREATE TABLE w (d DOUBLE PRIMARY KEY, g INT)",
    "CREATE TABLE e (g INT PRIMARY KEY, x INT)",
)
VIEWS = {
    "counted": "SELECT COUNT(*) AS n, MAX(x) AS x FROM t GROUP BY g, s",
    "distinct_rows": "SELECT DISTINCT s, g FROM t",
    "pairs": "SELECT t.x, u.x AS ux FROM t JOIN u ON t.g = u.g",
    "whole_pairs": "SELECT t.k, u.s, u.n, u.x FROM t JOIN u ON t.g = u.g",
    "first_rows": "SELECT g, x FROM t ORDER BY x DESC, g LIMIT 9",
    "least": "SELECT g, MIN(x) AS x FROM u GROUP BY g",
    "united": "SELECT x FROM t UNION ALL SELECT x FROM u",
}
# What a column `o` of few values is ordered by; the texts show as much of the key as they like.
QUERIES = """
SELECT x AS o, s FROM t
SELECT x AS o, g FROM u
SELECT d, g AS o FROM w
SELECT x AS o, k FROM t WHERE g IN (3, 1, 0) AND b
SELECT g, COUNT(*) AS o FROM t GROUP BY g
SELECT COUNT(*) AS o FROM t GROUP BY g
SELECT s, COUNT(*) AS o FROM t GROUP BY s
SELECT d, COUNT(*) AS o FROM t GROUP BY d
SELECT g, s, COUNT(*) AS o FROM t GROUP BY s, g
SELECT MAX(x) AS o, COUNT(d) AS n FROM t GROUP BY d, b, s
SELECT g, MIN(x) AS o FROM t GROUP BY g, s, b HAVING COUNT(*) < 9
SELECT COUNT(*) AS o FROM t
SELECT g + 1 AS h, COUNT(*) AS o FROM t GROUP BY g + 1
SELECT DISTINCT x AS o, s FROM t
SELECT DISTINCT s, d, x AS o FROM t
SELECT DISTINCT b, x AS o FROM (SELECT b, x, d FROM t UNION ALL SELECT TRUE, x, d FROM u)
SELECT x AS o, s FROM t UNION SELECT x, s FROM u
SELECT x AS o, s FROM t UNION ALL SELECT x, s FROM u
SELECT x AS o, s FROM u UNION ALL SELECT x, s FROM t UNION ALL SELECT COUNT(*), s FROM u GROUP BY n, s
SELECT o, s FROM (SELECT x AS o, s FROM u UNION ALL SELECT x, s FROM t) UNION ALL SELECT x, s FROM t WHERE b
SELECT x AS o, s FROM t EXCEPT SELECT x, s FROM u
SELECT x AS o, s FROM t INTERSECT SELECT x, s FROM u
SELECT o, s FROM (SELECT x + 1 AS o, s, b FROM (SELECT x, s, TRUE AS b FROM u UNION ALL SELECT x, s, b FROM t)) WHERE b
SELECT t.x AS o, u.x FROM t JOIN u ON t.g = u.g
SELECT u.x AS o, t.x FROM u JOIN t ON t.g = u.g AND t.s = u.s
SELECT t.x AS o, e.x FROM t JOIN e ON t.g = e.g
SELECT e.x AS o, t.x FROM e JOIN t ON t.g = e.g
SELECT t.x AS o, u.x, e.x AS ex FROM u JOIN e ON e.g = u.g JOIN t ON t.g = e.g
SELECT t.x AS o, w.g FROM w JOIN t ON t.d = w.d
SELECT t.x AS o, u.x FROM t LEFT JOIN u ON t.g = u.g AND t.x < u.x
SELECT t.x AS o, u.x FROM u RIGHT JOIN t ON t.g = u.g
SELECT e.x AS o, t.x FROM e LEFT JOIN t ON t.g = e.g
SELECT t.x AS o, u.x FROM t FULL JOIN u ON t.g = u.g AND t.s = u.s
SELECT c.x AS o, l.x FROM (SELECT g, MAX(x) AS x FROM t GROUP BY g, s) c FULL JOIN least l ON c.g = l.g
SELECT x AS o FROM t WHERE s IN (SELECT s FROM u)
SELECT x AS o, s FROM u WHERE NOT EXISTS (SELECT 1 FROM t WHERE t.g = u.g AND t.x > u.x)
SELECT x AS o FROM t WHERE g NOT IN (SELECT g FROM u WHERE u.s = t.s)
SELECT a.x AS o, b.n FROM t a JOIN (SELECT s, COUNT(*) AS n FROM t GROUP BY s) b ON a.s = b.s
SELECT a.n AS o, b.x FROM (SELECT s, COUNT(*) AS n FROM t GROUP BY s) a JOIN u b ON a.s = b.s
SELECT a.o AS o, b.x FROM (SELECT x AS o, g FROM t UNION ALL SELECT x, g FROM u) a JOIN u b ON a.g = b.g
SELECT g % 2 AS o, x FROM (SELECT g, x FROM t ORDER BY x DESC LIMIT 8)
SELECT a.g % 2 AS o, u.s FROM (SELECT g, x FROM t ORDER BY x DESC, s LIMIT 8) a JOIN u ON a.g = u.g
(SELECT x AS o, s FROM t ORDER BY b LIMIT 9) UNION ALL (SELECT x, s FROM u ORDER BY x DESC LIMIT 6)
SELECT o, COUNT(*) AS n FROM (SELECT x AS o FROM t ORDER BY b, x LIMIT 9) GROUP BY o
SELECT n AS o, x FROM counted
SELECT g AS o, s FROM distinct_rows
SELECT x AS o, ux FROM pairs
SELECT g % 2 AS o, x FROM first_rows
SELECT x AS o FROM united
SELECT c.x AS o, t.k FROM counted c JOIN t ON c.n = t.x
SELECT p.x AS o, t.s FROM whole_pairs p JOIN t ON p.k = t.k
SELECT p.x AS o, u.x FROM whole_pairs p JOIN (SELECT k, s AS us, x, 1 AS n FROM t) u ON p.k = u.x AND p.s = u.us
SELECT p.x AS o, z.x FROM whole_pairs p JOIN t AS z ON p.k = z.g AND p.s = z.s AND p.n = z.g
SELECT d.g AS o, t.x FROM t JOIN distinct_rows d ON d.s = t.s AND d.g = t.g
SELECT x AS o, COUNT(*) AS n FROM pairs GROUP BY x
SELECT x AS o FROM united UNION ALL SELECT n FROM counted UNION ALL SELECT x FROM pairs
""".strip().splitlines()
TEXTS = [None, "", "a", "aa", "a\0", "z", "é", "ß", "日本", "\U0001f600", "\uffff"]
DOUBLES = [None, 0.0, -0.0, 1.5, -1.5, math.nan, math.inf, -math.inf]
ORDERS = ("o", "o DESC", "o NULLS LAST", "o DESC NULLS FIRST")


def fill(db: vk.Database, source: random.Random) -> None:
    def small() -> int | None:
        return source.choice([None, 0, 1, 2, 3])

    def of_u(s: str, n: int) -> dict[str, object]:
        return {"s": s, "n": n, "g": small(), "d": source.choice(DOUBLES), "x": source.choice([0, 1])}

    rows = [
        {"k": source.randrange(-60, 60), "g": small(), "s": source.choice(TEXTS), "d": source.choice(DOUBLES),
         "b": source.choice([None, True, False]), "x": source.choice([None, 0, 1])}
        for _ in range(40)
    ]  # fmt: skip
    db.table("t").put_many(rows)
    db.table("u").put_many([of_u(source.choice(TEXTS[1:]), source.randrange(-3, 4)) for _ in range(25)])
    db.table("w").put_many([{"d": one, "g": small()} for one in DOUBLES[1:]])
    db.table("e").put_many([{"g": one, "x": source.choice([0, 1])} for one in range(4)])


def seen(value: object) -> str:
    """NaN equals NaN, and -0.0 equals 0.0."""
    return repr(value + 0.0 if isinstance(value, float) else value)


@pytest.mark.parametrize("seed", range(examples(1, deep=30)))
def test_a_select_has_the_rows_of_the_view_in_its_order(seed: int) -> None:
    source, db = random.Random(seed), vk.connect("memory:")
    for statement in (*TABLES, *(f"CREATE MATERIALIZED VIEW {name} AS {text}" for name, text in VIEWS.items())):
        db.execute(statement)
    fill(db, source)
    texts = [f"{query} ORDER BY {source.choice(ORDERS)} LIMIT {source.choice([1, 2, 5, 9])}" for query in QUERIES]
    for number, text in enumerate(texts):
        db.execute(f"CREATE MATERIALIZED VIEW v{number} AS {text}")
    with db.pipeline(engine="driver") as pipeline:
        pipeline.run_available()

    for number, text in enumerate(texts):
        kept = [tuple(map(seen, record.values())) for record in db.view(f"v{number}").scan()]
        assert [tuple(map(seen, row)) for row in db.execute(text).rows] == kept, text


def test_order_by_alone_begins_with_the_rows_that_a_limit_keeps() -> None:
    db = vk.connect("memory:")
    for statement in TABLES:
        db.execute(statement)
    fill(db, random.Random(1))
    text = "SELECT s, COUNT(*) AS n FROM t GROUP BY s ORDER BY n"

    whole = db.execute(text).rows

    assert [db.execute(f"{text} LIMIT 1 OFFSET {at}").rows[0] for at in range(len(whole))] == list(whole)
    assert db.execute(f"{text} LIMIT 4").rows == whole[:4]
