"""Plans as graphs: columns, base tables, zones, and what makes a plan no plan."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.support.relations import column, more
from tests.support.views_by_hand import VIEWS, customers, orders, plan_of
from viewkeeper.errors import InvariantBroken
from viewkeeper.model.schema import Column
from viewkeeper.model.types import STRING
from viewkeeper.optimize.rules import optimize
from viewkeeper.plan.logical import (
    Base,
    Join,
    LogicalNode,
    LogicalPlan,
    Project,
    ReverseJoin,
    Select,
    Top,
    Union,
    columns_at,
    inputs_of,
    join_plans,
    with_inputs,
)
from viewkeeper.plan.text import plan_text
from viewkeeper.plan.validate import validate_plan
from viewkeeper.plan.zones import key_at, zone_at

ZONES = {
    "inner": "orders(id) × customers(id)",
    "by_region": "orders ⋈ customers by (region)",
    "left": "orders(id) × customers(id)",
    "self": "orders(id) × orders(id)",
    "same_key": "orders(id) × items(order_id, line) × payments(id)",
    "composed": "items(order_id, line) × orders(id) × customers(id)",
    "nested": "[orders by (customer)] by (total)",
    "union_all": "(branch, key) of orders(id) ∪ archive(id)",
    "union": "orders ∪ archive by (id, amount)",
    "semi": "orders(id)",
    "anti": "customers(id)",
    "top": "orders ⋈ customers by rank of (amount desc)",
}
KEYS = {
    "inner": ("orders.id", "customers.id"),
    "by_region": ("region",),
    "self": ("side1.id", "side2.id"),
    "same_key": ("orders.id", "order_id", "line", "payments.id"),
    "composed": ("order_id", "line", "orders.id", "customers.id"),
    "union_all": ("branch", "id"),
    "union": ("id", "amount"),
    "semi": ("id",),
    "top": ("rank",),
}


def place_of(plan: LogicalPlan, kind: type[LogicalNode]) -> int:
    return next(place for place, node in enumerate(plan.nodes) if isinstance(node, kind))


def changed(plan: LogicalPlan, place: int, **fields: object) -> LogicalPlan:
    nodes = list(plan.nodes)
    nodes[place] = replace(nodes[place], **fields)  # type: ignore[arg-type]
    return LogicalPlan(tuple(nodes))


@pytest.mark.parametrize("name", VIEWS)
def test_a_plan_gives_the_columns_of_its_relation(name: str) -> None:
    plan = plan_of(name)
    assert columns_at(plan, len(plan.nodes) - 1) == VIEWS[name].columns
    assert columns_at(optimize(plan), len(optimize(plan).nodes) - 1) == VIEWS[name].columns


@pytest.mark.parametrize("kind", ["left", "full"])
def test_a_side_that_may_be_missing_gives_null(kind: str) -> None:
    plan = plan_of(kind)
    columns = columns_at(plan, place_of(plan, Join))
    assert columns[0].nullable is (kind == "full")
    assert all(column.nullable for column in columns[len(orders.columns) :])


@pytest.mark.parametrize(("name", "zone"), ZONES.items())
def test_the_zone_of_a_view_is_its_row_key(name: str, zone: str) -> None:
    plan = plan_of(name)
    assert zone_at(plan, len(plan.nodes) - 1) == zone


@pytest.mark.parametrize(("name", "key"), KEYS.items())
def test_the_key_of_a_view_names_its_parts_apart(name: str, key: tuple[str, ...]) -> None:
    plan = plan_of(name)
    assert key_at(plan, len(plan.nodes) - 1) == key


def test_the_zone_of_a_reverse_join_is_the_join_key() -> None:
    assert [zone_at(plan, place_of(plan, ReverseJoin)) for plan in map(plan_of, ("inner", "self", "same_key"))] == [
        "orders ⋈ customers on (customer = id)",
        "orders ⋈ orders on (customer)",
        "orders ⋈ items ⋈ payments on (id = order_id)",
    ]


def test_a_node_has_all_the_base_tables_below_it() -> None:
    plan = plan_of("composed")
    assert [table.name for table in plan.bases_of(len(plan.nodes) - 1)] == ["items", "orders", "customers"]
    with pytest.raises(InvariantBroken, match="3 base tables"):
        plan.base_of(len(plan.nodes) - 1)
    assert plan.base_of(1) == VIEWS["composed"].input.sides[0].sides[0].table  # type: ignore[union-attr]


def test_inputs_are_read_and_replaced_for_every_kind_of_node() -> None:
    for node in plan_of().nodes:
        moved = with_inputs(node, tuple(source + 7 for source in inputs_of(node)))
        assert inputs_of(moved) == tuple(source + 7 for source in inputs_of(node))
        assert with_inputs(moved, inputs_of(node)) == node


def test_plans_side_by_side_share_nothing() -> None:
    one = plan_of("composed")
    two = join_plans((one, one))
    assert LogicalPlan(two.nodes[: len(one.nodes)]) == one
    assert min(source for node in two.nodes[len(one.nodes) :] for source in inputs_of(node)) == len(one.nodes)


def test_a_base_table_that_has_grown_moves_no_column_of_a_join() -> None:
    plan = plan_of("left")
    wider = replace(orders.table, columns=(*orders.table.columns, Column("name", STRING)))
    grown = changed(plan, place_of(plan, Base), table=wider)
    validate_plan(grown)
    assert columns_at(grown, len(grown.nodes) - 1) == columns_at(plan, len(plan.nodes) - 1)
    assert plan_text(grown).splitlines()[1:] == plan_text(plan).splitlines()[1:]


def broken_plans() -> dict[str, LogicalPlan]:
    inner, anti, union, top = (plan_of(name) for name in ("inner", "anti", "union_all", "top"))
    table, join = place_of(inner, ReverseJoin), place_of(inner, Join)
    keys = inner.nodes[table].keys  # type: ignore[union-attr]
    other = (column(customers, "name"),)
    number = column(orders, "amount")
    anti_number = replace(number, position=len(customers.columns) + number.position)
    return {
        "which does not stand before it": changed(inner, join, input=99),
        "reads the REVERSE-JOIN": changed(inner, join + 1, input=table),
        "reads no REVERSE-JOIN": changed(inner, join, input=0),
        "for each of at least two sides": changed(inner, table, keys=keys[:1]),
        "different types": changed(inner, table, keys=(keys[0], other)),
        "which has fewer": changed(inner, table, widths=(99, 3)),
        "is not a column": changed(inner, table, keys=((replace(number, position=50),),) * 2),
        "predicate of": changed(anti, place_of(anti, Join), residual=anti_number),
        "different columns": changed(union, place_of(union, Union), inputs=(1, 5)),
        "nobody reads": LogicalPlan((*inner.nodes, Select(0, more(orders, "amount", 1)))),
        "the limit of": changed(top, place_of(top, Top), limit=-1),
    }


@pytest.mark.parametrize(("words", "plan"), broken_plans().items())
def test_a_broken_plan_is_caught(words: str, plan: LogicalPlan) -> None:
    with pytest.raises(InvariantBroken, match=words):
        validate_plan(plan)


def test_a_reference_to_groups_needs_a_fold() -> None:
    plan = plan_of("by_region")
    project = next(node for node in plan.nodes if isinstance(node, Project))
    with pytest.raises(InvariantBroken, match="speaks of groups"):
        validate_plan(changed(plan, plan.nodes.index(project), input=0))
