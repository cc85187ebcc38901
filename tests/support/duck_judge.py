"""DuckDB in the place of Spark as the judge of a check, and views of every shape for it.

In: an open database. Out: the port `Recompute`. Always: it judges by the rows as they are now, so without a pipeline behind.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import sqlglot

import viewkeeper as vk
from viewkeeper.check import check_views
from viewkeeper.errors import EpochFailed
from viewkeeper.model.schema import Column
from viewkeeper.sql.query_parser import ViewSpark

NO_SPARK: Any = "DuckDB judges"
BELOW = {
    "everything": "SELECT * FROM t",
    "some": "SELECT k, g, x + 1 AS x FROM t WHERE x < 9",
    "sums": "SELECT g, SUM(x) AS s, AVG(f) AS a, COUNT(*) AS n FROM t GROUP BY g",
}
TEXTS = {
    "plain": "SELECT k, x FROM t WHERE x > 1",
    "no_key": "SELECT g FROM t",
    "grouped": "SELECT g, SUM(f) AS s, MAX(x) AS hi FROM t GROUP BY g HAVING COUNT(*) > 1",
    "total": "SELECT COUNT(*) AS n, SUM(x) AS s FROM t WHERE x > 100",
    "distinct_rows": "SELECT DISTINCT g, x FROM t",
    "over_star": "SELECT * FROM everything WHERE x > 1",
    "over_some": "SELECT g, x FROM some WHERE x > 1",  # one node over t, though not a text over t
    "over_some_too": "SELECT k, x FROM some",
    "grouped_some": "SELECT g, COUNT(*) AS n FROM some GROUP BY g",
    "over_sums": "SELECT n, COUNT(*) AS c FROM sums GROUP BY n",
    "nested": "SELECT g, y FROM (SELECT g, x + 1 AS y FROM t) q WHERE y > 2",
    "nested_groups": "SELECT y, COUNT(*) AS n FROM (SELECT k, x + 1 AS y FROM t WHERE x < 9) q GROUP BY y",
    "common": "WITH t AS (SELECT k, x FROM t WHERE x < 9) SELECT k FROM t",
    "common_total": "WITH q AS (SELECT x FROM t WHERE x < 9) SELECT SUM(x) AS s FROM q",
    "named": "SELECT a.p, a.r FROM t AS a (p, q, r, s, w) WHERE a.r > 1",
    "joined": "SELECT t.k, u.x FROM t LEFT JOIN u ON t.g = u.g",
    "exists_in": "SELECT k FROM t WHERE EXISTS (SELECT 1 FROM u WHERE u.g = t.g)",
    "is_in": "SELECT k, x FROM t WHERE g IN (SELECT g FROM u WHERE x > 3)",
    "all_of": "SELECT k, x FROM t UNION ALL SELECT k, x FROM u",
    "top": "SELECT k, x FROM t ORDER BY x DESC, k LIMIT 2",
}


class DuckRecompute:
    """The port `Recompute` over the rows as they are now: behind the committed epoch a difference is to be found."""

    database: vk.Database

    def __init__(self, session: object, size_bytes: int) -> None:
        self._tables: dict[str, pa.Table] = {}

    def register(self, name: str, columns: Sequence[Column], file: Path) -> None:
        if name.startswith("__changed_"):
            self._tables[name] = pq.read_table(file).select([column.name for column in columns])
            return
        (table,) = [table for table in self.database.catalog().tables if name.startswith(f"__table_{table.id}_")]
        names = [column.name for column in columns]
        assert pq.read_schema(file).names[: len(names)] == names
        self._tables[name] = self.database.table(table.name).to_arrow().select(names)

    def answer(self, sql: str, target: Path, name: str | None = None) -> None:
        target.mkdir(exist_ok=True)
        with duckdb.connect() as connection:
            for table, rows in list(self._tables.items()):
                connection.register(table, rows)
            for function in ("sum", "avg"):
                connection.execute(f"CREATE MACRO try_{function}(x) AS {function}(x)")
            try:
                (plain,) = sqlglot.transpile(sql.replace("VIEWKEEPER_TRY", "TRY"), read=ViewSpark, write="duckdb")
                answer = connection.sql(plain).to_arrow_table()
            except duckdb.Error as error:
                raise EpochFailed(str(error)) from error
        if name is not None:
            self._tables[name] = answer
        named = answer if name else answer.rename_columns([f"c{place}" for place in range(answer.num_columns)])
        pq.write_table(named, target / "0.parquet")

    def cancel(self) -> None:
        pass


class DuckRecomputeOfFiles(DuckRecompute):
    """The same over the rows that the check wrote: those of one epoch, whatever is written meanwhile."""

    def register(self, name: str, columns: Sequence[Column], file: Path) -> None:
        self._tables[name] = pq.read_table(file).select([column.name for column in columns])


@contextmanager
def judged_by_duckdb() -> Iterator[None]:
    """Within the block DuckDB judges in the place of Spark, whose start takes as long as some epochs."""
    with patch.object(check_views, "SparkRecompute", DuckRecomputeOfFiles):
        yield
