"""The physical plan: nodes go to JSON and back as they are; levels, readers and sources follow from the edges."""

from __future__ import annotations

import json
from dataclasses import dataclass

import pytest

from tests.support.plans import nodes_of, tables_of, with_view
from viewkeeper.catalog.catalog import Catalog
from viewkeeper.model.json_codec import from_json_value, to_json_value
from viewkeeper.model.schema import Column, TableId, TableSchema
from viewkeeper.model.types import BIGINT, DOUBLE, INT, STRING, SqlType
from viewkeeper.plan.define import define_index, define_view
from viewkeeper.plan.nodes import NODE_KINDS, AggregateNode, Edge, JoinNode, ProjectNode, TopNode
from viewkeeper.plan.physical import PhysicalPlan, node_from_json, node_to_json
from viewkeeper.plan.planner import physical_plan, unfilled

A = (Column("k", STRING, False), Column("g", STRING), Column("x", INT), Column("f", DOUBLE))
B = (Column("i", INT, False), Column("j", BIGINT, False), Column("g", STRING), Column("p", SqlType("DECIMAL", 9, 2)))
TEXTS = {
    "selected": "SELECT k, x + 1 AS y FROM a WHERE x * 2 > 3",
    "united": "SELECT g, x FROM a WHERE x + 1 > 0 UNION ALL SELECT g, i FROM b",
    "folded": "SELECT g, SUM(f) AS s, AVG(x + 1) AS v, MIN(x) AS lo, MAX(x) AS hi, COUNT(DISTINCT f) AS d FROM a "
    "WHERE x IS NOT NULL GROUP BY g HAVING SUM(x) > 0",
    "total": "SELECT COUNT(*) AS n, SUM(x) AS s FROM a",
    "both_counted": "SELECT g, COUNT(*) AS n FROM (SELECT g FROM a UNION ALL SELECT g FROM b) GROUP BY g",
    "joined": "SELECT a.k, b.p FROM a JOIN b ON a.g = b.g AND a.x + 1 = b.i",
    "kept": "SELECT a.k, b.p FROM a LEFT JOIN b ON a.g = b.g",
    "kept_if": "SELECT a.k, b.p FROM a FULL JOIN b ON a.g = b.g AND a.x < b.i",
    "without": "SELECT k FROM a WHERE NOT EXISTS (SELECT 1 FROM b WHERE b.g = a.g AND b.i > a.x)",
    "both": "SELECT p.n, q.n AS m FROM (SELECT COUNT(*) AS n FROM a) p FULL JOIN (SELECT COUNT(*) AS n FROM b) q "
    "ON p.n = q.n",
    "top": "SELECT g, s FROM (SELECT g, SUM(p) AS s FROM b GROUP BY g) q ORDER BY s DESC NULLS FIRST, g LIMIT 3",
}


@pytest.fixture(scope="module")
def catalog() -> Catalog:
    catalog = Catalog().with_table(TableSchema(TableId(1), "a", A, ("k",)))
    catalog = catalog.with_table(TableSchema(TableId(2), "b", B, ("j", "i"), TableId(3)))
    for name, text in TEXTS.items():
        catalog = with_view(catalog, name, text)
    return catalog.with_view(*define_index(catalog, "idx", "a", ("g",), ("x",)))


def names_of_nodes(catalog: Catalog, name: str) -> list[str]:
    return [type(node).__name__ for node in nodes_of(catalog, name)]


@pytest.mark.parametrize("name", [*TEXTS, "idx"])
def test_every_node_goes_to_json_and_back(catalog: Catalog, name: str) -> None:
    for node in nodes_of(catalog, name):
        text = json.dumps(node_to_json(node))
        again = node_from_json(json.loads(text))

        assert again == node and type(again) is type(node)
        assert json.dumps(node_to_json(again)) == text
        assert hash(again) == hash(node)  # tuples all the way down: no list is left in it


def test_the_views_have_every_kind_of_node_and_every_part_of_one(catalog: Catalog) -> None:
    """So that the test above says something about all of them."""
    nodes = physical_plan(catalog).nodes
    edges = [edge for node in nodes for edge in node.edges]
    aggregations = [node for node in nodes if isinstance(node, AggregateNode)]
    joins = [node for node in nodes if isinstance(node, JoinNode)]

    assert {type(node) for node in nodes} == set(NODE_KINDS.values()) == {ProjectNode, AggregateNode, JoinNode, TopNode}
    assert {node.kind for node in joins} == {"inner", "left", "full", "anti"}
    for what, some in {
        "aside": [edge.aside for edge in edges],
        "entries": [node.entries for node in aggregations],
        "doubles": [node.exact_sums for node in aggregations],
        "degraded": [node.degraded for node in aggregations],
        "groups": [node.groups for node in aggregations],
        "conditions": [any(node.conditions) for node in aggregations],
        "rows": [edge.rows for edge in edges],
        "moves": [edge.moves for edge in edges],
        "always": [node.always for node in aggregations],
        "residual": [node.residual for node in joins],
        "counts": [node.counts for node in joins],
        "matches": [node.matches for node in joins],
        "tag_place": [node.tag_place for node in joins],
    }.items():
        assert any(some) and not all(some), what


