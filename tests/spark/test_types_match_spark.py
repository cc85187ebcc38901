"""The bound types and DuckDB's values are Spark's: one table of expressions, judged by Spark itself.

A value that fails in Spark (ANSI) must be set aside by our SQL, and the other way round. What Spark confirmed is recorded;
`tests/golden/test_spark_answers.py` compares with that in every run.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from tests.support.confirmed import confirm, of_expressions
from tests.support.groupings import groups_of
from tests.support.spark_match import entries, listed, wrong_failures, wrong_types, wrong_values
from tests.support.type_cases import TYPE_EXPRESSIONS, TYPES
from viewkeeper.algebra.relations import Scan
from viewkeeper.plan.lower import lower_view
from viewkeeper.sql.bind_query import bind_query

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(scope="module")
def delta(spark: SparkSession) -> Iterator[pa.Table]:
    """The rows for DuckDB; for Spark they are the view `t`."""
    TYPES.show(spark)
    spark.sparkContext.setLogLevel("OFF")
    yield TYPES.delta()
    spark.sparkContext.setLogLevel("ERROR")


def test_each_type_is_the_one_of_sparks_analyzer(spark: SparkSession, delta: pa.Table) -> None:
    assert wrong_types(spark, TYPES, TYPE_EXPRESSIONS) == []


def test_each_value_is_sparks(spark: SparkSession, delta: pa.Table) -> None:
    assert wrong_values(spark, TYPES, delta, TYPE_EXPRESSIONS) == []


@pytest.mark.deep
def test_exactly_the_rows_that_fail_in_spark_are_set_aside(spark: SparkSession, delta: pa.Table) -> None:
    assert wrong_types(spark, TYPES, TYPE_EXPRESSIONS) == []
    assert wrong_values(spark, TYPES, delta, TYPE_EXPRESSIONS) == []
    assert wrong_failures(spark, TYPES, delta, TYPE_EXPRESSIONS) == []
    confirm("functions", TYPES.name, of_expressions(TYPES, TYPE_EXPRESSIONS))


AGGREGATES = """
count(*); count(i); count(1); sum(i); sum(j); sum(d); sum(h); sum(g); avg(i); avg(j); avg(d); avg(h); avg(g)
sum(i) / count(*); sum(d) / count(*); sum(d) / count(d); sum(j) + 1; sum(d) * 2; avg(d) + 1
sum(case when p then 1 else 0 end); count(s); sum(cast(p as int)); avg(j * 2); sum(j + 0.5); count(*) * 2; -sum(j)
coalesce(sum(j), 0); sum(1); avg(1.5); sum(d) % 7; sum(cast(e as decimal(38,9))); avg(cast(e as decimal(36,4)))
avg(cast(e as decimal(34,5))); sum(cast(e as decimal(36,4))) + 1.5
sum(cast(d as decimal(15,2)) * (1 - cast(d as decimal(15,2))) * (1 + cast(d as decimal(15,2))))
sum(cast(e as decimal(36,2))); avg(cast(h as decimal(38,36))); sum(cast(g as decimal(30,4)) * d)
"""
ALL_AGGREGATES = entries(AGGREGATES)


@pytest.mark.parametrize("group", ["", " GROUP BY p", " GROUP BY f", " GROUP BY i % 2"])
def test_each_aggregate_is_sparks(spark: SparkSession, delta: pa.Table, group: str) -> None:
    key = group.removeprefix(" GROUP BY ") or "null"
    names = {f"o{place}": text for place, text in enumerate(ALL_AGGREGATES)}
    frame = spark.sql(f"SELECT {key} AS k, {listed(names)} FROM t{group}")
    rows = frame.collect()
    wrong: list[tuple[object, ...]] = []
    for name, text in names.items():
        query = f"SELECT {text} AS o FROM t{group}"
        ours_type = bind_query(query, lambda _: Scan(TYPES.table)).columns[0].type.spark.lower()
        if ours_type != frame.schema[name].dataType.simpleString():
            wrong.append((text, ours_type, frame.schema[name].dataType.simpleString()))
        ours = sorted(map(repr, _aggregation(query, delta)))
        theirs = sorted(repr((row.k, row[name])) for row in rows)
        if ours != theirs:
            wrong.append((text, ours, theirs))
    assert wrong == []


def _aggregation(text: str, delta: pa.Table) -> list[tuple[object, object]]:
    query = bind_query(text, lambda name: Scan(TYPES.table))
    lowered = lower_view(query)
    node, shown = lowered.root, lowered.shown
    (edge,) = node.edges
    renamed = {"ord": pa.array(range(len(delta)), pa.int64()), "sign": pa.array([1] * len(delta), pa.int32())}
    renamed |= {f"c{position}": delta.column(position) for position in edge.columns}
    groups = groups_of(node, pa.table(renamed))
    place = shown[0].index
    width = len(node.state)
    values = groups[f"v{place - width}" if place >= width else f"s{place}"]
    keys = groups["k0"] if node.key else pa.nulls(len(groups))
    return list(zip(keys.to_pylist(), values.to_pylist(), strict=True))
