"""A plan as a Mermaid flowchart, which many pages and editors show as a picture.

In: the lines of a plan. Out: the text of the flowchart. Always: boxes are tables, round nodes expressions, subgraphs zones;
no text of a query can leave its label.
"""

from __future__ import annotations

from viewkeeper.plan.explain.lines import Lines
from viewkeeper.plan.explain.vertices import COLOURS, EXPRESSION, FONT, Vertex, picture_of

# Mermaid reads labels as HTML; "#" begins an entity of its own.
_ENTITIES = str.maketrans({"#": "#35;", "&": "#amp;", '"': "#quot;", "<": "#lt;", ">": "#gt;", "`": "#96;"})


def mermaid_of(lines: Lines) -> str:
    """One subgraph for each zone, then the edges, then the colours."""
    picture = picture_of(lines)
    zones: dict[str, list[int]] = {}
    for place, vertex in enumerate(picture.vertices):
        zones.setdefault(vertex.zone, []).append(place)
    text = ["flowchart LR"]
    for number, (zone, places) in enumerate(zones.items()):
        text.append(f'  subgraph z{number}["zone {_label(zone)}"]')
        text += [f"    {_vertex(place, picture.vertices[place])}" for place in places]
        text.append("  end")
    text += [f"  v{source} --> v{target}" for source, target in picture.edges]
    styles = COLOURS.items() if picture.vertices else ()
    text += [f"  classDef {kind} fill:{fill},stroke:{line},color:{FONT}" for kind, (fill, line) in styles]
    return "\n".join(text)


def _vertex(place: int, vertex: Vertex) -> str:
    between = " " if vertex.kind == EXPRESSION else "<br/>"
    text = between.join(_label(part) for part in (vertex.title, vertex.caption) if part)
    if len(vertex.views) > 1:
        text += f"<br/>shared by {_label(', '.join(vertex.views))}"
    opening, closing = ("([", "])") if vertex.kind == EXPRESSION else ("[", "]")
    return f'v{place}{opening}"{text}"{closing}:::{vertex.kind}'


def _label(text: str) -> str:
    return text.translate(_ENTITIES)
