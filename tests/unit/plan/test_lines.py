"""The lines of a plan: what stands once, zones, row keys, and who shares what."""

from __future__ import annotations

import pytest

from tests.support.relations import joined, more, shown, where
from tests.support.views_by_hand import VIEWS, by_id, customers, lines_for, orders, plan_of
from viewkeeper.algebra.relations import Aggregation, Join, Project, Relation, Select
from viewkeeper.model.schema import TableId
from viewkeeper.plan.explain.explain import lines_text
from viewkeeper.plan.explain.names import key_of, zone_at, zone_of
from viewkeeper.plan.explain.plan_lines import (
    BASE,
    DELTA,
    ENTRIES,
    OPERATOR,
    VIEW,
    Explained,
    Line,
    Lines,
    lines_of,
    views_of,
)
from viewkeeper.plan.nodes import Edge, Node, ProjectNode

ZONES = {
    "inner": "orders(id)",
    "by_region": "orders ⋈ customers by (region)",
    "left": "orders(id)",
    "self": "orders(id) × orders(id)",
    "same_key": "items(order_id, line)",
    "composed": "items(order_id, line)",
    "nested": "[orders by (customer)] by (total)",
    "union_all": "(branch, key) of orders(id) ∪ archive(id)",
    "union": "orders ∪ archive by (id, amount)",
    "semi": "orders(id)",
    "anti": "customers(id)",
    "top": "orders ⋈ customers by rank of (amount desc)",
}
KEYS = {
    "inner": ("orders.id",),
    "by_region": ("region",),
    "self": ("side1.id", "side2.id"),
    "same_key": ("order_id", "line"),
    "composed": ("order_id", "line"),
    "union_all": ("branch", "id"),
    "union": ("id", "amount"),
    "semi": ("id",),
    "top": ("rank",),
}


def count(lines: Lines, kind: str) -> int:
    return sum(line.kind == kind for line in lines)


def reader(table: int, *sources: int) -> Node:
    edges = tuple(Edge(TableId(source), (), (), "", None, None) for source in sources)
    return ProjectNode(TableId(table), edges, (), ())


def shared(lines: Lines) -> list[str]:
    return [line.kind for line, views in zip(lines, views_of(lines), strict=True) if len(views) > 1]


@pytest.mark.parametrize(("name", "zone"), ZONES.items())
def test_the_zone_of_a_view_is_its_row_key(name: str, zone: str) -> None:
    assert zone_of(VIEWS[name]) == zone


@pytest.mark.parametrize(("name", "key"), KEYS.items())
def test_the_key_of_a_view_names_its_parts_apart(name: str, key: tuple[str, ...]) -> None:
    assert key_of(VIEWS[name]) == key


def test_the_zone_of_a_reverse_join_is_the_join_key() -> None:
    found = [line for name in ("inner", "self", "same_key") for line in plan_of(name) if line.kind == ENTRIES]
    assert [zone_at(line) for line in found] == [
        "orders ⋈ customers on (customer = id)",
        "orders ⋈ orders on (customer)",
        "orders ⋈ items ⋈ payments on (id = order_id)",
    ]


@pytest.mark.parametrize("before_images", [True, False])
def test_an_input_stands_before_what_reads_it_and_every_line_is_read(before_images: bool) -> None:
    lines = plan_of(before_images=before_images)
    assert all(source < place for place, line in enumerate(lines) for source in line.inputs)
    read = {source for line in lines for source in line.inputs}
    assert {place for place, line in enumerate(lines) if line.kind != VIEW} == read
    assert [line.name for line in lines if line.kind == VIEW] == list(VIEWS)


def test_the_pattern_of_a_simple_query_is_the_papers() -> None:
    """Paper 3, figure 3: base → δ → σ on each side, then ⋈ → γ → σ → π."""
    lines = plan_of("by_region", before_images=False)
    assert [line.kind for line in lines] == [BASE, DELTA, OPERATOR, BASE, DELTA, ENTRIES, *[OPERATOR] * 4, VIEW]
    operators = [type(line.relation) for line in lines if line.kind == OPERATOR]
    assert operators == [Select, Join, Aggregation, Select, Project]


