"""Plans as pictures: Mermaid says what is there, SVG puts it where nothing overlaps."""

from __future__ import annotations

import itertools
import re
from xml.etree import ElementTree

import pytest

from tests.support.relations import column, shown, table, where
from tests.support.views_by_hand import VIEWS, orders, plan_of
from viewkeeper.model.schema import Column, TableId
from viewkeeper.model.types import BIGINT, STRING
from viewkeeper.optimize.columns import Block, Link, place_blocks
from viewkeeper.optimize.layout import Layout, lay_out
from viewkeeper.optimize.mermaid import mermaid_of
from viewkeeper.optimize.rules import optimize
from viewkeeper.optimize.shapes import FONT_PX, TITLE_PX, Shape, shape_of, text_width_px, wrapped
from viewkeeper.optimize.svg import svg_of
from viewkeeper.optimize.vertices import EXPRESSION, Picture, picture_of
from viewkeeper.plan.build import build_view
from viewkeeper.plan.logical import LogicalPlan
from viewkeeper.sql import construct
from viewkeeper.sql.expressions import Literal
from viewkeeper.sql.relations import Scan

SVG = "{http://www.w3.org/2000/svg}"
PLANS = {name: (name,) for name in VIEWS} | {"all": (), "three": ("inner", "nested", "top")}
ODD = 'a<b & "c" `d` #e; 日本語'

NEAR = 0.001

Box = tuple[float, float, float, float]


def drawn(plan: LogicalPlan) -> tuple[Picture, list[Shape], Layout]:
    picture = picture_of(plan)
    shapes = [shape_of(vertex) for vertex in picture.vertices]
    return picture, shapes, lay_out(picture, shapes)


def box_of(shape: Shape, middle: tuple[float, float]) -> Box:
    x, y = middle
    return x - shape.width / 2, y - shape.up, x + shape.width / 2, y + shape.down


def overlap(one: Box, other: Box) -> bool:
    """Whether they share more than an edge."""
    across = min(one[2], other[2]) - max(one[0], other[0])
    down = min(one[3], other[3]) - max(one[1], other[1])
    return across > NEAR and down > NEAR


def odd_plan() -> LogicalPlan:
    odd = Scan(table(7, ODD, Column("id", BIGINT, nullable=False), Column("x", STRING)))
    passing = where(odd, construct.compare("=", column(odd, "x"), Literal(ODD * 9, STRING)))
    return optimize(build_view(shown(passing, "x"), view_id=TableId(8), name=ODD))


@pytest.mark.parametrize("names", PLANS.values(), ids=PLANS)
def test_shapes_and_areas_do_not_overlap_and_lie_in_the_picture(names: tuple[str, ...]) -> None:
    _, shapes, layout = drawn(optimize(plan_of(*names)))
    boxes = [box_of(shape, middle) for shape, middle in zip(shapes, layout.middles, strict=True)]
    areas = [(area.x, area.y, area.x + area.width, area.y + area.height) for area in layout.areas]
    assert not [pair for pair in itertools.combinations(boxes, 2) if overlap(*pair)]
    assert not [pair for pair in itertools.combinations(areas, 2) if overlap(*pair)]
    for x, y, right, bottom in boxes + areas:
        assert x >= 0 and y >= 0 and right <= layout.width and bottom <= layout.height
    for box in boxes:
        assert sum(overlap(box, area) for area in areas) == 1


@pytest.mark.parametrize("names", PLANS.values(), ids=PLANS)
def test_edges_go_to_the_right_and_through_no_shape(names: tuple[str, ...]) -> None:
    picture, shapes, layout = drawn(optimize(plan_of(*names)))
    boxes = [box_of(shape, middle) for shape, middle in zip(shapes, layout.middles, strict=True)]
    for (source, target), route in zip(picture.edges, layout.routes, strict=True):
        assert all(x <= to_x + NEAR for (x, _), (to_x, _) in itertools.pairwise(route))
        others = [box for place, box in enumerate(boxes) if place not in (source, target)]
        for (x, y), (to_x, to_y) in itertools.pairwise(route):
            stretch = (x, min(y, to_y) - 0.1, to_x, max(y, to_y) + 0.1)
            assert not [box for box in others if overlap(stretch, box)]


@pytest.mark.parametrize("plan", [optimize(plan_of()), odd_plan()], ids=["all", "odd"])
def test_every_text_fits_into_its_shape(plan: LogicalPlan) -> None:
    picture, shapes, _ = drawn(plan)
    for vertex, shape in zip(picture.vertices, shapes, strict=True):
        assert all(text_width_px(line, FONT_PX) <= shape.width for line in (*shape.lines, *shape.shared))
        if vertex.kind != EXPRESSION:
            assert text_width_px(shape.title, TITLE_PX) <= shape.width


