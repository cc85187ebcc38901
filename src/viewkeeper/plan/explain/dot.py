"""A plan in the language of Graphviz, whose `dot` lays it out.

In: the lines of a plan. Out: the text of a directed graph. Always: boxes are tables, ellipses expressions, clusters the
zones of a view; an edge has the colour of the view it leads to, so that the edges of many views can be told apart; the
same plan gives the same text, and no text of a query can leave its string.
"""

from __future__ import annotations

import textwrap

from viewkeeper.plan.explain.lines import Lines
from viewkeeper.plan.explain.vertices import COLOURS, EXPRESSION, FONT, Picture, Vertex, picture_of

_EDGES = ("#1f77b4", "#d9620a", "#2a8a2a", "#c22525", "#8050b0", "#7a4a3e", "#c9529f", "#76761a", "#0f93a3")
_EDGE_OF_MANY = "#8a95a1"
_LINE, _LINES = 34, 4  # characters of a line, and lines of a caption
_LEGEND = (
    "blue: base table    yellow: auxiliary table    green: view    round: expression    "
    "dashed area: zone, one row key    an edge has the colour of its view, grey: of several"
)


def dot_of(lines: Lines) -> str:
    """One cluster for each zone of each view, then the edges."""
    picture = picture_of(lines)
    text = ["digraph plan {"]
    text += [f"  {line}" for line in _settings(_LEGEND if picture.vertices else "no views")]
    for number, ((zone, _), places) in enumerate(_clusters(picture).items()):
        text.append(f"  subgraph cluster_{number} {{")
        text.append(f"    label={_quoted(_cut(f'zone {zone}', 2 * _LINE))} tooltip={_quoted(zone)}")
        text += [f"    {_vertex(place, picture.vertices[place])}" for place in places]
        text.append("  }")
    colours = _colours_of_views(picture)
    for source, target in picture.edges:
        views = picture.vertices[target].views
        colour = colours[views[0]] if len(views) == 1 else _EDGE_OF_MANY
        text.append(f'  v{source} -> v{target} [color="{colour}" tooltip={_quoted(", ".join(views))}]')
    return "\n".join([*text, "}", ""])


def _settings(label: str) -> list[str]:
    font = f'fontname="DejaVu Sans" fontcolor="{FONT}"'
    return [
        f"graph [rankdir=LR nodesep=0.3 ranksep=0.7 {font} fontsize=11 label={_quoted(label)}]",
        'graph [style="dashed,rounded" color="#b9c4d0" bgcolor="#ffffff" labeljust=l]',
        f'node [shape=box style="filled,rounded" {font} fontsize=11 margin="0.12,0.06"]',
        "edge [penwidth=1.4 arrowsize=0.7]",
    ]


def _clusters(picture: Picture) -> dict[tuple[str, tuple[str, ...]], list[int]]:
    """The vertices of each zone, by the views that need them: a zone of many views would be as wide as the picture."""
    found: dict[tuple[str, tuple[str, ...]], list[int]] = {}
    for place, vertex in enumerate(picture.vertices):
        found.setdefault((vertex.zone, vertex.views), []).append(place)
    return found


def _colours_of_views(picture: Picture) -> dict[str, str]:
    views = dict.fromkeys(view for vertex in picture.vertices for view in vertex.views)
    return {view: _EDGES[number % len(_EDGES)] for number, view in enumerate(views)}


def _vertex(place: int, vertex: Vertex) -> str:
    caption = textwrap.wrap(vertex.caption, _LINE, max_lines=_LINES, placeholder=" …")
    shared = [f"shared by {len(vertex.views)} views"] if len(vertex.views) > 1 else []
    label = _quoted("\n".join([_cut(vertex.title, _LINE), *caption, *shared]))
    told = _quoted(f"{vertex.title} {vertex.caption} (for {', '.join(vertex.views)})")
    fill, line = COLOURS[vertex.kind]
    shape = " shape=ellipse" if vertex.kind == EXPRESSION else ""
    return f'v{place} [label={label} tooltip={told} fillcolor="{fill}" color="{line}"{shape}]'


def _cut(text: str, length: int) -> str:
    return text if len(text) <= length else f"{text[: length - 1]}…"


def _quoted(text: str) -> str:
    """A Graphviz string: HTML entities and Graphviz's own backslash escapes are escaped."""
    escaped = text.replace("&", "&amp;").replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{escaped}"'
