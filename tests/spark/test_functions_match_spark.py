"""Each function of view SQL is Spark's, on the values where engines differ.

Asking Spark which rows fail takes minutes; what it confirmed is recorded, and `tests/golden/test_spark_answers.py`
compares with that in every run.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from tests.support.confirmed import confirm, of_expressions
from tests.support.function_cases import FUNCTION_CASES
from tests.support.spark_match import Sample, wrong_failures, wrong_prints, wrong_types, wrong_values

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

CASES = [pytest.param(sample, texts, id=sample.name) for sample, texts in FUNCTION_CASES]


@pytest.fixture(scope="module")
def delta(spark: SparkSession) -> Iterator[dict[str, pa.Table]]:
    spark.sparkContext.setLogLevel("OFF")
    for sample, _ in FUNCTION_CASES:
        sample.show(spark)
    yield {sample.name: sample.delta() for sample, _ in FUNCTION_CASES}
    spark.sparkContext.setLogLevel("ERROR")


@pytest.mark.parametrize(("sample", "texts"), CASES)
def test_each_type_is_sparks(spark: SparkSession, delta: dict[str, pa.Table], sample: Sample, texts: list[str]) -> None:
    assert wrong_types(spark, sample, texts) == []


@pytest.mark.deep
@pytest.mark.parametrize(("sample", "texts"), CASES)
def test_each_value_is_sparks_and_exactly_the_rows_that_fail_there_are_set_aside(
    spark: SparkSession, delta: dict[str, pa.Table], sample: Sample, texts: list[str]
) -> None:
    assert wrong_types(spark, sample, texts) == []
    assert wrong_values(spark, sample, delta[sample.name], texts) == []
    assert wrong_failures(spark, sample, delta[sample.name], texts) == []
    assert wrong_prints(spark, sample, texts) == []
    confirm("functions", sample.name, of_expressions(sample, texts))