def test_a_part_that_is_not_there_stays_so(catalog: Catalog) -> None:
    edge = Edge(TableId(1), (), (), "SELECT 1", None, None)

    assert from_json_value(Edge, json.loads(json.dumps(to_json_value(edge)))) == edge
    assert to_json_value(edge) == {
        "source": 1,
        "columns": [],
        "key": [],
        "rows": "SELECT 1",
        "moves": None,
        "aside": None,
    }


@dataclass(frozen=True, slots=True)
class Nested:
    pairs: tuple[tuple[str, int], ...]
    column: Column | None
    inner: tuple[Edge, ...]


def test_pairs_options_and_nested_values_keep_their_types() -> None:
    edge = Edge(TableId(7), (0, 2), (Column("k", STRING, False, added=4),), "SELECT ord", None, TableId(9))
    for value in (Nested((), None, ()), Nested((("a", 1), ("b", 2)), Column("c", SqlType("DECIMAL", 5, 2)), (edge,))):
        again = from_json_value(Nested, json.loads(json.dumps(to_json_value(value))))

        assert again == value
        assert isinstance(again.pairs, tuple) and all(isinstance(pair, tuple) for pair in again.pairs)


def test_a_node_is_one_level_above_the_highest_that_it_reads(catalog: Catalog) -> None:
    def levels(name: str) -> list[int]:
        plan = physical_plan(catalog)
        return [next(n for n, stage in enumerate(plan.stages) if node in stage) for node in nodes_of(catalog, name)]

    assert levels("selected") == levels("folded") == levels("idx") == levels("united") == [1]
    assert (levels("joined"), names_of_nodes(catalog, "joined")) == ([1, 2], ["JoinNode", "ProjectNode"])
    assert names_of_nodes(catalog, "both") == ["AggregateNode", "AggregateNode", "JoinNode", "ProjectNode"]
    assert levels("both") == [1, 1, 2, 3]
    assert (levels("top"), names_of_nodes(catalog, "top")) == ([1, 2, 3], ["AggregateNode", "TopNode", "ProjectNode"])


def test_levels_of_sides_of_different_depth(catalog: Catalog) -> None:
    deep = with_view(
        catalog,
        "deep",
        "SELECT a.k, q.n FROM a JOIN (SELECT n, COUNT(*) AS c FROM (SELECT g, COUNT(*) AS n FROM b GROUP BY g) p "
        "GROUP BY n) q ON a.x = q.n",
    )
    nodes = nodes_of(deep, "deep")
    plan = PhysicalPlan(catalog.tables, tuple(nodes))

    assert [len(stage) for stage in plan.stages[1:]] == [1, 1, 1, 1]
    assert [type(node).__name__ for node in nodes] == ["AggregateNode", "AggregateNode", "JoinNode", "ProjectNode"]
    assert plan.sources_of(deep.view("deep").id) == (1, 2)  # the join reads a base table and a node


def test_nodes_stand_behind_all_that_they_read_and_the_views_own_is_last(catalog: Catalog) -> None:
    for view in catalog.views:
        known = {table.id for table in catalog.tables}
        nodes = nodes_of(catalog, view.name)
        for node in nodes:
            assert {edge.source for edge in node.edges} <= known
            known.add(node.table)
        assert [node.table for node in nodes] == list(view.needs)
        assert nodes[-1].table == view.node.table
        assert {node.backfill for node in nodes} == {view.id}
        assert min(tables_of(catalog, view)) == view.id + 1


def test_no_table_belongs_to_two_nodes(catalog: Catalog) -> None:
    """R6: a table has exactly one writing node."""
    tables = [table for node in physical_plan(catalog).nodes for table in node.tables]

    assert len(set(tables)) == len(tables)
    assert not set(tables) & {1, 2, 3}


