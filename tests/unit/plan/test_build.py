"""From relations to the unoptimized plan: the SQL pattern of paper 3, figure 3."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.support.relations import column, joined, more, shown, where
from tests.support.views_by_hand import VIEWS, orders, plan_of
from viewkeeper.model.schema import TableId
from viewkeeper.plan.build import build_index, build_view
from viewkeeper.plan.logical import Base, Delta, Join, LogicalPlan, ReverseJoin, Select, Top, Union, View
from viewkeeper.plan.text import plan_text
from viewkeeper.plan.validate import validate_plan
from viewkeeper.sql.relations import Relation


def kinds(plan: LogicalPlan) -> list[str]:
    return [type(node).__name__ for node in plan.nodes]


def built(relation: Relation) -> LogicalPlan:
    return build_view(relation, view_id=TableId(9), name="v")


@pytest.mark.parametrize("name", VIEWS)
@pytest.mark.parametrize("before_images", [True, False])
def test_every_plan_is_valid(name: str, before_images: bool) -> None:
    validate_plan(plan_of(name, before_images=before_images))


def test_the_pattern_of_a_simple_query_is_the_papers() -> None:
    """Paper 3, figure 3: base → δ → σ on each side, then ⋈ → δ → γ → δ → σ → π."""
    left = ["Base", "Delta", "Select", "Select"]
    right = ["Base", "Delta"]
    behind = ["ReverseJoin", "Join", "Delta", "Fold", "Delta", "Select", "Project", "View"]
    assert kinds(plan_of("by_region")) == left + right + behind


def test_a_table_in_a_new_zone_is_followed_by_a_delta_where_it_feeds_more_than_its_view() -> None:
    for name, inner in (("inner", 0), ("nested", 1), ("composed", 1), ("by_region", 2), ("top", 1), ("union", 0)):
        deltas = [node for node in plan_of(name).nodes if isinstance(node, Delta)]
        assert sum(delta.old_rows == "versions" for delta in deltas) == inner, name


def test_a_base_table_stands_once_with_one_delta() -> None:
    plan = plan_of("self")
    assert kinds(plan)[:3] == ["Base", "Delta", "ReverseJoin"]
    table = plan.nodes[2]
    assert isinstance(table, ReverseJoin) and table.inputs == (1, 1)
    assert plan.readers(1) == (2,)


def test_each_conjunct_is_a_selection_and_having_is_one() -> None:
    both = built(shown(where(orders, more(orders, "amount", 1), more(orders, "amount", 2)), "id"))
    assert sum(isinstance(node, Select) for node in both.nodes) == 2
    assert sum(isinstance(node, Select) for node in plan_of("by_region").nodes) == 3


def test_a_join_of_many_sides_on_one_key_has_one_reverse_join() -> None:
    """Paper 3, section 4.2, case 1; on different keys there is one for each pair, case 2."""
    (table,) = [node for node in plan_of("same_key").nodes if isinstance(node, ReverseJoin)]
    assert len(table.inputs) == len(table.keys) == 3
    assert sum(isinstance(node, ReverseJoin) for node in plan_of("composed").nodes) == 2


def test_kind_residual_and_limit_are_those_of_the_relation() -> None:
    found = {name: [n for n in plan_of(name).nodes if isinstance(n, Join | Top | Union)] for name in VIEWS}
    (anti,), (top,), (union,) = found["anti"], [n for n in found["top"] if isinstance(n, Top)], found["union_all"]
    assert isinstance(anti, Join) and (anti.kind, anti.residual is not None) == ("anti", True)
    assert (top.limit, [part.descending for part in top.order]) == (3, [True])
    assert isinstance(union, Union) and len(union.inputs) == 2


def test_an_old_view_keeps_its_columns_apart_when_a_side_has_grown() -> None:
    join = joined("inner", (orders, "customer"), (orders, "id"))
    plan = built(shown(join, "id"))
    table = next(node for node in plan.nodes if isinstance(node, ReverseJoin))
    assert table.widths == (len(orders.columns),) * 2
    assert column(join, "id", place=1).position == table.widths[0]


def test_an_index_is_built_as_ever() -> None:
    table = replace(orders.table, delta=TableId(8))
    plan = build_index(table, view_id=TableId(9), name="i", columns=(1,), covered=(2,))
    assert plan_text(plan).splitlines()[1:] == [
        "r1 := δ r0 [stored]",
        "r2 := index r1 by (customer) covering (amount)",
        "r3 := view i r2",
    ]
    assert isinstance(plan.nodes[0], Base) and isinstance(plan.nodes[-1], View)
