"""Groupings over one delta are evaluated together, and contribute what their rows contribute one by one."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

import viewkeeper as vk
from viewkeeper.errors import ViewFailed
from viewkeeper.model.schema import Column
from viewkeeper.model.types import STRING
from viewkeeper.operators import exact_sums, grouping_kernel
from viewkeeper.operators.delta_rows import Delta
from viewkeeper.operators.exact_sums import are_exact, sum_any, sum_exact, whole_of
from viewkeeper.operators.grouping_kernel import contribute, evaluate
from viewkeeper.operators.messages import Input
from viewkeeper.plan.nodes import AggregateNode, Given, Term
from viewkeeper.plan.physical import PhysicalPlan
from viewkeeper.plan.planner import physical_plan

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
    "wide": "SELECT x, SUM(e) AS s FROM t GROUP BY x",
    "spread": "SELECT x, STDDEV(y) AS s, VARIANCE(f) AS v FROM t GROUP BY x",
    "nested": "SELECT z, SUM(v) AS s FROM (SELECT x + 2147483640 AS z, 10 / y AS v, w FROM t WHERE w <> 'b') q GROUP BY z",
    "moved": "SELECT a, COUNT(*) AS n FROM (SELECT y AS b, x AS a FROM t) q WHERE b > 1 GROUP BY a",
    "after": "SELECT x, COUNT(*) AS n FROM t WHERE w = 'a' AND 10 / y > 0 AND x > 0 GROUP BY x",
}
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
        for name, sql in VIEWS.items():
            db.execute(f"CREATE MATERIALIZED VIEW {name} AS {sql}")
        return physical_plan(db.catalog())


def nodes_of(plan: PhysicalPlan) -> dict[str, AggregateNode]:
    found = dict(zip(VIEWS, plan.nodes, strict=True))
    return {name: node for name, node in found.items() if isinstance(node, AggregateNode)}


def delta(rows: list[tuple], inserted: int) -> pa.Table:
    x, y, w, f, d = (list(column) for column in zip(*rows, strict=True))
    signs = [1] * inserted + [-1] * (len(rows) - inserted)
    decimals = pa.array(d, pa.int64()).cast(pa.decimal128(38, 0))
    return pa.table(
        {
            "ord": pa.array(range(len(rows)), pa.int64()),
            "sign": pa.array(signs, pa.int32()),
            "c0": pa.array([str(place) for place in range(len(rows))], pa.string()),
            "c1": pa.array(x, pa.int32()),
            "c2": pa.array(y, pa.int64()),
            "c3": pa.array(w, pa.string()),
            "c4": pa.array(f, pa.float64()),
            "c5": decimals.cast(pa.decimal128(20, 2)).cast(pa.decimal128(18, 2), safe=False),
            "c6": decimals.cast(pa.decimal128(38, 2)),
        }
    )


def totals(inputs: list[Input]) -> Counter:
    """What contributions come to; one that is nothing is none."""
    found: Counter = Counter()
    for table, channel, rows in inputs:
        for row in rows.to_pylist():
            if channel.kind == "aside":
                found[table, channel, row["ord"], row["key"], row["row"]] += 1
                continue
            for name, value in row.items():
                if name not in ("key", "hash", "size", "unit"):
                    found[table, channel, row["key"], row["hash"], row.get("unit"), name] += int(value)
    return Counter({what: total for what, total in found.items() if total})


def contributed(readers: list[tuple[AggregateNode, int]], relation: pa.Table) -> list[Input]:
    keys = pa.array([b"%d" % order for order in relation["ord"].to_pylist()], pa.binary())
    return list(contribute(readers, Delta(relation, (Column("k", STRING),), lambda: keys)))


@pytest.mark.parametrize("rows_min", [1, 1 << 18])
@pytest.mark.parametrize("rows_at_once", [7, 1 << 18])
@pytest.mark.parametrize("fails", [False, True], ids=["no row fails", "rows fail"])
def test_groupings_contribute_together_what_each_row_contributes_alone(
    plan: PhysicalPlan, rows_at_once: int, rows_min: int, monkeypatch: pytest.MonkeyPatch, *, fails: bool
) -> None:
    monkeypatch.setattr(grouping_kernel, "_ROWS_AT_ONCE", rows_at_once)
    monkeypatch.setattr(grouping_kernel, "_ROWS_MIN", rows_min)
    monkeypatch.setattr(grouping_kernel, "_ROWS_OF_VALUE", 1)
    rows = ROWS + [(2_147_000_000, 1, "a", 1.0, 1), (1, 0, "a", 1.0, 1)] if fails else safe(ROWS)
    relation, nodes = delta(rows, inserted=60), nodes_of(plan)
    readers = [(node, 0) for node in nodes.values()]
    together = contributed(readers, relation)

    assert {one.table for one in together} == {node.table for node in nodes.values()}
    alone = [one for place in range(len(rows)) for one in contributed(readers, relation.slice(place, 1))]
    assert totals(together) == totals(alone)
    listed = {one.table for one in together if one.channel.kind == "aside"}
    assert listed == {nodes[name].table for name in ("fails", "fails_inside", "nested", "after") if fails}


def safe(rows: list[tuple]) -> list[tuple]:
    """Rows on which no view fails."""
    return [row for row in rows if row[1] != 0]


@pytest.mark.parametrize(
    ("view", "row", "is_listed"),
    [
        ("fails", (2_147_000_000, 1, "a", 1.0, 1), True),
        ("fails_inside", (1, 0, "a", 1.0, 1), True),
        ("nested", (1, 0, "a", 1.0, 1), True),
        ("nested", (1, 0, "b", 1.0, 1), False),  # its condition leaves the row out
        ("after", (1, 0, "a", 1.0, 1), True),
        ("after", (1, 0, "b", 1.0, 1), False),  # an earlier condition does
        ("after", (-1, 0, "a", 1.0, 1), True),  # the later one is not asked
    ],
)
@pytest.mark.parametrize("sign", [1, -1])
def test_a_row_that_fails_is_set_aside_and_contributes_nothing(
    plan: PhysicalPlan, view: str, row: tuple, sign: int, *, is_listed: bool
) -> None:
    node = nodes_of(plan)[view]
    given = contributed([(node, 0)], delta([row], inserted=int(sign > 0)))

    assert [one.channel.kind for one in given] == ["aside"] * is_listed
    for one in given:
        (listed,) = one.rows.to_pylist()
        assert (listed["key"], listed["row"] is None) == (b"0", sign < 0)


def test_a_grouping_whose_sql_is_broken_is_told_from_the_others(plan: PhysicalPlan) -> None:
    nodes = nodes_of(plan)
    broken = replace(nodes["plain"], conditions=((Term("nonsense", (), can_fail=False),),))
    readers, seen = [(nodes["two"], 0), (broken, 0)], []
    with pytest.raises(ViewFailed) as failed:
        for one in contribute(readers, Delta(delta(safe(ROWS), inserted=40), (), lambda: pa.nulls(0, pa.binary()))):
            seen.append(one.table)

    assert failed.value.table == broken.table and set(seen) == {nodes["two"].table}


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
    assert contributed([(nodes["total"], 0)], relation) == []


@pytest.mark.parametrize("rows_at_once", [3, 1 << 20])
def test_sums_are_exact_where_a_double_would_round(rows_at_once: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exact_sums, "_ROWS_AT_ONCE", rows_at_once)
    values = np.array([2**62, 2**62, 2**62, -(2**63), 1, -1, 2**53 + 1, -(2**63)], np.int64)
    places = np.array([0, 0, 0, 1, 1, 2, 2, 3])
    signs = np.array([1, 1, 1, 1, 1, 1, -1, -1])
    assert not are_exact(values) and are_exact(signs)
    found = sum_any(places, signs, values, 5)
    assert [int(total) for total in found.to_pylist()] == [3 * 2**62, 1 - 2**63, -2 - 2**53, 2**63, 0]
    wide = whole_of(pa.array([10**30, -(10**30), 2**64, 2**80, -1, 5, 7, -(10**37)], pa.decimal128(38, 0)))
    found = sum_any(places, signs, wide, 5)
    assert [int(total) for total in found.to_pylist()] == [2**64, 2**80 - 1, -2, 10**37, 0]
    assert [int(total) for total in sum_exact(places, signs.astype(np.float64), 4).to_pylist()] == [3, 2, 0, -1]


def test_a_column_that_is_encoded_for_an_expression_is_summed_by_its_few_values_too() -> None:
    count = 1 << 15
    rows = pa.table({"sign": pa.array(np.ones(count, np.int8)), "c0": pa.array(np.arange(count) % 7)})
    column, expression = Term("c0", (0,), can_fail=False), Term("c0 + 1", (0,), can_fail=False)

    evaluated = evaluate([(column, expression)], rows)
    state = evaluated.state(Given(None, is_count=True, filter=None), [])

    expected = np.bincount(np.arange(count) % 7).tolist()
    for term in (column, expression):
        sums = evaluated.sums_by(term.sql, state)
        assert sums is not None and [int(one) for one in sums.to_pylist()] == expected
