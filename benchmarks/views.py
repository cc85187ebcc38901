"""Views: what is kept over the workload's table.

In: a name. Out: the SQL of each view. Always: the text means the same to Spark and to DuckDB, so that the judge computes it
as it stands.
"""

from __future__ import annotations

V1 = "SELECT x, COUNT(*) AS n, SUM(y) AS s FROM r GROUP BY x"
V2 = "SELECT x, MIN(y) AS lo, MAX(y) AS hi FROM r GROUP BY x"
V3 = "SELECT r.k, r.x, r.y, s.name, s.z FROM r JOIN s ON r.x = s.x"  # S is the table of `join_workload`

_BAND = 200  # five bands of y
_SELECTIONS = tuple(
    f"SELECT {shown}COUNT(*) AS n, SUM(y) AS s FROM r WHERE y >= {low} AND y < {low + _BAND}{grouped}"
    for shown, grouped in (("", ""), ("x, ", " GROUP BY x"))
    for low in range(0, 5 * _BAND, _BAND)
)
_GROUPINGS = tuple(
    f"SELECT {', '.join(f'{key} AS g{i}' for i, key in enumerate(keys))}, {aggregates} FROM r GROUP BY {', '.join(keys)}"
    for keys, aggregates in (
        (("x",), "COUNT(*) AS n, AVG(y) AS a"),
        (("x % 10",), "COUNT(*) AS n, SUM(y) AS s"),
        (("x % 100",), "COUNT(*) AS n, SUM(y) AS s, AVG(y) AS a"),
        (("x % 1000",), "COUNT(*) AS n, AVG(y) AS a"),
        (("x - x % 100",), "COUNT(*) AS n, SUM(y) AS s"),
        (("y",), "COUNT(*) AS n, SUM(x) AS s"),
        (("y % 7",), "COUNT(*) AS n, AVG(x) AS a"),
        (("y - y % 50",), "SUM(x) AS s, SUM(y) AS t"),
        (("x % 10", "y % 7"), "COUNT(*) AS n, SUM(y) AS s"),
        (("x % 100", "y % 10"), "COUNT(*) AS n, SUM(x) AS s, AVG(y) AS a"),
    )
)
V4 = _SELECTIONS + _GROUPINGS

# The views that live in one store together.
VIEW_SETS: dict[str, tuple[str, ...]] = {"V1": (V1,), "V2": (V2,), "V4": V4}
