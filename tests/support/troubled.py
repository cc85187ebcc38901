"""Views of every shape over rows on which their SQL fails, and over groups whose sum does not fit.

In: a database with tables `t` and `u`. Out: the same with views and such rows. Always: each of the views has rows set aside
or groups degraded, but for `some`, whose FILTER keeps the rows from failing.
"""

from __future__ import annotations

from viewkeeper.client.database import Database

MOST = 2**31 - 1
ROWS = {
    "shown": "SELECT k, x + 1 AS y FROM t",
    "over_shown": "SELECT y FROM shown WHERE y > 1",
    "grouped_shown": "SELECT y, COUNT(*) AS n FROM shown GROUP BY y",
    "kept": "SELECT k FROM t WHERE x + x > 2 AND g = 'p'",
    "unused": "SELECT k FROM (SELECT k, x + 1 AS y FROM t) q",
    "by_sum": "SELECT x + 1 AS y, COUNT(*) AS n FROM t GROUP BY x + 1",
    "by_place": "SELECT x + 1, 2 * (x + 1) AS z, COUNT(*) AS n FROM t GROUP BY 1",
    "nested": "SELECT n, COUNT(*) AS c FROM (SELECT g, COUNT(x + 1) AS n FROM t GROUP BY g) q GROUP BY n",
    "joined": "SELECT t.k, u.k AS o, t.x + u.x AS y FROM t JOIN u ON t.g = u.g",
    "keys_fail": "SELECT t.k, u.k AS o FROM t JOIN u ON t.x + 1 = u.x",
    "comma": "SELECT t.k, u.k AS o FROM t, u WHERE t.x + 1 = u.x",
    "left_key": "SELECT t.k, u.k AS o FROM t LEFT JOIN u ON t.x + 1 = u.x",
    "right_key": "SELECT t.k, u.k AS o FROM u RIGHT JOIN t ON u.x = t.x + 1",
    "other_key": "SELECT u.k, t.k AS o FROM u LEFT JOIN t ON u.x = t.x + 1",
    "full_key": "SELECT t.k, u.k AS o FROM t FULL JOIN u ON t.x + 1 = u.x",
    "anti_key": "SELECT t.k FROM t LEFT ANTI JOIN u ON t.x + 1 = u.x",
    "semi_key": "SELECT t.k FROM t LEFT SEMI JOIN u ON t.x + 1 = u.x",
    "in_some": "SELECT k FROM t WHERE x + 1 IN (SELECT x FROM u)",
    "not_in_none": "SELECT k FROM t WHERE x + 1 NOT IN (SELECT x FROM u WHERE x > 100)",
    "in_failing": "SELECT k FROM u WHERE x IN (SELECT x + 1 FROM t)",
    "branches": "SELECT k, x + 1 AS y FROM t UNION ALL SELECT k, x FROM t",
    "set_of": "SELECT x + 1 AS y FROM t EXCEPT SELECT x FROM u",
    "different": "SELECT DISTINCT g, x + 1 AS y FROM t",
    "first": "SELECT k, x + 1 AS y FROM t ORDER BY y DESC, k LIMIT 2",
    "first_by": "SELECT k FROM t ORDER BY x + 1 DESC, k LIMIT 2",
    "common": "WITH q AS (SELECT k, x + 1 AS y FROM t) SELECT a.k, b.y FROM q a JOIN q b ON a.k = b.k",
}
# Another engine must be able to try what is computed of groups, too.
GROUPS = {
    "summed": "SELECT g, SUM(x + 1) AS s, COUNT(*) AS n FROM t GROUP BY g",
    "some": "SELECT g, SUM(x + 1) FILTER (WHERE x < 100) AS s FROM t GROUP BY g",
    "above_groups": "SELECT n * 2147483647 * 4294967298 AS m FROM (SELECT g, SUM(x) AS n FROM t GROUP BY g) q",
    "joined_sum": "SELECT u.g, SUM(t.x + u.x) AS s FROM t JOIN u ON t.g = u.g GROUP BY u.g",
    "too_large": "SELECT g, SUM(w) AS s, COUNT(*) AS n FROM t GROUP BY g",
    "too_large_alone": "SELECT SUM(w) AS s, AVG(w) AS a FROM t",
    "too_large_below": "SELECT COUNT(s) AS n FROM (SELECT g, SUM(w) AS s FROM t GROUP BY g) q",
    "too_large_joined": "SELECT u.g, SUM(t.w) AS s FROM t JOIN u ON t.g = u.g GROUP BY u.g",
    "cannot_tell": "SELECT g, COUNT(*) AS n FROM t GROUP BY g HAVING SUM(w) > 0",
}


def make_tables(db: Database) -> None:
    for name in "tu":
        db.execute(f"CREATE TABLE {name} (k STRING PRIMARY KEY, g STRING, x INT, f DOUBLE, w BIGINT)")
    rows = [("a", "p", 1, 0.1), ("b", "p", 5, 0.2), ("c", "q", 9, -0.0), ("d", None, 2, None), ("e", "q", 9, 1e300)]
    db.table("t").put_many([dict(zip("kgxf", row, strict=True)) for row in rows])
    db.table("u").put_many([{"k": k, "g": g, "x": x} for k, g, x in (("a", "q", 3), ("z", "p", 4), ("y", None, 1))])


def make_trouble(db: Database, views: dict[str, str]) -> None:
    """Rows on which `x + 1` fails, and a group of which the sum of `w` leaves 64 bits."""
    for name, text in views.items():
        db.execute(f"CREATE MATERIALIZED VIEW {name} AS {text}")
    db.table("t").put_many([{"k": f"big{i}", "g": "p", "x": MOST, "w": 2**62} for i in range(3)])
    db.table("u").put("one more", {"g": "q", "x": 2})
