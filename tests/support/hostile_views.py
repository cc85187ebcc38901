"""Views of every kind over two small tables, as text that DuckDB understands too.

In: a name. Out: what to execute, and the SELECT that says what the view must hold. Always: a view stands after those that it
reads; NULLs have their place in every order.
"""

from __future__ import annotations

from dataclasses import dataclass

TABLES = {
    "l": "CREATE TABLE l (k STRING PRIMARY KEY, j STRING, x INT)",
    "r": "CREATE TABLE r (k STRING PRIMARY KEY, j STRING, y INT)",
}
COLUMNS = {"l": ("k", "j", "x"), "r": ("k", "j", "y")}


@dataclass(frozen=True, slots=True)
class Kind:
    """One view, the others that it reads, and those that it can share a grouping with."""

    name: str
    query: str
    reads: tuple[str, ...] = ()
    index: str = ""
    aggregations: bool = False  # a row is made from the one before, without a join
    beside: tuple[str, ...] = ()

    @property
    def create(self) -> str:
        return self.index or f"CREATE MATERIALIZED VIEW {self.name} AS {self.query}"

    @property
    def drop(self) -> str:
        return f"DROP {'INDEX' if self.index else 'MATERIALIZED VIEW'} {self.name}"


_SHOWN = "l.k AS lk, l.j AS lj, l.x, r.k AS rk, r.y"
_MATCH = "EXISTS (SELECT 1 FROM r WHERE r.j = l.j AND l.x < r.y)"
_ALL = (
    Kind("selection", "SELECT k, j, x FROM l WHERE x > 2"),
    Kind("projection", "SELECT k, x + 1 AS x1 FROM l"),
    Kind("indexed", "SELECT j, k, x FROM l", index="CREATE INDEX indexed ON l (j) INCLUDE (x)"),
    Kind("counts", "SELECT j, COUNT(*) AS n, SUM(x) AS s, COUNT(x) AS nx FROM l GROUP BY j", aggregations=True),
    Kind("some_counts", "SELECT j, COUNT(*) AS n, MIN(x) AS lo FROM l WHERE x > 2 GROUP BY j", beside=("counts",)),
    Kind("total", "SELECT COUNT(*) AS n, SUM(y) AS s FROM r", aggregations=True),
    Kind("extremes", "SELECT j, MIN(x) AS lo, MAX(x) AS hi FROM l GROUP BY j", aggregations=True),
    Kind("distinct_count", "SELECT j, COUNT(DISTINCT y) AS n, MAX(y) AS hi FROM r GROUP BY j", aggregations=True),
    Kind("distinct_rows", "SELECT DISTINCT j, x FROM l", aggregations=True),
    Kind("having", "SELECT j, COUNT(*) AS n, MIN(x) AS lo FROM l GROUP BY j HAVING COUNT(*) > 1", aggregations=True),
    Kind("inner_join", f"SELECT {_SHOWN} FROM l JOIN r ON l.j = r.j"),
    Kind("left_join", f"SELECT {_SHOWN} FROM l LEFT JOIN r ON l.j = r.j AND l.x < r.y"),
    Kind("full_join", f"SELECT {_SHOWN} FROM l FULL JOIN r ON l.j = r.j"),
    Kind("semi_join", f"SELECT k, j, x FROM l WHERE {_MATCH}"),
    Kind("anti_join", f"SELECT k, j, x FROM l WHERE NOT {_MATCH}"),
    Kind("joined_counts", "SELECT l.j, COUNT(*) AS n, MAX(r.y) AS hi FROM l JOIN r ON l.j = r.j GROUP BY l.j"),
    Kind("union_rows", "SELECT j, x FROM l UNION SELECT j, y FROM r"),
    Kind("union_all", "SELECT j, x FROM l UNION ALL SELECT j, y FROM r"),
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
