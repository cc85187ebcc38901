"""A plan as an SVG picture.

In: a plan. Out: the text of an SVG document. Always: the same plan gives the same bytes; every text of a query is escaped;
nothing outside the document is referred to, so that it can be shown anywhere.
"""

from __future__ import annotations

from html import escape

from viewkeeper.optimize.layout import Area, Layout, Point, lay_out
from viewkeeper.optimize.shapes import FONT_PX, LINE_PX, PADDING_PX, RADIUS_PX, TITLE_PX, Shape, shape_of
from viewkeeper.optimize.vertices import AUXILIARY, BASE, EXPRESSION, VIEW, Vertex, picture_of
from viewkeeper.plan.logical import LogicalPlan

_MARGIN_PX = 24
_LEGEND_PX = 56
_LEGEND = ((BASE, "base table"), (AUXILIARY, "auxiliary table"), (VIEW, "view"), (EXPRESSION, "expression"))
_LEGEND_STEP_PX = 150
_STYLE = f"""
text {{ font-family: "DejaVu Sans Mono", Menlo, Consolas, "DejaVu Sans", monospace; font-size: {FONT_PX}px; fill: #1b2a38 }}
.title {{ font-size: {TITLE_PX}px; font-weight: bold }}
.symbol {{ font-size: 17px }}
.word {{ font-size: 10px }}
.shared {{ fill: #8a3b12; font-style: italic }}
.area {{ fill: #f5f7fa; stroke: #b9c4d0; stroke-dasharray: 5 4 }}
.label {{ fill: #5a6877 }}
.edge {{ fill: none; stroke: #7b8794; stroke-width: 1.4 }}
.base {{ fill: #dbe9f8; stroke: #33658a; stroke-width: 1.3 }}
.auxiliary {{ fill: #fdf0d0; stroke: #a97c1f; stroke-width: 1.3 }}
.view {{ fill: #dff2e1; stroke: #2e7d43; stroke-width: 1.3 }}
.expression {{ fill: #ffffff; stroke: #55606e; stroke-width: 1.3 }}
.many {{ stroke-width: 2.6 }}
"""
_ARROW = (
    '<marker id="arrow" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto">'
    '<path d="M0,0.5 L7.5,4 L0,7.5 z" fill="#7b8794"/></marker>'
)


def svg_of(plan: LogicalPlan) -> str:
    """Areas first, then edges, then vertices, so that what matters lies on top."""
    picture = picture_of(plan)
    shapes = [shape_of(vertex) for vertex in picture.vertices]
    layout = lay_out(picture, shapes)
    body = [_area(area) for area in layout.areas]
    body += [_edge(route) for route in layout.routes]
    for vertex, shape, middle in zip(picture.vertices, shapes, layout.middles, strict=True):
        body.append(_vertex(vertex, shape, middle))
    if not picture.vertices:
        body.append(_text(0, TITLE_PX, "no views", "title"))
    return "\n".join([*_head(layout), *body, "</g>", *_legend(layout), "</svg>", ""])


def _head(layout: Layout) -> list[str]:
    width, height = _size(layout)
    return [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" viewBox="0 0 {width} {height}">',
        f"<style>{_STYLE}</style>",
        f"<defs>{_ARROW}</defs>",
        f'<rect width="{width}" height="{height}" fill="#ffffff"/>',
        f'<g transform="translate({_MARGIN_PX} {_MARGIN_PX})">',
    ]


def _size(layout: Layout) -> tuple[int, int]:
    width = max(layout.width, _LEGEND_STEP_PX * (len(_LEGEND) + 1)) + 2 * _MARGIN_PX
    return round(width), round(layout.height + 2 * _MARGIN_PX + _LEGEND_PX)


def _area(area: Area) -> str:
    rect = _rect(area.x, area.y, area.width, area.height, "area", radius=12)
    return f"{rect}{_text(area.x + 14, area.y + 18, area.label, 'label')}"


def _edge(route: tuple[Point, ...]) -> str:
    """A curve that is level at every point; level stretches come out straight."""
    parts = [f"M{_number(route[0][0])},{_number(route[0][1])}"]
    for (x, y), (to_x, to_y) in zip(route, route[1:], strict=False):
        if (x, y) == (to_x, to_y):
            continue
        if y == to_y:
            parts.append(f"L{_number(to_x)},{_number(to_y)}")
            continue
        bend = _number((x + to_x) / 2)
        parts.append(f"C{bend},{_number(y)} {bend},{_number(to_y)} {_number(to_x)},{_number(to_y)}")
    return f'<path class="edge" marker-end="url(#arrow)" d="{" ".join(parts)}"/>'


def _vertex(vertex: Vertex, shape: Shape, middle: Point) -> str:
    x, y = middle
    style = f"{vertex.kind} many" if len(vertex.views) > 1 else vertex.kind
    if vertex.kind == EXPRESSION:
        figure = f'<circle class="{style}" cx="{_number(x)}" cy="{_number(y)}" r="{RADIUS_PX}"/>'
        is_symbol = len(vertex.title) == 1
        figure += _text(x, y + (6 if is_symbol else 4), shape.title, "symbol" if is_symbol else "word", middle=True)
        first_line = y + RADIUS_PX + 4 + FONT_PX
    else:
        figure = _rect(x - shape.width / 2, y - shape.up, shape.width, shape.up + shape.down, style, radius=4)
        figure += _text(x, y - shape.up + PADDING_PX + TITLE_PX - 2, shape.title, "title", middle=True)
        first_line = y - shape.up + PADDING_PX + TITLE_PX + FONT_PX + 1
    texts = [(line, "") for line in shape.lines] + [(line, "shared") for line in shape.shared]
    for number, (line, kind) in enumerate(texts):
        figure += _text(x, first_line + LINE_PX * number, line, kind, middle=True)
    told = " ".join([vertex.title, vertex.caption, f"(for {', '.join(vertex.views)})"])
    return f"<g><title>{escape(told)}</title>{figure}</g>"


def _legend(layout: Layout) -> list[str]:
    y = layout.height + _MARGIN_PX + _LEGEND_PX / 2 + 8
    found = []
    for number, (kind, words) in enumerate(_LEGEND):
        x = _MARGIN_PX + _LEGEND_STEP_PX * number
        if kind == EXPRESSION:
            found.append(f'<circle class="{kind}" cx="{x + 9}" cy="{_number(y - 4)}" r="8"/>')
        else:
            found.append(_rect(x, y - 11, 18, 14, kind, radius=3))
        found.append(_text(x + 26, y, words))
    x = _MARGIN_PX + _LEGEND_STEP_PX * len(_LEGEND)
    return [*found, _rect(x, y - 11, 18, 14, "area", radius=4), _text(x + 26, y, "zone: one row key")]


def _rect(x: float, y: float, width: float, height: float, style: str, *, radius: int) -> str:
    corner = f'x="{_number(x)}" y="{_number(y)}"'
    return f'<rect class="{style}" {corner} width="{_number(width)}" height="{_number(height)}" rx="{radius}"/>'


def _text(x: float, y: float, text: str, style: str = "", *, middle: bool = False) -> str:
    attributes = (f' class="{style}"' if style else "") + (' text-anchor="middle"' if middle else "")
    return f'<text x="{_number(x)}" y="{_number(y)}"{attributes}>{escape(text)}</text>'


def _number(value: float) -> str:
    """One digit behind the point, and none where it is 0."""
    return f"{value:.1f}".removesuffix(".0")