def test_a_base_table_stands_once_with_one_delta() -> None:
    lines = plan_of("self", before_images=False)
    assert [(line.kind, line.inputs) for line in lines[:3]] == [(BASE, ()), (DELTA, (0,)), (ENTRIES, (1, 1))]
    assert count(plan_of(), BASE) == 5 and count(plan_of(before_images=False), DELTA) == 5


def test_what_views_compute_alike_is_computed_for_each_and_only_their_tables_are_shared() -> None:
    lines = plan_of("inner", "by_region", "top")
    assert (count(lines, ENTRIES), count(lines, BASE)) == (3, 2)
    assert shared(lines) == [BASE, BASE]
    assert shared(plan_of("inner", "by_region", before_images=False)) == [BASE, DELTA, BASE, DELTA]


def test_what_one_stored_node_keeps_is_one_line_for_all_views() -> None:
    join = joined("inner", (orders, "customer"), (customers, "id"))
    views = [
        Explained(TableId(number), f"v{number}", shown(join, column), number, {join: [7]}, {number: reader(number, 7)})
        for number, column in ((1, "name"), (2, "amount"))
    ]
    lines = lines_of(views, {}.__getitem__, by_id())
    assert [line.stored for line in lines if line.kind in (ENTRIES, OPERATOR)] == [7, 7, None, None]
    assert shared(lines) == [BASE, BASE, ENTRIES, OPERATOR]


def test_a_part_that_is_kept_twice_has_two_lines() -> None:
    """As where one reader needs it with other columns than another does."""
    part = joined("semi", (orders, "customer"), (customers, "id"))
    relation = joined("inner", (part, "id"), (part, "id"))
    nodes = {1: reader(1, 9), 9: reader(9, 7, 8)}
    view = Explained(TableId(1), "v", relation, 1, {part: [7, 8], relation: [9]}, nodes)
    assert [line.stored for line in lines_of([view], {}.__getitem__, by_id()) if line.kind == ENTRIES] == [7, 8, 9]


def test_joins_whose_sides_are_selected_differently_share_nothing_but_the_bases() -> None:
    few = where(orders, more(orders, "amount", 1))
    views = {
        f"v{at}": shown(joined("inner", (side, "customer"), (customers, "id")), "name")
        for at, side in enumerate((orders, few))
    }
    assert (count(lines_for(views), ENTRIES), count(lines_for(views), BASE)) == (2, 2)


def test_explain_says_zones_tables_and_who_shares_what() -> None:
    text = lines_text(plan_of("inner", "left", "semi")).splitlines()
    assert "-- zone orders ⋈ customers on (customer = id)" in text
    assert "r0 := base orders(id, customer, amount, paid)  -- shared by inner, left, semi" in text
    assert [line for line in text if "REVERSE-JOIN" in line] == [
        "   -- keeps REVERSE-JOIN: (customer = id, side 1, id) → amount and (customer = id, side 2) → name",
        "   -- keeps REVERSE-JOIN: (customer = id, side 1, id) and (customer = id, side 2) → name",
        "   -- keeps REVERSE-JOIN: (customer = id, side 1, id) and (customer = id, side 2)",
    ]
    assert sum("shared by" in line for line in text) == 2
    assert text[-1] == "   -- keeps view semi: (id)"


def test_a_chain_of_self_joins_is_explained_without_delay() -> None:
    relation: Relation = shown(orders, "id", "customer")
    for _ in range(6):
        relation = shown(joined("inner", (relation, "customer"), (relation, "customer")), "id", "customer")
    lines = lines_for({"v": relation})
    # one for the top, and two for each level below: its two readers need other columns
    assert count(lines, ENTRIES) == lines_text(lines).count("REVERSE-JOIN: ") == 11


def test_a_line_is_a_plain_value() -> None:
    assert plan_of("composed") == plan_of("composed") and isinstance(hash(plan_of("composed")[0]), int)
    assert Line(VIEW, orders, (0,)) != Line(VIEW, orders, (1,))
