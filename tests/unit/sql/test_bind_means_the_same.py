"""A bound tree means what the text says: both are run by DuckDB, over tables with NULLs, and give the same bag of rows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import duckdb
import pytest

from tests.support.bind_tables import ROWS, bind, load, planned, rows_drawn, scan_sql
from viewkeeper.codegen.relation_sql import relation_sql

JOINS = """
SELECT a.k, a.x, b.z FROM a JOIN b ON a.x = b.x
SELECT a.k, b.k AS bk FROM a JOIN b ON a.x = b.x AND a.y <= b.z
SELECT a.k, b.k AS bk FROM a JOIN b ON a.x + 1 = b.k
SELECT a.k, b.k AS bk FROM a, b WHERE a.x = b.x AND a.s = 'r' AND b.z > 5
SELECT a.k, b.k AS bk FROM a CROSS JOIN b WHERE b.x = a.x AND b.z = a.y
SELECT a.k, b.k AS bk FROM a LEFT JOIN b ON a.x = b.x
SELECT a.k, b.k AS bk FROM a LEFT JOIN b ON a.x = b.x AND a.y > 10
SELECT a.k, b.k AS bk FROM a LEFT JOIN b ON a.x = b.x AND b.z > 10
SELECT a.k, b.k AS bk FROM a LEFT JOIN b ON a.x = b.x AND a.y = b.z WHERE a.s = 'r'
SELECT a.k, b.k AS bk FROM a LEFT JOIN b ON a.x = b.x AND a.y < b.z WHERE b.k IS NULL
SELECT a.k, b.k AS bk FROM a LEFT JOIN b ON a.x = b.x WHERE b.z > 10
SELECT a.k, b.k AS bk, s FROM a RIGHT JOIN b ON a.x = b.x AND b.z > 5 AND a.y > 5
SELECT a.k, b.k AS bk FROM a RIGHT JOIN b ON a.x = b.x AND a.y <> b.z WHERE b.z > 10
SELECT a.k, b.k AS bk FROM a FULL JOIN b ON a.x = b.x
SELECT a.k, b.k AS bk FROM a FULL JOIN b ON a.x = b.x AND a.y > 10 AND b.z > 10
SELECT a.k, b.k AS bk FROM a FULL OUTER JOIN b ON a.x = b.x WHERE a.k IS NULL OR b.z = 10
SELECT a.k, b.k AS bk, c.k AS ck FROM a JOIN b ON a.x = b.x JOIN c ON b.x = c.x
SELECT a.k, b.k AS bk, c.k AS ck FROM a, b, c WHERE a.x = b.x AND a.x = c.x AND b.z > 5
SELECT a.k, b.k AS bk, c.k AS ck FROM a, b, c WHERE a.k = c.k AND c.x = b.x
SELECT a.k, b.k AS bk, c.k AS ck FROM a, b, c WHERE a.x + b.k = c.k AND a.x = b.x
SELECT a.k, b.k AS bk, c.k AS ck, d.k AS dk FROM a, b, c, d WHERE a.x = d.x AND d.x = c.x AND b.k = a.k AND c.k < 9
SELECT a.k, b.k AS bk, c.k AS ck, d.p FROM a JOIN b ON a.x = b.x JOIN c ON c.x = a.x JOIN d ON d.x = c.x
SELECT a.k, b.k AS bk, c.k AS ck FROM a LEFT JOIN b ON a.x = b.x JOIN c ON c.k = a.k WHERE a.y > 1
SELECT a.k, b.k AS bk, c.k AS ck FROM a JOIN b ON a.x = b.x LEFT JOIN c ON c.k = b.k AND c.w = a.s
SELECT a.k, b.k AS bk, c.k AS ck FROM a LEFT JOIN b ON a.x = b.x LEFT JOIN c ON c.k = b.k
SELECT a.k, b.k AS bk, c.k AS ck FROM a LEFT JOIN (b JOIN c ON b.x = c.x) ON a.x = c.x
SELECT a.k, b.k AS bk, c.k AS ck FROM a JOIN (b LEFT JOIN c ON b.k = c.k) ON a.x = b.x WHERE b.z > 5
SELECT a.k, b.k AS bk FROM a JOIN b USING (x)
SELECT x, a.k, b.k AS bk FROM a LEFT JOIN b USING (x)
SELECT x, a.k, b.k AS bk FROM a RIGHT JOIN b USING (x)
SELECT x, a.x AS ax, b.x AS bx, a.k, b.k AS bk FROM a FULL JOIN b USING (x)
SELECT k, x, y, z FROM a FULL JOIN b USING (k, x)
SELECT k, y, z, w FROM a JOIN b USING (k) JOIN c USING (k)
SELECT k, y, z, w FROM a FULL JOIN b USING (k) FULL JOIN c USING (k)
SELECT u.k, v.k AS vk FROM a u JOIN a v ON u.x = v.y
SELECT a.k, d.k AS dk FROM a JOIN d ON a.y = d.p
SELECT a.k, b.z FROM a SEMI JOIN c ON a.x = c.x JOIN b ON a.k = b.k
SELECT k, s FROM a SEMI JOIN c ON a.x = c.x AND c.w = a.s
SELECT k, s FROM a ANTI JOIN c ON a.x = c.x AND a.y > 10
SELECT k FROM a ANTI JOIN c USING (x) WHERE y > 5
"""

QUERIES = """
SELECT x, COUNT(*) AS n, SUM(y) AS t FROM a GROUP BY x
SELECT b.x, COUNT(*) AS n, SUM(y) AS t FROM a JOIN b ON a.x = b.x GROUP BY b.x HAVING COUNT(*) > 1
SELECT s, COUNT(DISTINCT b.k) AS n FROM a LEFT JOIN b ON a.x = b.x GROUP BY s
SELECT COUNT(*) AS n, MIN(z) AS m FROM a JOIN b ON a.x = b.x WHERE y > 1000
SELECT DISTINCT s FROM a
SELECT DISTINCT a.s, b.z FROM a JOIN b ON a.x = b.x
SELECT DISTINCT COUNT(*) AS n FROM a GROUP BY x
SELECT DISTINCT n FROM (SELECT x, COUNT(*) AS n FROM a GROUP BY x)
SELECT t.n, COUNT(*) AS m FROM (SELECT x, COUNT(*) AS n FROM a GROUP BY x) AS t GROUP BY t.n
SELECT p, q FROM (SELECT x, COUNT(*) FROM a GROUP BY x) AS t(p, q) WHERE q > 1
SELECT a.k, t.n FROM a JOIN (SELECT x, COUNT(*) AS n FROM b GROUP BY x) t ON a.x = t.x WHERE n > 1
WITH t AS (SELECT x, COUNT(*) AS n FROM a GROUP BY x), u AS (SELECT n, x AS v FROM t WHERE n > 1) SELECT n, v FROM u
WITH t(p, q) AS (SELECT k, x FROM a) SELECT t.p, u.p AS up FROM t JOIN t AS u ON t.q = u.q
WITH a AS (SELECT k, x FROM b) SELECT a.k, c.w FROM a JOIN c ON a.x = c.x
SELECT x FROM (WITH t AS (SELECT x FROM b) SELECT x FROM t) WHERE x > 1
SELECT x, k + 1 AS k1 FROM (SELECT x, k FROM a WHERE y > 5) WHERE x IS NOT NULL
"""

SETS = """
SELECT x FROM a UNION ALL SELECT x FROM b
SELECT x FROM a UNION SELECT x FROM b
SELECT x FROM a UNION ALL SELECT z FROM b UNION ALL SELECT p FROM d
SELECT x, k FROM a UNION SELECT x, z FROM b UNION ALL SELECT x, k FROM c
SELECT x FROM a INTERSECT SELECT x FROM b
SELECT x FROM a EXCEPT SELECT x FROM b
SELECT x, s FROM a INTERSECT SELECT x, w FROM c
SELECT x FROM a EXCEPT SELECT x FROM b EXCEPT SELECT x FROM c
SELECT x FROM a UNION SELECT x FROM b INTERSECT SELECT x FROM c
(SELECT x FROM a UNION SELECT x FROM b) INTERSECT SELECT x FROM c
SELECT x FROM a EXCEPT (SELECT x FROM b EXCEPT SELECT x FROM c)
SELECT x FROM a EXCEPT SELECT p FROM d
SELECT x FROM a EXCEPT SELECT x FROM empty
SELECT n, COUNT(*) AS m FROM (SELECT x AS n FROM a UNION ALL SELECT k FROM b) t GROUP BY n
SELECT x FROM a JOIN b USING (x) UNION SELECT COUNT(*) AS n FROM c
"""

SUBQUERIES = """
SELECT k FROM a WHERE x IN (SELECT x FROM b)
SELECT k FROM a WHERE x NOT IN (SELECT x FROM b)
SELECT k FROM a WHERE x NOT IN (SELECT x FROM b WHERE x IS NOT NULL)
SELECT k FROM a WHERE x NOT IN (SELECT x FROM empty)
SELECT k FROM a WHERE x NOT IN (SELECT k FROM b)
SELECT k FROM a WHERE k NOT IN (SELECT k FROM b)
SELECT k FROM a WHERE k NOT IN (SELECT x FROM b)
SELECT k FROM a WHERE k NOT IN (SELECT x FROM b WHERE x > 1)
SELECT k FROM a WHERE x NOT IN (SELECT x FROM b WHERE b.z = a.y)
SELECT k FROM a WHERE x NOT IN (SELECT k FROM b WHERE b.z = a.y)
SELECT k FROM a WHERE k NOT IN (SELECT x FROM b WHERE b.z = a.y)
SELECT k FROM a WHERE k NOT IN (SELECT k FROM b WHERE b.z >= a.y)
SELECT k FROM a WHERE NOT (x IN (SELECT x FROM c)) AND y > 5
SELECT k FROM a WHERE x NOT IN (SELECT p FROM d)
SELECT k FROM a WHERE (x, y) IN (SELECT x, z FROM b)
SELECT k FROM a WHERE (k, k) NOT IN (SELECT k, k FROM b)
SELECT k FROM a WHERE x IN (SELECT x FROM b WHERE b.z >= a.y) AND s = 'r'
SELECT k FROM a WHERE x + 1 IN (SELECT k FROM b WHERE b.x = a.x AND b.z IS NOT NULL)
SELECT k FROM a WHERE 7 IN (SELECT x FROM b WHERE b.z = a.y)
SELECT k FROM a WHERE EXISTS (SELECT 1 FROM b WHERE b.x = a.x)
SELECT k FROM a WHERE NOT EXISTS (SELECT 1 FROM b WHERE b.x = a.x)
SELECT k FROM a WHERE EXISTS (SELECT * FROM b WHERE b.x = a.x AND b.z > a.y)
SELECT k FROM a WHERE NOT EXISTS (SELECT * FROM b WHERE a.x = b.x AND b.z > a.y AND a.s = 'r')
SELECT k FROM a WHERE EXISTS (SELECT 1 FROM empty)
SELECT k FROM a WHERE NOT EXISTS (SELECT 1 FROM empty)
SELECT k FROM a WHERE EXISTS (SELECT 1 FROM b WHERE z > 25)
SELECT k FROM a WHERE x IN (SELECT x FROM b GROUP BY x HAVING COUNT(*) > 1)
SELECT k FROM a WHERE x IN (SELECT MAX(x) FROM b)
SELECT k FROM a WHERE x NOT IN (SELECT MAX(x) FROM empty)
SELECT k FROM a WHERE x IN (SELECT x FROM b UNION SELECT k FROM c)
SELECT k FROM a WHERE x NOT IN (SELECT x FROM b INTERSECT SELECT k FROM c)
SELECT k FROM a WHERE x IN (SELECT b.x FROM b JOIN c ON b.x = c.x WHERE c.w = a.s)
SELECT k FROM a WHERE x IN (SELECT x FROM b WHERE k IN (SELECT k FROM c WHERE c.x = b.x))
SELECT k FROM a WHERE EXISTS (SELECT 1 FROM b WHERE b.x = a.x AND NOT EXISTS (SELECT 1 FROM c WHERE c.k = b.k))
SELECT a.k FROM a JOIN b ON a.x = b.x WHERE b.k NOT IN (SELECT x FROM c WHERE c.w = a.s)
SELECT a.k FROM a LEFT JOIN b ON a.x = b.x WHERE b.z NOT IN (SELECT y FROM a)
SELECT s, COUNT(*) AS n FROM a WHERE x IN (SELECT x FROM b) GROUP BY s
SELECT k FROM a WHERE x IN (WITH t AS (SELECT x FROM b WHERE z > 5) SELECT x FROM t)
SELECT k FROM a WHERE x IN (SELECT x FROM b ORDER BY k LIMIT 2)
SELECT k FROM a WHERE x IN (SELECT DISTINCT x FROM b WHERE b.k = a.k)
"""

TOPS = """
SELECT k, x FROM a ORDER BY x, k LIMIT 3
SELECT k, x FROM a ORDER BY x DESC, k DESC LIMIT 3
SELECT k FROM a ORDER BY x NULLS LAST, k LIMIT 3
SELECT k FROM a ORDER BY x DESC NULLS FIRST, 1 LIMIT 4
SELECT k AS i FROM a ORDER BY y * 2 DESC, -i LIMIT 3
SELECT x, COUNT(*) AS n FROM a GROUP BY x ORDER BY COUNT(*) DESC, SUM(y), x LIMIT 2
SELECT DISTINCT x FROM a ORDER BY x + 1 DESC LIMIT 2
SELECT x, k FROM a UNION ALL SELECT x, k + 10 FROM b ORDER BY x DESC, 2 LIMIT 4
SELECT k FROM (SELECT k, x FROM a ORDER BY y DESC, k LIMIT 4) ORDER BY k LIMIT 2
SELECT a.k, b.z FROM a JOIN b ON a.x = b.x ORDER BY b.k DESC, a.k LIMIT 2
(SELECT k FROM a ORDER BY k LIMIT 2) UNION ALL (SELECT k FROM b ORDER BY k DESC LIMIT 1)
"""


@pytest.fixture(scope="module", params=[None, 1, 2], ids=["written", "drawn 1", "drawn 2"])
def connection(request: pytest.FixtureRequest) -> Iterator[duckdb.DuckDBPyConnection]:
    rows = ROWS if request.param is None else rows_drawn(request.param)
    with duckdb.connect() as connection:
        connection.execute("SET default_null_order = 'nulls_first_on_asc_last_on_desc'")
        load(connection, rows)
        yield connection


def _lines(text: str) -> list[str]:
    return text.strip().splitlines()


@pytest.mark.parametrize("query", [line for part in (JOINS, QUERIES, SETS, SUBQUERIES, TOPS) for line in _lines(part)])
def test_the_tree_gives_the_rows_of_the_text(query: str, connection: duckdb.DuckDBPyConnection) -> None:
    expected = Counter(connection.sql(query).fetchall())
    for relation in (bind(query), planned(query)):
        assert Counter(connection.sql(relation_sql(relation, scan_sql)).fetchall()) == expected


def test_the_queries_find_rows(connection: duckdb.DuckDBPyConnection) -> None:
    """Answers that are all empty would prove nothing."""
    sizes = [len(connection.sql(query).fetchall()) for query in _lines(JOINS) + _lines(SUBQUERIES)]
    assert sum(size > 0 for size in sizes) > 0.5 * len(sizes)
