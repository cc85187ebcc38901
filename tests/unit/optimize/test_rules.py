"""The rules on plans with joins, unions and nesting: what is equal is shared, and plans stay plans."""

from __future__ import annotations

import pytest

from tests.support.relations import joined, more, shown, where
from tests.support.views_by_hand import VIEWS, customers, orders, plan_of
from viewkeeper.model.schema import TableId
from viewkeeper.optimize.drop_delta import drop_delta
from viewkeeper.optimize.explain import explain_plan
from viewkeeper.optimize.rules import RULES, optimize
from viewkeeper.optimize.sharing import views_behind
from viewkeeper.plan.build import build_view
from viewkeeper.plan.logical import (
    Base,
    Delta,
    Join,
    LogicalNode,
    LogicalPlan,
    ReverseJoin,
    View,
    columns_at,
    join_plans,
)
from viewkeeper.plan.validate import validate_plan
from viewkeeper.sql.relations import Relation


def count(plan: LogicalPlan, kind: type[LogicalNode]) -> int:
    return sum(isinstance(node, kind) for node in plan.nodes)


def plan_for(*relations: Relation) -> LogicalPlan:
    plans = [build_view(one, view_id=TableId(50 + at), name=f"v{at}") for at, one in enumerate(relations)]
    return join_plans(tuple(plans))


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.__name__)
@pytest.mark.parametrize("before_images", [True, False])
def test_every_rule_keeps_a_plan_valid_and_its_views(rule, before_images: bool) -> None:  # type: ignore[no-untyped-def]
    after = rule(plan_of(before_images=before_images))
    validate_plan(after)
    views = [(place, node.name) for place, node in enumerate(after.nodes) if isinstance(node, View)]
    assert [name for _, name in views] == list(VIEWS)
    assert [columns_at(after, place) for place, _ in views] == [view.columns for view in VIEWS.values()]


@pytest.mark.parametrize("names", [(), *((name,) for name in VIEWS)], ids=lambda names: names[0] if names else "all")
def test_the_optimizer_is_idempotent(names: tuple[str, ...]) -> None:
    once = optimize(plan_of(*names))
    assert optimize(once) == once


def test_each_view_alone_and_all_together_have_each_base_table_once() -> None:
    plan = optimize(plan_of())
    assert count(plan, Base) == 5
    assert all(count(optimize(plan_of(name)), Base) == len(plan_of(name).bases_of(-1)) for name in VIEWS)


def test_a_delta_behind_joins_and_groups_is_dropped_even_where_that_of_the_base_is_stored() -> None:
    plan = plan_of("by_region", before_images=False)
    assert [node.old_rows for node in plan.nodes if isinstance(node, Delta)].count("versions") == 2
    left = [node.old_rows for node in drop_delta(plan).nodes if isinstance(node, Delta)]
    assert left == ["stored", "stored"]


def test_what_views_compute_alike_is_computed_for_each_and_only_their_tables_are_shared() -> None:
    plan = optimize(plan_of("inner", "by_region", "top"))
    assert (count(plan, ReverseJoin), count(plan, Join), count(plan, Base)) == (3, 3, 2)
    shared = {type(node) for node, views in zip(plan.nodes, views_behind(plan), strict=True) if len(views) > 1}
    assert shared == {Base}


def test_a_stored_delta_is_shared_as_its_table_is() -> None:
    plan = optimize(plan_of("inner", "by_region", before_images=False))
    shared = [node for node, views in zip(plan.nodes, views_behind(plan), strict=True) if len(views) > 1]
    assert [type(node) for node in shared] == [Base, Delta, Base, Delta]


def test_joins_whose_sides_are_selected_differently_share_nothing_but_the_bases() -> None:
    few = where(orders, more(orders, "amount", 1))
    views = [shown(joined("inner", (side, "customer"), (customers, "id")), "name") for side in (orders, few)]
    plan = optimize(plan_for(*views))
    assert (count(plan, ReverseJoin), count(plan, Join), count(plan, Base)) == (2, 2, 2)


def test_explain_says_zones_tables_and_who_shares_what() -> None:
    text = explain_plan(optimize(plan_of("inner", "left", "semi"))).splitlines()
    assert "-- zone orders ⋈ customers on (customer = id)" in text
    assert "r0 := base orders(id, customer, amount, paid)  -- shared by inner, left, semi" in text
    assert text.count("   -- keeps REVERSE-JOIN: (customer = id, side, key) → row") == 3
    assert sum("shared by" in line for line in text) == 2
    assert text[-1] == "   -- keeps view semi: (id)"


def test_a_chain_of_self_joins_is_explained_without_delay() -> None:
    relation: Relation = shown(orders, "id", "customer")
    for _ in range(6):
        relation = shown(joined("inner", (relation, "customer"), (relation, "customer")), "id", "customer")
    plan = optimize(plan_for(relation))
    assert count(plan, Join) == 63  # each level reads the one below it twice, and computes it twice
    assert explain_plan(plan).count("REVERSE-JOIN: ") == 63
