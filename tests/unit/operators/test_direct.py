"""Groupings over one delta are served together, and contribute what each would contribute alone."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from unittest import mock

import numpy as np
import pyarrow as pa
import pytest

import viewkeeper as vk
from viewkeeper.model.epochs import Inflight
from viewkeeper.model.positions import Cut
from viewkeeper.operators import aggregate, grouping_kernel
from viewkeeper.operators.delta_rows import Delta
from viewkeeper.operators.exact_sums import are_exact, sum_any, sum_exact
from viewkeeper.operators.grouping_kernel import contribute_directly
from viewkeeper.operators.inputs import DeltaCollector
from viewkeeper.plan.nodes import AggregateNode
from viewkeeper.plan.physical import PhysicalPlan
from viewkeeper.plan.planner import physical_plan
from viewkeeper.settings import WorkSettings

VIEWS = {
    "plain": "SELECT x, COUNT(*) AS n, SUM(y) AS s, AVG(y) AS a FROM t GROUP BY x",
    "total": "SELECT COUNT(*) AS n, SUM(y) AS s FROM t WHERE x > 1",
    "two": "SELECT x % 3 AS g, w, COUNT(y) AS n FROM t GROUP BY x % 3, w",
    "fails": "SELECT x + 2147483640 AS g, COUNT(*) AS n FROM t GROUP BY x + 2147483640",
    "fails_inside": "SELECT x, MIN(10 / y) AS m, COUNT(*) FILTER (WHERE y > 1) AS n FROM t GROUP BY x",
    "filtered": "SELECT x % 3 AS g, COUNT(*) FILTER (WHERE y > 10) AS n, SUM(y) FILTER (WHERE x > 1) AS s, COUNT(y) AS c "
    "FROM t WHERE y < 50 OR y IS NULL GROUP BY x % 3",
    "doubles": "SELECT f, COUNT(*) AS n FROM t GROUP BY f",
    "exact": "SELECT x, SUM(f) AS s, COUNT(DISTINCT w) AS d, MAX(y) FILTER (WHERE x > 2) AS m FROM t GROUP BY x",
    "decimals": "SELECT w, SUM(d) AS s, AVG(d) FILTER (WHERE y > 3) AS a FROM t GROUP BY w",
}
ALONE = {"wide": "SELECT x, SUM(e) AS s FROM t GROUP BY x", "spread": "SELECT x, STDDEV(y) AS s FROM t GROUP BY x"}
ROWS = [
    (
        x % 5,
        None if x % 7 == 0 else x - 20,
        (None, "a", "b")[x % 3],
        (0.0, -0.0, float("nan"), 1.5, None)[x % 5],
        x * 7,
    )
    for x in range(90)
] + [(None, 4, "a", 2.0, None), (2, 2**62, "b", 2.0, 10**15), (2, 2**62, "b", 2.0, 10**15), (2, -(2**63), None, 2.0, 1)]


@pytest.fixture
def plan(tmp_path: Path) -> PhysicalPlan:
    with vk.connect(f"embedded:{tmp_path / 's'}") as db:
        columns = "x INT, y BIGINT, w STRING, f DOUBLE, d DECIMAL(18,2), e DECIMAL(38,2)"
        db.execute(f"CREATE TABLE t (k STRING PRIMARY KEY, {columns})")
        for name, sql in (VIEWS | ALONE).items():
            db.execute(f"CREATE MATERIALIZED VIEW {name} AS {sql}")
        return physical_plan(db.catalog())


def nodes_of(plan: PhysicalPlan) -> dict[str, AggregateNode]:
    found = dict(zip([*VIEWS, *ALONE], plan.nodes, strict=True))
    return {name: node for name, node in found.items() if isinstance(node, AggregateNode)}


def delta(rows: list[tuple], inserted: int) -> pa.Table:
    x, y, w, f, d = (list(column) for column in zip(*rows, strict=True))
    signs = [1] * inserted + [-1] * (len(rows) - inserted)
    decimals = pa.array(d, pa.int64()).cast(pa.decimal128(38, 0))
    return pa.table(
        {
            "ord": pa.array(range(len(rows)), pa.int64()),
            "sign": pa.array(signs, pa.int32()),
            "c1": pa.array(x, pa.int32()),
            "c2": pa.array(y, pa.int64()),
            "c3": pa.array(w, pa.string()),
            "c4": pa.array(f, pa.float64()),
            "c5": decimals.cast(pa.decimal128(20, 2)).cast(pa.decimal128(18, 2), safe=False),
            "c6": decimals.cast(pa.decimal128(38, 2)),
        }
    )


def totals(parts: list) -> Counter:
    """What contributions come to; one that is nothing is none."""
    found: Counter = Counter()
    for channel, table in parts:
        for row in table.to_pylist():
            sign = row.get("sign", 1)
            for name, value in row.items():
                if name not in ("sign", "key", "hash", "size", "unit"):
                    found[channel, row["key"], row["hash"], row.get("unit"), name] += sign * int(value)
    return Counter({what: total for what, total in found.items() if total})


def alone(plan: PhysicalPlan, node: AggregateNode, relation: pa.Table) -> list:
    """By the edge, in DuckDB."""
    collector = DeltaCollector(plan, Inflight(1, {}, Cut({}, 0, 0), "", 0, (), ()), WorkSettings())
    keys = pa.array([b"k"] * len(relation), pa.binary())
    with mock.patch.object(aggregate, "contribute_directly", lambda *_: {}):
        collector.add_delta([(node, 0)], Delta(relation, plan.tables[0].key_columns, lambda: keys))
    return [(one.channel, one.rows) for one in collector.inputs()]


def safe(rows: list[tuple]) -> list[tuple]:
    """Rows on which no view fails."""
    return [row for row in rows if row[1] != 0]


@pytest.mark.parametrize("rows_min", [1, 1 << 18])
@pytest.mark.parametrize("rows_at_once", [7, 1 << 18])
@pytest.mark.parametrize("count", [40, len(ROWS)], ids=["few", "many"])
def test_a_grouping_is_served_what_it_would_contribute_alone(
    plan: PhysicalPlan, count: int, rows_at_once: int, rows_min: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(grouping_kernel, "_ROWS_AT_ONCE", rows_at_once)
    monkeypatch.setattr(grouping_kernel, "_ROWS_MIN", rows_min)
    monkeypatch.setattr(grouping_kernel, "_ROWS_OF_VALUE", 1)
    relation, nodes = delta(safe(ROWS)[-count:], inserted=30), nodes_of(plan)
    served = contribute_directly([*nodes.values()], relation)

    expected = VIEWS if count > 64 else VIEWS | ALONE
    assert set(served) == {nodes[name].table for name in expected}
    for name in expected:
        found = totals(served[nodes[name].table])
        assert found and found == totals(alone(plan, nodes[name], relation)), name


@pytest.mark.parametrize("at", [0, 50])  # among what came, and among what went
@pytest.mark.parametrize("row", [(2_147_000_000, 1, "a", 1.0, 1), (1, 0, "a", 1.0, 1)], ids=["key", "argument"])
def test_a_grouping_that_fails_on_a_row_is_left_to_itself(plan: PhysicalPlan, at: int, row: tuple) -> None:
    rows, nodes = safe(ROWS), nodes_of(plan)
    relation = delta([*rows[:at], row, *rows[at:]], inserted=40)
    failing = "fails" if row[0] > 1 else "fails_inside"

    served = set(contribute_directly([*nodes.values()], relation))
    assert served == {nodes[name].table for name in VIEWS if name != failing}


def test_groups_of_many_wide_keys_stay_apart() -> None:
    """Though the product of their numbers of values does not fit 64 bits."""
    rows = 1 << 14
    choose = np.random.default_rng(1)
    columns = [pa.array(choose.permutation(rows)) for _ in range(5)]
    parts = [
        grouping_kernel.ExpressionBatch({"c0": column}, pa.array([1] * rows, pa.int32())).codes("c0")
        for column in columns
    ]
    twice = [(np.concatenate([codes, codes]), distinct) for codes, distinct in parts]

    places, keys = grouping_kernel._groups(twice, slice(None), 2 * rows)
    assert len(keys[0]) == rows and (places[:rows] == places[rows:]).all()
    assert [key.take(pa.array(places[:rows])) for key in keys] == columns


def test_no_row_that_passes_contributes_nothing(plan: PhysicalPlan) -> None:
    nodes = nodes_of(plan)
    relation = delta([(0, 1, "a", 1.0, 1)] * 100, inserted=100)
    assert contribute_directly([nodes["total"]], relation) == {nodes["total"].table: []}


def test_sums_are_exact_where_a_double_would_round() -> None:
    values = np.array([2**62, 2**62, 2**62, -(2**63), 1, -1, 2**53 + 1, -(2**63)], np.int64)
    places = np.array([0, 0, 0, 1, 1, 2, 2, 3])
    signs = np.array([1, 1, 1, 1, 1, 1, -1, -1])
    assert not are_exact(values) and are_exact(signs)
    found = sum_any(places, signs, values, 5)
    assert [int(total) for total in found.to_pylist()] == [3 * 2**62, 1 - 2**63, -2 - 2**53, 2**63, 0]
    assert [int(total) for total in sum_exact(places, signs.astype(np.float64), 4).to_pylist()] == [3, 2, 0, -1]
