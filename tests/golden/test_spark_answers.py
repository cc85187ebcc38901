"""What DuckDB answers is what Spark confirmed when it was last asked, for functions, types and random views.

The questions are those of the deep tests `tests/spark/test_*_match_spark.py`; a change of a question, of an answer or of
PySpark's version means that Spark has to be asked anew.
"""

from __future__ import annotations

import pytest

from tests.support import tiers
from tests.support.confirmed import ASK_SPARK, not_confirmed, of_expressions, of_world
from tests.support.function_cases import EXPRESSIONS, FUNCTION_CASES
from tests.support.random_plans import SEEDS, RandomOracle, plan_world
from tests.support.spark_match import Sample
from tests.support.type_cases import TYPE_EXPRESSIONS, TYPES
from viewkeeper.sql.function_table import NAMED

CASES = [*FUNCTION_CASES, (TYPES, TYPE_EXPRESSIONS)]
_ADVICE = f"Spark has not confirmed these answers; see what it says, and record them, with {ASK_SPARK}"


@pytest.mark.parametrize(("sample", "texts"), [pytest.param(*case, id=case[0].name) for case in CASES])
def test_spark_confirmed_every_type_value_and_failure(sample: Sample, texts: list[str]) -> None:
    assert not_confirmed("functions", sample.name, of_expressions(sample, texts)) == [], _ADVICE


def test_spark_confirmed_every_random_view() -> None:
    oracle = RandomOracle()
    seeds = SEEDS if tiers.is_deep() else SEEDS[::3]
    found = {seed: of_world(plan_world(seed, oracle), oracle) for seed in seeds}
    wrong = {seed: not_confirmed("random_views", str(seed), digests) for seed, digests in found.items()}

    assert {seed: names for seed, names in wrong.items() if names} == {}, _ADVICE


def test_no_function_is_left_out() -> None:
    assert [name for name in NAMED if f"{name}(" not in EXPRESSIONS] == []