def test_readers_are_found_by_node_and_edge(catalog: Catalog) -> None:
    def plan_of(*names: str) -> PhysicalPlan:
        nodes = [node for name in names for node in nodes_of(catalog, name)]
        return PhysicalPlan(catalog.tables, tuple(nodes))

    joined = catalog.view("joined")
    plan = plan_of("united", "joined", "total")
    united, join, top, total = plan.nodes
    assert plan.readers(TableId(1)) == [(united, 0), (join, 0), (total, 0)]
    assert plan.readers(TableId(2)) == [(united, 1), (join, 1)]
    assert plan.readers(joined.needs[0]) == [(top, 0)]
    assert plan.readers(joined.node.table) == plan.readers(TableId(999)) == []
    assert plan.backfills == (catalog.view("united").id, joined.id, catalog.view("total").id)


def test_a_table_that_is_read_twice_by_one_node_has_two_readers(catalog: Catalog) -> None:
    twice = with_view(catalog, "twice", "SELECT p.k, q.k AS l FROM a p JOIN a q ON p.g = q.g")

    plan = PhysicalPlan(catalog.tables, tuple(nodes_of(twice, "twice")))
    assert plan.readers(TableId(1)) == [(plan.nodes[0], 0), (plan.nodes[0], 1)]


def test_sources_are_base_tables_in_the_order_in_which_they_were_made(catalog: Catalog) -> None:
    plan = physical_plan(catalog)
    backwards = with_view(catalog, "backwards", "SELECT b.i, a.k FROM b JOIN a ON a.g = b.g")

    assert plan.sources_of(catalog.view("top").id) == (2,)
    assert plan.sources_of(catalog.view("both").id) == plan.sources_of(catalog.view("united").id) == (1, 2)
    assert physical_plan(backwards).sources_of(backwards.view("backwards").id) == (1, 2)
    for view in catalog.views:
        assert plan.sources_of(view.id) == catalog.bases_of(view)


def test_only_a_table_that_has_a_delta_goes_through_one(catalog: Catalog) -> None:
    plan = physical_plan(catalog)

    assert [delta.source.name for delta in plan.deltas] == ["b"]
    assert PhysicalPlan.from_json(json.loads(json.dumps(plan.to_json()))) == plan
    assert [table.name for table in physical_plan(catalog, stopped=[n.table for n in catalog.nodes]).tables] == ["b"]


@pytest.fixture
def shared(catalog: Catalog) -> Catalog:
    """Views that have a grouping in common, and views over views."""
    plain = Catalog(next_id=4, tables=catalog.tables)
    for name, text in {
        "sums": "SELECT g, SUM(x) AS s, COUNT(*) AS n FROM a GROUP BY g",
        "again": "SELECT COUNT(*) AS number, SUM(q.x) AS total, q.g AS label FROM a AS q GROUP BY q.g",
        "inner": "SELECT n, COUNT(*) AS m FROM (SELECT g, COUNT(*) AS n, SUM(x) AS s FROM a GROUP BY g) q GROUP BY n",
        "over": "SELECT label, total FROM again WHERE number > 1",
        "top": "SELECT label, total FROM over ORDER BY total DESC, label LIMIT 2",
    }.items():
        plain = with_view(plain, name, text)
    return plain


def test_equal_parts_of_views_are_one_node(shared: Catalog) -> None:
    sums, again = shared.view("sums"), shared.view("again")
    assert again.node == sums.node and again.needs == sums.needs
    assert [(item.column.name, item.part, item.index) for item in again.shown] == [
        ("number", sums.shown[2].part, sums.shown[2].index),
        ("total", sums.shown[1].part, sums.shown[1].index),
        ("label", "key", 0),
    ]
    assert shared.view("inner").needs[0] == sums.node.table
    plan = physical_plan(shared)
    assert [type(node).__name__ for node in plan.nodes] == [
        "AggregateNode",
        "AggregateNode",
        "ProjectNode",
        "TopNode",
        "ProjectNode",
    ]
    assert sum(edge.source == 1 for node in plan.nodes for edge in node.edges) == 1  # the base is read by one node


def test_a_view_over_a_view_reads_what_that_one_keeps(shared: Catalog) -> None:
    sums, over, top = (shared.view(name) for name in ("sums", "over", "top"))
    assert over.needs == (sums.node.table, over.node.table)
    assert over.node.reads == (sums.node.table,)
    assert top.needs[:2] == over.needs
    assert shared.bases_of(top) == (1,)


def test_a_node_is_there_for_as_long_as_a_view_needs_it(shared: Catalog) -> None:
    node = shared.view("sums").node
    fewer = shared.without_view("sums", 7)
    assert node in fewer.nodes and fewer.dropped == ()
    for name in ("top", "over", "again"):
        fewer = fewer.without_view(name, 8)
    assert node in fewer.nodes
    last = fewer.without_view("inner", 9)
    assert (last.nodes, last.views) == ((), ())
    assert {table for table, _ in last.dropped} == {table for one in shared.nodes for table in one.tables}


