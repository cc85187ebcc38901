"""HBase views: how many base changes a second does each kind of view take (paper 1, figures 6 to 8)?

In: sizes. Out: changes per second of each view, by one process without Spark and by jobs of 1, 2 and 4 view managers.
Always: one view in a store of its own at a time, over the same base tables; each turn has as many new changes, all of
them in HBase's logs before it begins, and of three turns the fastest counts; every view is compared with a recomputation.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from benchmarks import live_run
from benchmarks.hbase_case import Base, base_tables, fastest, require_views, run, store_over
from benchmarks.hbase_site import running
from benchmarks.options import Options

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# By figure of the paper.
VIEWS: dict[str, dict[str, str]] = {
    "6": {
        "selection 10 %": "SELECT k, x, y FROM r WHERE y < 100",
        "selection 50 %": "SELECT k, x, y FROM r WHERE y < 500",
        "selection 90 %": "SELECT k, x, y FROM r WHERE y < 900",
    },
    "7": {
        "COUNT": "SELECT x, COUNT(*) AS n FROM r GROUP BY x",
        "SUM": "SELECT x, SUM(y) AS s FROM r GROUP BY x",
        "INDEX": "CREATE INDEX v1 ON r (x)",
        "MIN": "SELECT x, MIN(y) AS lo FROM r GROUP BY x",
        "MAX": "SELECT x, MAX(y) AS hi FROM r GROUP BY x",
    },
    "8": {"JOIN": "SELECT r.k, r.x, r.y, s.z FROM r JOIN s ON r.x = s.k"},
}
MANAGERS = (1, 2, 4)
HERE = "one process"


def measure(options: Options) -> dict[str, Any]:
    spark = live_run.session_with(max(MANAGERS))
    with running() as hbase, base_tables(hbase, options.hbase_workload()) as base:
        found = {
            figure: {name: _turns(base, sql, name, options, spark) for name, sql in views.items()}
            for figure, views in VIEWS.items()
        }
    return {"rows": options.hbase_rows, "changes": options.hbase_changes, "seed": options.seed, "figures": found}


def _turns(base: Base, sql: str, name: str, options: Options, spark: SparkSession) -> dict[str, int]:
    """Changes per second by managers; one turn before the others warms up."""
    found: dict[str, int] = {}
    with store_over(base, [sql]) as db:
        run(base, db, base.write(options.hbase_changes // 10), spark, max(MANAGERS))
        for managers in (0, *MANAGERS):
            ran = fastest(base, db, options.hbase_changes, spark if managers else None, managers or 1)
            found[str(managers) if managers else HERE] = ran.changes_per_second
        require_views(base, db, [sql], name)
    return found


def tell(figures: Mapping) -> Iterator[str]:
    yield f"{figures['rows']:,} rows, {figures['changes']:,} changes a turn; changes/s"
    columns = [HERE, *map(str, MANAGERS)]
    yield f"  {'view':16}" + "".join(f"{name + (' managers' if name != HERE else ''):>14}" for name in columns)
    for views in figures["figures"].values():
        for name, found in views.items():
            yield f"  {name:16}" + "".join(f"{found[column]:14,}" for column in columns)
