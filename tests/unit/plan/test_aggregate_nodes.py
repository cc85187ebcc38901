"""A γ record's accumulators are exact, and its values are the aggregates of the rows."""

from __future__ import annotations

from decimal import ROUND_HALF_UP, Context, Decimal

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from tests.support.groupings import groups_of
from tests.support.plans import nodes_of, with_view
from viewkeeper.catalog.catalog import Catalog, ViewDefinition
from viewkeeper.model.schema import Column, TableId, TableSchema
from viewkeeper.model.types import BIGINT, DOUBLE, INT128, decimal
from viewkeeper.plan.nodes import AggregateNode

COLUMNS = (
    Column("k", BIGINT, nullable=False),
    Column("g", BIGINT),
    Column("n", BIGINT),
    Column("d", decimal(28, 2)),
    Column("f", DOUBLE),
)
CATALOG = Catalog().with_table(TableSchema(TableId(1), "t", COLUMNS, ("k",)))
BIG = st.integers(-(2**63), 2**63 - 1)
MONEY = st.integers(-(10**28) + 1, 10**28 - 1).map(lambda n: Decimal(n).scaleb(-2, Context(prec=40)))
ROWS = st.lists(st.tuples(st.none() | st.integers(0, 2), st.none() | BIG, st.none() | MONEY), max_size=12)


def define(query: str) -> tuple[ViewDefinition, AggregateNode]:
    catalog = with_view(CATALOG, "v", query)
    (node,) = nodes_of(catalog, "v")
    assert isinstance(node, AggregateNode)
    return catalog.view("v"), node


def records(
    view: ViewDefinition, node: AggregateNode, rows: list[tuple[object, ...]]
) -> dict[tuple[object, ...], dict[str, object]]:
    numbered = [(place, *row, *[None] * (4 - len(row))) for place, row in enumerate(rows)]
    delta = {f"c{i}": pa.array([row[i] for row in numbered], COLUMNS[i].type.arrow) for i in node.edges[0].columns}
    delta["ord"] = pa.array(range(len(numbered)), pa.int64())
    delta["sign"] = pa.array([1] * len(numbered), pa.int32())
    groups = groups_of(node, pa.table(delta))
    columns = [groups[name] for name in groups.column_names if name[0] in "sv"]
    keys = list(zip(*(groups[f"k{i}"].to_pylist() for i in range(len(node.key))), strict=True)) or [()] * len(groups)
    shown = {s.column.name: columns[s.index].to_pylist() for s in view.shown if s.part == "row"}
    return {key: {name: values[place] for name, values in shown.items()} for place, key in enumerate(keys)}


def test_states_are_shared_and_the_row_count_serves_what_is_never_null() -> None:
    _, node = define("SELECT g, COUNT(*), COUNT(n), SUM(n), AVG(n), COUNT(k), SUM(k), SUM(d) FROM t GROUP BY g")
    assert [column.name for column in node.state] == ["count(*)", "count(n)", "sum(n)", "sum(k)", "count(d)", "sum(d)"]
    assert [column.type for column in node.state if column.name.startswith("sum")] == [INT128] * 3
    assert not node.always


@given(ROWS)
def test_sums_and_averages_are_exact(rows: list[tuple[object, ...]]) -> None:
    view, node = define(
        "SELECT g, COUNT(*) AS c, SUM(n) AS s, AVG(n) AS a, SUM(d) AS sd, AVG(d) AS ad FROM t GROUP BY g"
    )
    found = records(view, node, rows)
    assert set(found) == {(row[0],) for row in rows}
    for (group,), values in found.items():
        ours = [row for row in rows if row[0] == group]
        assert values["c"] == len(ours)
        _check(values, "s", "a", [row[1] for row in ours if row[1] is not None])
        _check(values, "sd", "ad", [row[2] for row in ours if row[2] is not None])


def _check(values: dict[str, object], total: str, average: str, numbers: list) -> None:
    if not numbers:
        assert values[total] is None and values[average] is None
    elif isinstance(numbers[0], int):
        exact = sum(numbers)
        assert values[total] == (exact if -(2**63) <= exact < 2**63 else None)
        assert values[average] == float(exact) / len(numbers)
    else:
        wide = Context(prec=80)
        exact = Decimal(0)
        for number in numbers:
            exact = wide.add(exact, number)
        assert values[total] == exact
        mean = wide.divide(exact, Decimal(len(numbers))).quantize(Decimal("0.000001"), ROUND_HALF_UP, wide)
        assert values[average] == mean


def test_without_group_by_there_is_one_record_also_over_nothing() -> None:
    view, node = define("SELECT COUNT(*) AS c, SUM(n) AS s, AVG(d) AS a, SUM(n) / COUNT(*) AS m FROM t WHERE n > 0")
    assert node.always and node.key == ()
    assert records(view, node, []) == {(): {"c": 0, "s": None, "a": None, "m": None}}
    assert records(view, node, [(None, -1, None)]) == {(): {"c": 0, "s": None, "a": None, "m": None}}


def test_a_value_that_fails_after_the_aggregation_reads_null() -> None:
    view, node = define("SELECT g, COUNT(*) AS c, SUM(n) + 1 AS s, 1 / (COUNT(n) - 1) AS q FROM t GROUP BY g")
    rows = [(1, 2**63 - 1, None), (2, 5, None), (2, 6, None)]
    assert records(view, node, rows) == {(1,): {"c": 1, "s": None, "q": None}, (2,): {"c": 2, "s": 12, "q": 1.0}}


def test_a_row_whose_group_or_argument_fails_is_in_no_group() -> None:
    view, node = define("SELECT COUNT(*) AS c, SUM(n + 1) AS s FROM t GROUP BY g + 9223372036854775806")
    rows = [(0, 1, None), (1, 2, None), (2, 3, None), (0, 2**63 - 1, None)]
    assert records(view, node, rows) == {
        (2**63 - 2,): {"c": 1, "s": 2},
        (2**63 - 1,): {"c": 1, "s": 3},
    }


def test_an_expression_over_the_group_reads_the_key() -> None:
    view, node = define("SELECT g + 1 AS x, g * 2 + COUNT(*) AS y FROM t GROUP BY g")
    assert "k0" in node.finish_reads
    assert "k0" not in define("SELECT g, SUM(n) FROM t GROUP BY g")[1].finish_reads
    assert records(view, node, [(1, None, None), (1, None, None)]) == {(1,): {"x": 2, "y": 4}}


def test_zeros_of_both_signs_and_all_nans_are_one_group() -> None:
    view, node = define("SELECT f, COUNT(*) AS c FROM t GROUP BY f")
    rows = [(None, None, None, value) for value in (0.0, -0.0, float("nan"), -float("nan"), None)]
    found = {repr(key): values["c"] for key, values in records(view, node, rows).items()}
    assert found == {"(0.0,)": 2, "(nan,)": 2, "(None,)": 1}
