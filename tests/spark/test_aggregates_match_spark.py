"""Every aggregate, with FILTER, DISTINCT, inside of an expression and in HAVING, is what Spark SQL answers.

`tests/property/test_aggregates_in_every_form.py` holds views to the same values in Python.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from tests.support.aggregate_forms import COLUMNS, expected, random_row, views
from viewkeeper.model.types import parse_type

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_SETTINGS = {"spark.sql.codegen.wholeStage": "false", "spark.sql.codegen.factoryMode": "NO_CODEGEN"}


@pytest.fixture
def uncompiled(spark: SparkSession) -> Iterator[SparkSession]:
    """The session without code generation: for wide queries over a few rows it costs more than they do."""
    for name, value in _SETTINGS.items():
        spark.conf.set(name, value)
    yield spark
    for name in _SETTINGS:
        spark.conf.unset(name)


@pytest.mark.deep
def test_every_aggregate_in_every_form_is_what_spark_answers(uncompiled: SparkSession) -> None:
    source = random.Random(13)
    rows = [{"k": place} | random_row(source) for place in range(40)]
    types = {name: parse_type(type_) for name, type_ in COLUMNS.items()}
    table = pa.table({name: pa.array([row[name] for row in rows], type_.arrow) for name, type_ in types.items()})
    uncompiled.createDataFrame(table).coalesce(1).createOrReplaceTempView("t")
    bags, queries = expected(rows), views()
    wrong = {}
    for name in [name for name in queries if name.startswith(("plain", "inside", "total"))]:
        answers = uncompiled.sql(queries[name]).toArrow()
        theirs = Counter(zip(*(_values(column) for column in answers.columns), strict=True))
        if theirs != bags[name]:
            wrong[name] = queries[name], dict(theirs - bags[name]), dict(bags[name] - theirs)
    assert wrong == {}


def _values(column: pa.ChunkedArray) -> list[object]:
    """Python's values; Spark's timestamps are moments of UTC."""
    return (
        column.cast(pa.timestamp("us", "UTC")).to_pylist() if pa.types.is_timestamp(column.type) else column.to_pylist()
    )
