"""Views of every kind over two small tables, as text that DuckDB understands too.

In: a name. Out: what to execute, and the SELECT that says what the view must hold. Always: a view stands after those that it
reads; NULLs have their place in every order.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import pyarrow as pa

from tests.support.oracle import exact_sum

# Column `a` audits: the i-th put of a row of `l` adds 4^i to it, so digit i of a sum, in base 4, is how often it counted.
TABLES = {
    "l": "CREATE TABLE l (k STRING PRIMARY KEY, j STRING, x INT, f DOUBLE, a DECIMAL(38,0))",
    "r": "CREATE TABLE r (k STRING PRIMARY KEY, j STRING, y INT)",
}
COLUMNS = {
    "l": {"k": pa.string(), "j": pa.string(), "x": pa.int32(), "f": pa.float64(), "a": pa.decimal128(38, 0)},
    "r": {"k": pa.string(), "j": pa.string(), "y": pa.int32()},
}
AUDITED_MAX = 60  # 4^60 and all smaller powers together have 37 digits


def _same(row: tuple) -> tuple:
    return row


@dataclass(frozen=True, slots=True)
class Kind:
    """One view, the others that it reads, and those that it can share a grouping with."""

    name: str
    query: str
    reads: tuple[str, ...] = ()
    index: str = ""
    aggregations: bool = False  # a row is made from the one before, without a join
    beside: tuple[str, ...] = ()
    asked: str = ""  # of DuckDB, where it means something else by the query
    finish: Callable[[tuple], tuple] = _same  # what Python makes of a row of DuckDB
    aside: str = ""  # the rows on which an expression fails

    @property
    def create(self) -> str:
        return self.index or f"CREATE MATERIALIZED VIEW {self.name} AS {self.query}"

    @property
    def replace(self) -> str:
        return self.create.replace("CREATE", "CREATE OR REPLACE", 1)

    @property
    def drop(self) -> str:
        return f"DROP {'INDEX' if self.index else 'MATERIALIZED VIEW'} {self.name}"


_SHOWN = "l.k AS lk, l.j AS lj, l.x, r.k AS rk, r.y"
_MATCH = "EXISTS (SELECT 1 FROM r WHERE r.j = l.j AND l.x < r.y)"
_ALL = (
    Kind("selection", "SELECT k, j, x FROM l WHERE x > 2"),
    Kind("projection", "SELECT k, x + 1 AS x1 FROM l"),
    Kind("indexed", "SELECT j, k, x FROM l", index="CREATE INDEX indexed ON l (j) INCLUDE (x)"),
    Kind(
        "quotients",
        "SELECT k, 12 / (x - 2) AS q FROM l",
        asked="SELECT k, 12 / (x - 2) AS q FROM l WHERE x IS NULL OR x <> 2",
        aside="SELECT k FROM l WHERE x = 2",
    ),
    Kind("audit", "SELECT SUM(a) AS s, COUNT(*) AS n FROM l", aggregations=True),
    Kind("audit_by_group", "SELECT j, SUM(a) AS s FROM l GROUP BY j", aggregations=True),
    Kind("counts", "SELECT j, COUNT(*) AS n, SUM(x) AS s, COUNT(x) AS nx FROM l GROUP BY j", aggregations=True),
    Kind("some_counts", "SELECT j, COUNT(*) AS n, MIN(x) AS lo FROM l WHERE x > 2 GROUP BY j", beside=("counts",)),
    Kind("averages", "SELECT x, AVG(y) AS a FROM (SELECT y, y % 2 AS x FROM r) GROUP BY x", aggregations=True),
    Kind("total", "SELECT COUNT(*) AS n, SUM(y) AS s FROM r", aggregations=True),
    Kind(
        "doubles",
        "SELECT j, SUM(f) AS s FROM l GROUP BY j",
        aggregations=True,
        asked="SELECT j, list(f) FILTER (f IS NOT NULL) FROM l GROUP BY j",
        finish=lambda row: (row[0], exact_sum(row[1])),
    ),
    Kind("extremes", "SELECT j, MIN(x) AS lo, MAX(x) AS hi FROM l GROUP BY j", aggregations=True),
    Kind("distinct_count", "SELECT j, COUNT(DISTINCT y) AS n, MAX(y) AS hi FROM r GROUP BY j", aggregations=True),
    Kind("distinct_rows", "SELECT DISTINCT j, x FROM l", aggregations=True),
    Kind("having", "SELECT j, COUNT(*) AS n, MIN(x) AS lo FROM l GROUP BY j HAVING COUNT(*) > 1", aggregations=True),
    Kind("inner_join", f"SELECT {_SHOWN} FROM l JOIN r ON l.j = r.j"),
    Kind("theta_join", f"SELECT {_SHOWN} FROM l JOIN r ON l.j = r.j AND l.x < r.y"),
    Kind("three_joined", "SELECT l.k, r.k AS rk, m.x FROM l JOIN r ON l.j = r.j JOIN l m ON m.j = r.j"),
    Kind("left_join", f"SELECT {_SHOWN} FROM l LEFT JOIN r ON l.j = r.j AND l.x < r.y"),
    Kind("right_join", f"SELECT {_SHOWN} FROM l RIGHT JOIN r ON l.j = r.j"),
    Kind("full_join", f"SELECT {_SHOWN} FROM l FULL JOIN r ON l.j = r.j"),
    Kind("lookup", "SELECT l.k, l.x, r.y FROM l JOIN r ON l.j = r.k"),
    Kind("left_lookup", "SELECT l.k, l.x, r.y FROM l LEFT JOIN r ON l.j = r.k"),
    Kind("semi_join", f"SELECT k, j, x FROM l WHERE {_MATCH}"),
    Kind("anti_join", f"SELECT k, j, x FROM l WHERE NOT {_MATCH}"),
    Kind("joined_counts", "SELECT l.j, COUNT(*) AS n, MAX(r.y) AS hi FROM l JOIN r ON l.j = r.j GROUP BY l.j"),
    Kind("union_rows", "SELECT j, x FROM l UNION SELECT j, y FROM r"),
    Kind("union_all", "SELECT j, x FROM l UNION ALL SELECT j, y FROM r"),
    Kind("intersect_rows", "SELECT j FROM l INTERSECT SELECT j FROM r"),
    Kind("except_rows", "SELECT j FROM l EXCEPT SELECT j FROM r"),
    Kind("top", "SELECT k, x FROM l ORDER BY x DESC NULLS LAST, k LIMIT 2"),
    Kind("over_a_view", "SELECT n, COUNT(*) AS groups FROM counts GROUP BY n", ("counts",)),
    Kind("over_a_join", "SELECT rk, COUNT(*) AS n, MIN(x) AS lo FROM inner_join GROUP BY rk", ("inner_join",)),
)
KINDS = {kind.name: kind for kind in _ALL}


def with_their_sources(names: list[str]) -> list[Kind]:
    """The views of these names, those that they read or stand beside, in an order in which they can be made."""
    wanted = {*names, *(other for name in names for other in (*KINDS[name].reads, *KINDS[name].beside))}
    return [kind for kind in _ALL if kind.name in wanted]
