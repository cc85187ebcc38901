"""Views of the same grain share one grouping of the delta rows, and contribute what they would contribute alone."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pyarrow as pa
import pytest

import viewkeeper as vk
from viewkeeper.model.epochs import Inflight
from viewkeeper.model.positions import Cut
from viewkeeper.operators.delta_rows import Delta
from viewkeeper.operators.inputs import DeltaCollector
from viewkeeper.operators.rollup import RollingUp
from viewkeeper.plan.physical import PhysicalPlan
from viewkeeper.plan.planner import physical_plan
from viewkeeper.settings import WorkSettings

VIEWS = (
    "SELECT x, COUNT(*) AS n, SUM(y) AS s FROM t GROUP BY x",
    "SELECT x % 3 AS g, COUNT(y) AS n, AVG(y) AS a FROM t GROUP BY x % 3",
    "SELECT COUNT(*) AS n, SUM(y) AS s FROM t WHERE x > 1",
    "SELECT x + 2147483640 AS g, COUNT(*) AS n FROM t GROUP BY x + 2147483640",
    "SELECT x % 3 AS g, COUNT(*) FILTER (WHERE y > 10) AS n, SUM(y) FILTER (WHERE x > 1) AS s, COUNT(y) AS c "
    "FROM t WHERE y < 50 OR y IS NULL GROUP BY x % 3",
)
FAILS, FILTERED = 3, 4


@pytest.fixture
def plan(tmp_path: Path) -> PhysicalPlan:
    with vk.connect(f"embedded:{tmp_path / 's'}") as db:
        db.execute("CREATE TABLE t (k STRING PRIMARY KEY, x INT, y BIGINT, f DOUBLE)")
        for number, sql in enumerate(VIEWS):
            db.execute(f"CREATE MATERIALIZED VIEW v{number} AS {sql}")
        return physical_plan(db.catalog())


def delta(rows: list[tuple[int | None, int | None]], inserted: int) -> pa.Table:
    return pa.table(
        {
            "ord": pa.array(range(len(rows)), pa.int64()),
            "sign": pa.array([1] * inserted + [-1] * (len(rows) - inserted), pa.int32()),
            "c1": pa.array([x for x, _ in rows], pa.int32()),
            "c2": pa.array([y for _, y in rows], pa.int64()),
        }
    )


ROWS = [(x % 5, None if x % 7 == 0 else x) for x in range(60)] + [(None, 4), (2, None), (2, 2**62), (2, 2**62)]


def totals(tables: list[pa.Table]) -> Counter:
    """What contributions come to; one that is nothing is none."""
    found: Counter = Counter()
    for row in (row for table in tables for row in table.to_pylist()):
        for name, value in row.items():
            if name.startswith("s") and name != "sign":
                found[row["key"], row["hash"], name] += row["sign"] * int(value)
    return Counter({what: total for what, total in found.items() if total})


def test_what_is_rolled_up_is_what_each_view_would_contribute_alone(plan: PhysicalPlan) -> None:
    relation = delta(ROWS, inserted=40)
    served = RollingUp(40).contributions(plan.nodes, relation)

    assert set(served) == {node.table for node in plan.nodes}
    for number, tables in served.items():
        alone = DeltaCollector(plan, Inflight(1, {}, Cut({}, 0, 0), "", 0, (), ()), WorkSettings())
        keys = pa.array([b"k"] * len(relation), pa.binary())
        alone.add_delta([(plan.node(number), 0)], Delta(relation, plan.tables[0].key_columns, lambda keys=keys: keys))

        assert totals(tables) == totals([one.rows for one in alone.inputs()])
        assert totals(tables)


def test_a_view_that_fails_on_a_group_is_left_to_itself(plan: PhysicalPlan) -> None:
    for at in (0, len(ROWS)):  # among what came, and among what went
        relation = delta([*ROWS[:at], (2_147_000_000, 1), *ROWS[at:]], inserted=40)

        served = set(RollingUp(40).contributions(plan.nodes, relation))
        assert served == {node.table for node in plan.nodes} - {plan.nodes[FAILS].table}


def test_rows_that_hardly_repeat_are_not_counted(plan: PhysicalPlan) -> None:
    relation = delta([(x, x) for x in range(60)], inserted=60)

    assert set(RollingUp(40).contributions(plan.nodes, relation)) == {plan.nodes[FILTERED].table}


def test_a_few_delta_rows_are_read_as_they_are(plan: PhysicalPlan) -> None:
    assert RollingUp(1_000).contributions(plan.nodes, delta(ROWS, inserted=40)) == {}


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT f, COUNT(*) AS n FROM t GROUP BY f",  # -0.0 and 0.0 are one group, but not one value
        "SELECT x, SUM(f) AS s FROM t GROUP BY x",
        "SELECT x, MIN(y) AS m FROM t GROUP BY x",
        "SELECT x, SUM(y + 1) AS s FROM t GROUP BY x",
        "SELECT COUNT(*) AS n FROM t",
        "SELECT x, COUNT(*) FILTER (WHERE y > 1) AS n, MIN(10 / y) AS m FROM t GROUP BY x",  # rows that fail do not count
    ],
)
def test_views_that_keep_more_than_counts_and_sums_of_columns_are_not_rolled_up(tmp_path: Path, sql: str) -> None:
    with vk.connect(f"embedded:{tmp_path / 's'}") as db:
        db.execute("CREATE TABLE t (k STRING PRIMARY KEY, x INT, y BIGINT, f DOUBLE)")
        db.execute(f"CREATE MATERIALIZED VIEW v AS {sql}")

        assert physical_plan(db.catalog()).nodes[0].rollup is None