def test_what_is_to_be_filled_at_one_time_is_filled_together(shared: Catalog) -> None:
    order = [shared.view(name).id for name in ("sums", "inner", "over", "top")]
    plan = physical_plan(shared)
    assert plan.backfills == tuple(order)
    assert {plan.sources_of(backfill) for backfill in order} == {(1,)}
    assert unfilled(shared, filled=order[:3], stopped=()) == {order[3]}
    assert unfilled(shared, filled=[], stopped=[shared.view("over").node.table]) == set(order[:2])


def test_a_backfill_waits_for_one_that_has_begun_and_is_filled_from_its_nodes(shared: Catalog) -> None:
    sums, inner, over, top = (shared.view(name) for name in ("sums", "inner", "over", "top"))
    assert physical_plan(shared, filling=[sums.id]).backfills == (sums.id,)
    assert physical_plan(shared, filling=[sums.id, over.id]).backfills == (sums.id, over.id)
    plan = physical_plan(shared, filling=[inner.id])
    assert plan.backfills == (sums.id, inner.id, over.id, top.id)
    assert plan.sources_of(over.id, [sums.id]) == plan.sources_of(top.id, [sums.id]) == (sums.node.table,)
    assert plan.sources_of(top.id, [sums.id, over.id]) == (over.node.table,)


def test_what_is_stopped_is_left_out_with_all_that_reads_it_and_is_not_used_again(shared: Catalog) -> None:
    stopped = [shared.view("over").node.table]
    run = {node.table for node in physical_plan(shared, stopped=stopped).nodes}
    assert run == {shared.view("sums").node.table, shared.view("inner").node.table}

    catalog = shared.with_view(
        *define_view(shared, "anew", "SELECT label, total FROM again WHERE number > 1", without=stopped)
    )
    assert catalog.view("anew").node.text == shared.view("over").node.text
    assert catalog.view("anew").node.table not in {node.table for node in shared.nodes}
    assert catalog.view("anew").needs[0] == shared.view("sums").node.table


def test_a_join_is_not_filled_from_so_a_new_reader_has_one_of_its_own(catalog: Catalog) -> None:
    one = with_view(Catalog(next_id=4, tables=catalog.tables), "one", "SELECT a.k, b.p FROM a JOIN b ON a.g = b.g")
    two = with_view(one, "two", "SELECT b.p, COUNT(a.k) AS n FROM a JOIN b ON a.g = b.g GROUP BY b.p")
    first, second = (two.stored(two.view(name)) for name in ("one", "two"))
    assert first[0].text == second[0].text
    assert first[0].table != second[0].table

    three = with_view(two, "three", "SELECT p, COUNT(k) AS n FROM one GROUP BY p")
    assert three.view("three").needs[:2] == three.view("one").needs
    four = with_view(three, "four", "SELECT u.k, u.p FROM (SELECT a.k, b.p FROM a JOIN b ON a.g = b.g) u")
    assert len({node.text for node in four.stored(four.view("four"))}) == len(four.view("four").needs)
    assert len(physical_plan(four).nodes) == len(four.nodes)


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("SELECT k FROM a WHERE k = 'x' AND g = 'y'", "SELECT k FROM a WHERE 'y' = g AND 'x' = k AND g = 'y'", True),
        ("SELECT g FROM a WHERE k < 'x' OR g IS NULL", "SELECT g FROM a WHERE g IS NULL OR k < 'x'", True),
        (
            "SELECT p FROM a JOIN b ON a.g = b.g AND a.k = b.g",
            "SELECT p FROM a JOIN b ON b.g = a.k WHERE b.g = a.g",
            True,
        ),
        ("SELECT k FROM a WHERE k = 'x' AND g = 'y'", "SELECT k FROM a WHERE k = 'x' OR g = 'y'", False),
        # where the first condition keeps the second from failing, their order says which rows are set aside
        (
            "SELECT k FROM a WHERE g > '1' AND CAST(k AS INT) > 0",
            "SELECT k FROM a WHERE CAST(k AS INT) > 0 AND g > '1'",
            False,
        ),
    ],
)
def test_views_whose_conditions_differ_in_order_alone_are_one_node(
    catalog: Catalog, one: str, other: str, same: bool
) -> None:
    both = with_view(with_view(Catalog(next_id=4, tables=catalog.tables), "one", one), "other", other)
    assert (both.view("one").needs == both.view("other").needs) is same
