"""DuckDB's shares: how much of a grouping query is expressions, and how much is grouping?

In: the queries that an epoch ran, with their input. Out: shares of operators. Always: each query is run again after the
measurement, with DuckDB's own profile, on the largest input it had, so that profiling costs the measured epoch nothing.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from unittest import mock

import duckdb
import pyarrow as pa

from viewkeeper.operators import contributions

EXPRESSIONS, SCAN = "expressions (DuckDB)", "Arrow in and out (DuckDB)"
_EXPRESSIONS = ("PROJECTION", "FILTER")
_GROUPING = ("GROUP_BY", "AGGREGATE")

Queries = dict[str, dict[str, pa.Table]]


@contextmanager
def remembered() -> Iterator[Queries]:
    """The grouping queries that run while the block does, each with its largest input."""
    queries: Queries = {}
    run_sql = contributions.run_sql

    def remember(sql: str, **relations: pa.Table) -> pa.Table:
        known = queries.get(sql)
        if "images" in relations and (known is None or len(known["images"]) < len(relations["images"])):
            queries[sql] = dict(relations)
        return run_sql(sql, **relations)

    with mock.patch.object(contributions, "run_sql", remember):
        yield queries


def shares_of(queries: Queries) -> dict[str, float]:
    """The shares of all these queries' time that are not grouping."""
    seconds = {EXPRESSIONS: 0.0, SCAN: 0.0, "grouping": 0.0}
    for sql, relations in queries.items():
        for kind, spent in _operators(sql, relations):
            name = (
                "grouping" if any(word in kind for word in _GROUPING) else EXPRESSIONS if kind in _EXPRESSIONS else SCAN
            )
            seconds[name] += spent
    total = sum(seconds.values())
    return {name: seconds[name] / total for name in (EXPRESSIONS, SCAN)} if total else {}


def _operators(sql: str, relations: Mapping[str, pa.Table]) -> Iterator[tuple[str, float]]:
    with duckdb.connect() as connection:
        connection.execute("SET threads = 1")
        for name, relation in relations.items():
            connection.register(name, relation)
        ((_, told),) = connection.execute(f"EXPLAIN (ANALYZE, FORMAT JSON) {sql}").fetchall()
    waiting = list(json.loads(told)["operator"])
    while waiting:
        operator = waiting.pop()
        waiting += operator.get("children", [])
        yield operator["type"].upper(), operator["timing"]