@pytest.mark.parametrize("plan", [optimize(plan_of()), odd_plan(), LogicalPlan(())], ids=["all", "odd", "none"])
def test_a_picture_is_a_document_of_its_own(plan: LogicalPlan) -> None:
    root = ElementTree.fromstring(svg_of(plan))
    picture = picture_of(plan)
    assert root.tag == f"{SVG}svg"
    circles = sum(vertex.kind == EXPRESSION for vertex in picture.vertices)
    assert len(root.findall(f"./{SVG}g/{SVG}g/{SVG}circle")) == circles
    assert len(root.findall(f"./{SVG}g/{SVG}g/{SVG}rect")) == len(picture.vertices) - circles
    assert len(root.findall(f"./{SVG}g/{SVG}path")) == len(picture.edges)
    assert not re.findall(r"https?://(?!www\.w3\.org/2000/svg)|<image|<script|href", svg_of(plan))


def test_a_text_that_is_cut_off_says_so_and_is_whole_in_the_tooltip() -> None:
    root = ElementTree.fromstring(svg_of(odd_plan()))
    titles = [title.text or "" for title in root.iter(f"{SVG}title")]
    assert any(ODD * 9 in title for title in titles)
    assert any((text.text or "").endswith("…") for text in root.iter(f"{SVG}text"))
    assert wrapped("a " * 200, 3)[-1].endswith("…") and wrapped("a b", 3) == ("a b",)


def test_a_self_join_has_an_edge_for_each_side() -> None:
    picture, _, layout = drawn(optimize(plan_of("self")))
    assert picture.edges[:2] == ((0, 1), (0, 1))
    assert layout.routes[0][-1] != layout.routes[1][-1]


def test_tables_that_pass_rows_on_stand_between_and_others_beside() -> None:
    picture = picture_of(optimize(plan_of("by_region")))
    titles = [vertex.title for vertex in picture.vertices]
    fold, entries, groups, having = (titles.index(title) for title in ("γ", "PRE-AGGREGATION", "groups", "σ"))
    having = next(place for place, title in enumerate(titles) if title == "σ" and place > fold)
    assert {(fold, entries), (fold, groups), (groups, having)} <= set(picture.edges)
    assert not [edge for edge in picture.edges if edge[0] == entries]


def test_mermaid_has_boxes_for_tables_round_nodes_for_expressions_and_subgraphs_for_zones() -> None:
    lines = mermaid_of(optimize(plan_of("left"))).splitlines()
    assert lines[0] == "flowchart LR"
    for line in (
        '  subgraph z2["zone orders ⋈ customers on (customer = id)"]',
        '    v2["REVERSE-JOIN<br/>(customer = id, side, key) → row"]:::auxiliary',
        '    v3(["⋈ left"]):::expression',
        "  v0 --> v2",
        "  v1 --> v2",
        "  v2 --> v3",
    ):
        assert line in lines
    assert lines.count("  end") == sum(line.startswith("  subgraph ") for line in lines) == 4


def test_mermaid_tells_who_shares_a_node() -> None:
    text = mermaid_of(optimize(plan_of("left", "semi")))
    assert '["customers<br/>(id) → name, region<br/>shared by left, semi"]' in text
    assert '(["π name"])' not in text


def test_no_text_leaves_its_label() -> None:
    for line in mermaid_of(odd_plan()).splitlines():
        inside = re.findall(r'"(.*)"', line)
        assert all('"' not in text and "`" not in text and "<b" not in text.replace("<br/>", "") for text in inside)
    assert "#35;e" in mermaid_of(odd_plan())


def test_control_characters_are_spelled() -> None:
    steering = where(orders, construct.compare("=", Literal("\x01\t\u2028\x85", STRING), Literal("", STRING)))
    plan = build_view(shown(steering, "id"), view_id=TableId(8), name="v")
    ElementTree.fromstring(svg_of(plan))
    assert r"\x01\t\u2028\x85" in mermaid_of(plan)
    assert all(line.isprintable() for line in mermaid_of(plan).split("\n"))


def test_a_view_over_one_table_is_drawn_too() -> None:
    plan = optimize(build_view(shown(orders, "id"), view_id=TableId(8), name="v"))
    picture, _, layout = drawn(plan)
    assert [vertex.title for vertex in picture.vertices] == ["orders", "π", "v"]
    assert len(layout.areas) == 1
    assert len({y for _, y in layout.middles}) == 1


def test_blocks_are_ordered_by_their_links_and_kept_apart() -> None:
    blocks = [Block(0, 10), Block(0, 10), Block(1, 30), Block(1, 30)]
    links = [Link(0, 5, 3, 15), Link(1, 5, 2, 15)]
    tops = place_blocks(blocks, links, gap=4)
    assert (tops[3] < tops[2]) is (tops[0] < tops[1])
    assert abs(tops[3] - tops[2]) >= 34 and abs(tops[0] - tops[1]) >= 14
    assert min(tops) == 0
    assert place_blocks([], [], gap=1) == []


def test_forty_nodes_are_drawn_in_reasonable_room() -> None:
    plan = optimize(plan_of(*list(VIEWS)[:9]))
    _, _, layout = drawn(plan)
    assert len(plan.nodes) >= 40
    assert layout.width < 5000 and layout.height < 3000
