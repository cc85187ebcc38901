"""Pictures of a plan, as the papers draw it: tables as boxes, expressions as circles (paper 3, figures 2 and 3).

In: the lines of a plan. Out: its vertices and edges; a Mermaid flowchart, or a graph for Graphviz. Always: an edge goes from
a lower index to a higher one, and has the colour of the view that it leads to; the same plan gives the same text; all
texts are printable, and no text of a query can leave its label.
"""

from __future__ import annotations

import textwrap
from dataclasses import dataclass
from itertools import cycle

from viewkeeper.algebra.relations import Scan
from viewkeeper.plan.explain.line_text import line_parts, tables_at
from viewkeeper.plan.explain.names import zone_at
from viewkeeper.plan.explain.plan_lines import BASE, ENTRIES, VIEW, Lines, views_of

AUXILIARY, EXPRESSION = "auxiliary", "expression"
COLOURS = {  # of the area, and of the line around it
    BASE: ("#dbe9f8", "#33658a"),
    AUXILIARY: ("#fdf0d0", "#a97c1f"),
    VIEW: ("#dff2e1", "#2e7d43"),
    EXPRESSION: ("#ffffff", "#55606e"),
}
FONT = "#1b2a38"
_BARE = ("δ", "σ", "π")  # their text is one bracket, which a caption can omit


@dataclass(frozen=True, slots=True)
class Vertex:
    """`title` is the name of a table or the symbol of an expression, `caption` the rest; `views` are those that need it."""

    kind: str
    title: str
    caption: str
    zone: str
    views: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Picture:
    vertices: tuple[Vertex, ...]
    edges: tuple[tuple[int, int], ...]


def picture_of(lines: Lines) -> Picture:
    """The vertices of all lines; a table that passes rows on comes between its expression and its readers."""
    vertices: list[Vertex] = []
    edges: list[tuple[int, int]] = []
    gives: list[int] = []  # for each line the vertex that feeds its readers
    for index, names in enumerate(views_of(lines)):
        views = tuple(_printable(name) for name in names)
        zone = _printable(zone_at(lines[index]))
        first = len(vertices)
        edges += [(gives[source], first) for source in lines[index].inputs]
        gives.append(first)
        kind, title, caption = _own(lines, index)
        vertices.append(Vertex(kind, _printable(title), _printable(caption), zone, views))
        for table in () if kind in (AUXILIARY, VIEW) else tables_at(lines, index):
            edges.append((first, len(vertices)))
            if table.passes_on:
                gives[index] = len(vertices)
            vertices.append(Vertex(AUXILIARY, table.name, _printable(table.records), zone, views))
    return Picture(tuple(vertices), tuple(edges))


def _own(lines: Lines, index: int) -> tuple[str, str, str]:
    """Kind, title and caption of the line's own vertex."""
    line = lines[index]
    if line.kind == BASE and isinstance(line.relation, Scan):
        table = line.relation.table
        columns = ", ".join(column.name for column in table.value_columns)
        return BASE, table.name, f"({', '.join(table.key)})" + (f" → {columns}" if columns else "")
    if line.kind == ENTRIES:
        (kept,) = tables_at(lines, index)
        return AUXILIARY, kept.name, kept.records
    if line.kind == VIEW:
        return VIEW, line.name, " ".join(table.records for table in tables_at(lines, index))
    symbol, name, rest = line_parts(line)
    bare = rest[1:-1] if symbol in _BARE else rest
    return EXPRESSION, symbol, f"{name.strip('[]')} {bare}".strip()


def _printable(text: str) -> str:
    """Escape control characters: neither XML nor a line of a flowchart can hold them."""
    return "".join(character if character.isprintable() else repr(character)[1:-1] for character in text)


# Mermaid reads labels as HTML; "#" begins an entity of its own.
_ENTITIES = str.maketrans({"#": "#35;", "&": "#amp;", '"': "#quot;", "<": "#lt;", ">": "#gt;", "`": "#96;"})


