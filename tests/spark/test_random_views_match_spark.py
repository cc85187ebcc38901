"""Random views hold in the end what Spark SQL answers.

The plans are those of `tests/random_views/test_random_views.py`, which holds every view to DuckDB after each epoch, the
last one too; here DuckDB's answers over the last rows are held to Spark's, for all of these views. What Spark confirmed is
recorded, and `tests/golden/test_spark_answers.py` compares with that in every run. Of some worlds the views themselves are
read and compared.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.support.confirmed import LOST_BY_SPARK, confirm, of_world
from tests.support.random_plans import SEEDS, Bag, RandomOracle, WorldPlan, bag_of, plan_world
from tests.support.random_sql import RandomView
from tests.support.random_tables import TABLES
from tests.support.random_worlds import RandomWorld, Tally

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# Queries over a dozen rows: compiling code for them, or spreading them over tasks, costs more than running them.
_SETTINGS = {
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.shuffle.partitions": "1",
    "spark.sql.autoBroadcastJoinThreshold": "-1",
}


@pytest.fixture(scope="module")
def quick(spark: SparkSession) -> Iterator[SparkSession]:
    """The session with settings for small queries, for as long as this module runs."""
    before = {name: spark.conf.get(name) for name in _SETTINGS}
    for name, value in _SETTINGS.items():
        spark.conf.set(name, value)
    yield spark
    for name, value in before.items():
        spark.conf.set(name, value)


@pytest.fixture(scope="module")
def oracle() -> RandomOracle:
    return RandomOracle()


def show(spark: SparkSession, plan: WorldPlan) -> None:
    """The last rows of the plan's tables, as views of Spark."""
    tables = plan.final_tables()
    for shape in TABLES:
        rows = spark.createDataFrame(shape.to_arrow(tables.rows[shape.name]))
        rows.coalesce(1).createOrReplaceTempView(shape.name)


def answer(spark: SparkSession, view: RandomView) -> Bag:
    """What Spark says of a view. Later views read these rows."""
    answered = spark.sql(view.sql.spark)
    rows = answered.collect()
    spark.createDataFrame(rows, answered.schema).createOrReplaceTempView(view.name)
    return bag_of(tuple(row) for row in rows)


@pytest.mark.deep
@pytest.mark.parametrize("seed", SEEDS)
def test_duckdb_and_spark_agree_on_every_random_view_over_its_last_rows(
    seed: int, quick: SparkSession, oracle: RandomOracle
) -> None:
    plan = plan_world(seed, oracle)
    oracle.load(plan.final_tables())
    show(quick, plan)
    wrong = []
    for view in plan.views:
        if (seed, view.name) in LOST_BY_SPARK:
            with pytest.raises(Exception, match="No CTERelationDef found"):
                answer(quick, view)
            continue
        ours, theirs = oracle.bag(view), answer(quick, view)
        if ours != theirs:
            wrong.append((view.name, view.sql.spark, dict(ours - theirs), dict(theirs - ours)))

    assert wrong == []
    confirm("random_views", str(seed), of_world(plan, oracle))


@pytest.mark.parametrize("seed", [1001, pytest.param(1002, marks=pytest.mark.deep)])
def test_views_themselves_hold_what_spark_answers(
    seed: int, quick: SparkSession, oracle: RandomOracle, tmp_path: Path
) -> None:
    plan = plan_world(seed, oracle)
    world = RandomWorld(tmp_path / "world", plan, oracle, Tally())
    world.run()
    show(quick, plan)
    answers = {view.name: answer(quick, view) for view in plan.views}
    found = {name: bag_of(row.values() for row in world.db.view(name).scan()) for name in world.views}

    assert found == {name: answers[name] for name in world.views}
