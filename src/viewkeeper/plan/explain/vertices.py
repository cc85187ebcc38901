"""Vertices: a plan as the papers draw it, tables as boxes and expressions as circles (paper 3, figures 2 and 3).

In: the lines of a plan. Out: its vertices and the edges between them. Always: an edge goes from a lower index to a
higher one; the vertices of one line are adjacent, its expression first; all texts are printable.
"""

from __future__ import annotations

from dataclasses import dataclass

from viewkeeper.plan.explain.lines import BASE, ENTRIES, VIEW, Lines, views_of
from viewkeeper.plan.explain.tables import tables_at
from viewkeeper.plan.explain.text import line_parts
from viewkeeper.plan.explain.zones import zone_at
from viewkeeper.sql.relations import Scan

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
    """`title` is the name of a table or the symbol of an expression, `caption` the rest of its text.

    `views` are those that need it.
    """

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
    for place, names in enumerate(views_of(lines)):
        views = tuple(_printable(name) for name in names)
        zone = _printable(zone_at(lines[place]))
        first = len(vertices)
        edges += [(gives[source], first) for source in lines[place].inputs]
        gives.append(first)
        kind, title, caption = _own(lines, place)
        vertices.append(Vertex(kind, _printable(title), _printable(caption), zone, views))
        for table in () if kind in (AUXILIARY, VIEW) else tables_at(lines, place):
            edges.append((first, len(vertices)))
            if table.passes_on:
                gives[place] = len(vertices)
            vertices.append(Vertex(AUXILIARY, table.name, _printable(table.records), zone, views))
    return Picture(tuple(vertices), tuple(edges))


def _own(lines: Lines, place: int) -> tuple[str, str, str]:
    """Kind, title and caption of the line's own vertex."""
    line = lines[place]
    if line.kind == BASE and isinstance(line.relation, Scan):
        table = line.relation.table
        columns = ", ".join(column.name for column in table.value_columns)
        return BASE, table.name, f"({', '.join(table.key)})" + (f" → {columns}" if columns else "")
    if line.kind == ENTRIES:
        (kept,) = tables_at(lines, place)
        return AUXILIARY, kept.name, kept.records
    if line.kind == VIEW:
        return VIEW, line.name, " ".join(table.records for table in tables_at(lines, place))
    symbol, name, rest = line_parts(line)
    bare = rest[1:-1] if symbol in _BARE else rest
    return EXPRESSION, symbol, f"{name.strip('[]')} {bare}".strip()


def _printable(text: str) -> str:
    """Escape control characters: neither XML nor a line of a flowchart can hold them."""
    return "".join(character if character.isprintable() else repr(character)[1:-1] for character in text)