def mermaid_of(lines: Lines) -> str:
    """One subgraph for each zone, then the edges, then the colours."""
    picture = picture_of(lines)
    zones: dict[str, list[int]] = {}
    for index, vertex in enumerate(picture.vertices):
        zones.setdefault(vertex.zone, []).append(index)
    text = ["flowchart LR"]
    for number, (zone, indexes) in enumerate(zones.items()):
        text.append(f'  subgraph z{number}["zone {_mermaid_label(zone)}"]')
        text += [f"    {_mermaid_vertex(index, picture.vertices[index])}" for index in indexes]
        text.append("  end")
    text += [f"  v{source} --> v{target}" for source, target in picture.edges]
    styles = COLOURS.items() if picture.vertices else ()
    text += [f"  classDef {kind} fill:{fill},stroke:{line},color:{FONT}" for kind, (fill, line) in styles]
    return "\n".join(text)


def _mermaid_vertex(index: int, vertex: Vertex) -> str:
    between = " " if vertex.kind == EXPRESSION else "<br/>"
    text = between.join(_mermaid_label(part) for part in (vertex.title, vertex.caption) if part)
    if len(vertex.views) > 1:
        text += f"<br/>shared by {_mermaid_label(', '.join(vertex.views))}"
    opening, closing = ("([", "])") if vertex.kind == EXPRESSION else ("[", "]")
    return f'v{index}{opening}"{text}"{closing}:::{vertex.kind}'


def _mermaid_label(text: str) -> str:
    return text.translate(_ENTITIES)


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
    text += [f"  {line}" for line in _graphviz_settings(_LEGEND if picture.vertices else "no views")]
    clusters: dict[tuple[str, tuple[str, ...]], list[int]] = {}  # by views too, or it would be as wide as the picture
    for index, vertex in enumerate(picture.vertices):
        clusters.setdefault((vertex.zone, vertex.views), []).append(index)
    for number, ((zone, _), indexes) in enumerate(clusters.items()):
        text.append(f"  subgraph cluster_{number} {{")
        text.append(f"    label={_graphviz_text(_cut(f'zone {zone}', 2 * _LINE))} tooltip={_graphviz_text(zone)}")
        text += [f"    {_graphviz_vertex(index, picture.vertices[index])}" for index in indexes]
        text.append("  }")
    names = dict.fromkeys(view for vertex in picture.vertices for view in vertex.views)
    colours = dict(zip(names, cycle(_EDGES), strict=False))
    for source, target in picture.edges:
        views = picture.vertices[target].views
        colour = colours[views[0]] if len(views) == 1 else _EDGE_OF_MANY
        text.append(f'  v{source} -> v{target} [color="{colour}" tooltip={_graphviz_text(", ".join(views))}]')
    return "\n".join([*text, "}", ""])


def _graphviz_settings(label: str) -> list[str]:
    font = f'fontname="DejaVu Sans" fontcolor="{FONT}"'
    return [
        f"graph [rankdir=LR nodesep=0.3 ranksep=0.7 {font} fontsize=11 label={_graphviz_text(label)}]",
        'graph [style="dashed,rounded" color="#b9c4d0" bgcolor="#ffffff" labeljust=l]',
        f'node [shape=box style="filled,rounded" {font} fontsize=11 margin="0.12,0.06"]',
        "edge [penwidth=1.4 arrowsize=0.7]",
    ]


def _graphviz_vertex(index: int, vertex: Vertex) -> str:
    caption = textwrap.wrap(vertex.caption, _LINE, max_lines=_LINES, placeholder=" …")
    shared = [f"shared by {len(vertex.views)} views"] if len(vertex.views) > 1 else []
    label = _graphviz_text("\n".join([_cut(vertex.title, _LINE), *caption, *shared]))
    told = _graphviz_text(f"{vertex.title} {vertex.caption} (for {', '.join(vertex.views)})")
    fill, line = COLOURS[vertex.kind]
    shape = " shape=ellipse" if vertex.kind == EXPRESSION else ""
    return f'v{index} [label={label} tooltip={told} fillcolor="{fill}" color="{line}"{shape}]'


def _cut(text: str, length: int) -> str:
    return text if len(text) <= length else f"{text[: length - 1]}…"


def _graphviz_text(text: str) -> str:
    """A Graphviz string: HTML entities and Graphviz's own backslash escapes are escaped."""
    escaped = text.replace("&", "&amp;").replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{escaped}"'
