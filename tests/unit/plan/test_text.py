"""The canonical text of every kind of node, and the tables that each keeps."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from tests.support.relations import column, grouped, joined, shown
from tests.support.source_tree import ROOT
from tests.support.views_by_hand import VIEWS, lines_for, orders, plan_of
from viewkeeper.algebra import construct
from viewkeeper.algebra.expressions import AggregationRef, Literal
from viewkeeper.algebra.relations import Aggregation, Grouping, Ordering, Output, Project, Relation
from viewkeeper.model.types import INT
from viewkeeper.plan.explain.line_text import line_text, tables_at
from viewkeeper.plan.explain.names import order_text
from viewkeeper.plan.explain.plan_lines import Lines

LINES = {
    "by_region": "γ r4 by (region) of (count(*), max(amount), sum(amount))",
    "inner": "⋈ r3 [inner]",
    "self": "reverse-join r0 (customer), r0 (customer)",
    "left": "π r3 (orders.id as id, name)",
    "same_key": "reverse-join r0 (id), r1 (order_id), r2 (id)",
    "anti": "⋈ r2 [anti] where (amount > 5)",
    "union_all": "∪ r1, r3",
    "top": "top r4 3 by (amount desc)",
}
TABLES = {
    "by_region": [
        "REVERSE-JOIN: (customer = id, side 1, id) → amount and (customer = id, side 2) → region",
        "PRE-AGGREGATION: (region, amount) → multiplicity",
        "groups: (region) → count(*), max(amount), sum(amount)",
        "view by_region: (region) → n, most, total",
    ],
    "nested": [
        "groups: (customer) → count(*), sum(amount)",
        "PRE-AGGREGATION: (total, customer) → multiplicity",
        "view nested: (total) → n, customers",
    ],
    "left": [
        "REVERSE-JOIN: (customer = id, side 1, id) and (customer = id, side 2) → name",
        "match counts: (customer = id) → rows of each side",
        "view left: (orders.id) → name",
    ],
    "anti": [
        "REVERSE-JOIN: (id = customer, side 1, id) → name and (id = customer, side 2, id) → amount",
        "match counts: (id = customer, side, key) → matches",
        "view anti: (id) → name",
    ],
    "top": [
        "REVERSE-JOIN: (customer = id, side 1, id) → amount and (customer = id, side 2) → name",
        "TOP-N: (amount desc, orders.id) → amount, name",
        "view top: (rank) → amount, name",
    ],
    "union": ["view union: (id, amount)"],
    "union_all": ["view union_all: (branch, id) → id, amount"],  # branches may have keys of other types
}


def built(relation: Relation) -> Lines:
    return lines_for({"v": relation})


def texts(plan: Lines) -> list[str]:
    return [line_text(line) for line in plan]


def kept(plan: Lines) -> list[str]:
    return [f"{table.name}: {table.records}" for place in range(len(plan)) for table in tables_at(plan, place)]


@pytest.mark.parametrize(("name", "line"), LINES.items())
def test_a_node_has_its_text(name: str, line: str) -> None:
    assert line in texts(plan_of(name))


@pytest.mark.parametrize(("name", "tables"), TABLES.items())
def test_a_plan_tells_the_tables_it_keeps(name: str, tables: list[str]) -> None:
    assert kept(plan_of(name)) == tables


def test_a_stored_delta_is_a_table_of_each_base_table() -> None:
    stored = kept(plan_of("union_all", before_images=False))
    assert stored.count("DELTA: (id) → row as of the last epoch") == 2


def test_columns_that_two_sides_have_are_told_apart() -> None:
    join = joined("inner", (orders, "customer"), (orders, "customer"))
    totals = grouped(join, ("id",), ("max", "amount"))
    (aggregation,) = [line for line in texts(built(totals)) if line.startswith("γ")]
    assert aggregation == "γ r2 by (side1.id) of (max(side1.amount))"


def test_a_nested_expression_keeps_its_brackets() -> None:
    """A group that is itself an operator, used inside another one."""
    sum_of = construct.arithmetic("+", column(orders, "amount"), Literal(1, INT))
    aggregation = Aggregation(orders, Grouping((sum_of,), ()))
    twice = construct.arithmetic("*", AggregationRef("group", 0, sum_of), Literal(2, INT))
    assert "π r1 ((amount + 1) * 2 as twice)" in texts(built(Project(aggregation, (Output("twice", twice),))))


@pytest.mark.parametrize(
    ("descending", "nulls_first", "text"),
    [
        (False, True, "amount"),
        (False, False, "amount nulls last"),
        (True, False, "amount desc"),
        (True, True, "amount desc nulls first"),
    ],
)
def test_an_order_says_where_null_stands_when_spark_would_not_put_it_there(
    descending: bool, nulls_first: bool, text: str
) -> None:
    assert order_text(orders, Ordering(column(orders, "amount"), descending, nulls_first)) == text


def test_a_view_does_not_store_again_what_its_key_holds() -> None:
    renamed = built(shown(orders, "id as number", "customer as id"))
    assert kept(renamed) == ["view v: (id) → id"]


def test_the_text_is_the_same_in_every_process() -> None:
    script = (
        "from tests.support.views_by_hand import plan_of\n"
        "from viewkeeper.plan.explain.explain import lines_text\n"
        "from viewkeeper.plan.explain.pictures import dot_of\n"
        "from viewkeeper.plan.explain.pictures import mermaid_of\n"
        "print(lines_text(plan_of()), mermaid_of(plan_of()), dot_of(plan_of()))"
    )
    told = {_run(script, seed) for seed in ("1", "2")}
    assert len(told) == 1
    assert all(f"view {name} " in next(iter(told)) for name in VIEWS)


def _run(script: str, seed: str) -> str:
    environment = os.environ | {"PYTHONHASHSEED": seed, "PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT}"}
    run = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, env=environment)
    return run.stdout
