"""Plans as pictures: Mermaid and Graphviz are told what is there; where it goes is their matter."""

from __future__ import annotations

import re

from tests.support.relations import column, shown, table, where
from tests.support.views_by_hand import VIEWS, lines_for, orders, plan_of
from viewkeeper.algebra import construct
from viewkeeper.algebra.expressions import Literal
from viewkeeper.algebra.relations import Scan
from viewkeeper.model.schema import Column
from viewkeeper.model.types import BIGINT, STRING
from viewkeeper.plan.explain.pictures import dot_of, mermaid_of, picture_of
from viewkeeper.plan.explain.plan_lines import Lines

ODD = 'a<b & "c" `d` #e; \\N 日本語'


def odd_plan() -> Lines:
    odd = Scan(table(7, ODD, Column("id", BIGINT, nullable=False), Column("x", STRING)))
    passing = where(odd, construct.compare("=", column(odd, "x"), Literal(ODD * 9, STRING)))
    return lines_for({ODD: shown(passing, "x")})


def test_dot_has_boxes_for_tables_ellipses_for_expressions_and_clusters_for_zones() -> None:
    text = dot_of(plan_of("left"))
    assert 'label="zone orders ⋈ customers on (customer = id)"' in text
    assert re.search(r'v2 \[label="REVERSE-JOIN\\n\(customer = id, side 1, id\) and\\n\(.* color="#a97c1f"\]', text)
    assert re.search(r'v3 \[label="⋈\\nleft" .* shape=ellipse\]', text)
    edges = re.findall(r"v(\d+) -> v(\d+)", text)
    assert [(int(source), int(target)) for source, target in edges] == list(picture_of(plan_of("left")).edges)
    assert text.count("subgraph cluster_") == 3


def test_the_edges_of_each_view_have_a_colour_of_their_own() -> None:
    plan = plan_of(*list(VIEWS)[:8])
    colours: dict[str, set[str]] = {}
    for colour, views in re.findall(r'-> v\d+ \[color="([^"]*)" tooltip="([^"]*)"\]', dot_of(plan)):
        colours.setdefault(views, set()).add(colour)
    assert colours.keys() == set(list(VIEWS)[:8])
    assert all(len(found) == 1 for found in colours.values())
    assert len(set().union(*colours.values())) == 8


def test_edges_to_what_several_views_share_are_grey() -> None:
    text = dot_of(plan_of("inner", "left", before_images=False))
    assert re.findall(r'-> v\d+ \[color="#8a95a1" tooltip="([^"]*)"\]', text) == ["inner, left"] * 4


def test_a_long_text_is_cut_in_its_label_and_whole_in_the_tooltip() -> None:
    text = dot_of(odd_plan())
    label, told = re.findall(r'label="(σ(?:[^"\\]|\\.)*)" tooltip="((?:[^"\\]|\\.)*)"', text)[0]
    assert label.endswith("…") and len(label) < 200
    assert told.count("日本語") == 10  # and once in the name of the view


def test_no_text_leaves_its_string_in_dot() -> None:
    for line in dot_of(odd_plan()).splitlines():
        outside = re.sub(r'"(?:[^"\\]|\\.)*"', "", line)
        assert re.fullmatch(r"[\w\s={}\[\].>-]*", outside), line


def test_a_self_join_has_an_edge_for_each_side() -> None:
    assert picture_of(plan_of("self")).edges[:2] == ((0, 1), (0, 1))
    assert dot_of(plan_of("self")).count("v0 -> v1 ") == 2


def test_tables_that_pass_rows_on_stand_between_and_others_beside() -> None:
    picture = picture_of(plan_of("by_region"))
    titles = [vertex.title for vertex in picture.vertices]
    aggregation, entries, groups, having = (titles.index(title) for title in ("γ", "PRE-AGGREGATION", "groups", "σ"))
    having = next(place for place, title in enumerate(titles) if title == "σ" and place > aggregation)
    assert {(aggregation, entries), (aggregation, groups), (groups, having)} <= set(picture.edges)
    assert not [edge for edge in picture.edges if edge[0] == entries]


def test_mermaid_has_boxes_for_tables_round_nodes_for_expressions_and_subgraphs_for_zones() -> None:
    lines = mermaid_of(plan_of("left")).splitlines()
    assert lines[0] == "flowchart LR"
    for line in (
        '  subgraph z2["zone orders ⋈ customers on (customer = id)"]',
        '    v2["REVERSE-JOIN<br/>(customer = id, side 1, id) and (customer = id, side 2) → name"]:::auxiliary',
        '    v3(["⋈ left"]):::expression',
        "  v0 --> v2",
        "  v1 --> v2",
        "  v2 --> v3",
    ):
        assert line in lines
    assert lines.count("  end") == sum(line.startswith("  subgraph ") for line in lines) == 3


def test_mermaid_tells_who_shares_a_node() -> None:
    text = mermaid_of(plan_of("left", "semi"))
    assert '["customers<br/>(id) → name, region<br/>shared by left, semi"]' in text
    assert '(["π name"])' not in text


def test_no_text_leaves_its_label() -> None:
    for line in mermaid_of(odd_plan()).splitlines():
        inside = re.findall(r'"(.*)"', line)
        assert all('"' not in text and "`" not in text and "<b" not in text.replace("<br/>", "") for text in inside)
    assert "#35;e" in mermaid_of(odd_plan())


def test_control_characters_are_spelled() -> None:
    steering = where(orders, construct.compare("=", Literal("\x01\t\u2028\x85", STRING), Literal("", STRING)))
    plan = lines_for({"v": shown(steering, "id")})
    assert r"\x01\t\u2028\x85" in mermaid_of(plan)
    assert r"\\x01\\t\\u2028\\x85" in dot_of(plan)
    for text in (mermaid_of(plan), dot_of(plan)):
        assert all(line.isprintable() for line in text.split("\n"))
