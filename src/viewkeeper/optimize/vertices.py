"""Vertices: a plan as the papers draw it, tables as boxes and expressions as circles (paper 3, figures 2 and 3).

In: a plan. Out: its vertices and the edges between them. Always: an edge goes from a lower place to a higher one; the
vertices of one node stand together, its expression first; all texts are printable.
"""

from __future__ import annotations

from dataclasses import dataclass

from viewkeeper.optimize.sharing import views_behind
from viewkeeper.plan.logical import Base, LogicalPlan, ReverseJoin, View
from viewkeeper.plan.tables import KeptTable, tables_at
from viewkeeper.plan.text import node_parts
from viewkeeper.plan.zones import zone_at

BASE, AUXILIARY, VIEW, EXPRESSION = "base", "auxiliary", "view", "expression"
_BARE = ("δ", "σ", "π")  # their text is one bracket, which a caption can do without


@dataclass(frozen=True, slots=True)
class Vertex:
    """`title` is the name of a table or the symbol of an expression, `caption` what more there is to say.

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


def picture_of(plan: LogicalPlan) -> Picture:
    """The vertices of all nodes; a table that passes rows on stands between its expression and what reads it."""
    vertices: list[Vertex] = []
    edges: list[tuple[int, int]] = []
    gives: list[int] = []  # for each node the vertex that its readers are fed by
    for place, names in enumerate(views_behind(plan)):
        views = tuple(_printable(name) for name in names)
        zone = _printable(zone_at(plan, place))
        first = len(vertices)
        edges += [(gives[source], first) for source in plan.inputs(place)]
        gives.append(first)
        kind, title, caption = _own(plan, place)
        vertices.append(Vertex(kind, _printable(title), _printable(caption), zone, views))
        for table in _beside(plan, place):
            edges.append((first, len(vertices)))
            if table.passes_on:
                gives[place] = len(vertices)
            vertices.append(Vertex(AUXILIARY, table.name, _printable(table.records), zone, views))
    return Picture(tuple(vertices), tuple(edges))


def _own(plan: LogicalPlan, place: int) -> tuple[str, str, str]:
    """Kind, title and caption of the node's own vertex."""
    node = plan.nodes[place]
    match node:
        case Base(table=table):
            columns = ", ".join(column.name for column in table.value_columns)
            return BASE, table.name, f"({', '.join(table.key)})" + (f" → {columns}" if columns else "")
        case ReverseJoin():
            (kept,) = tables_at(plan, place)
            return AUXILIARY, kept.name, kept.records
        case View(name=name):
            return VIEW, name, " ".join(table.records for table in tables_at(plan, place))
    symbol, name, rest = node_parts(plan, place)
    bare = rest[1:-1] if symbol in _BARE else rest
    return EXPRESSION, symbol, f"{name.strip('[]')} {bare}".strip()


def _beside(plan: LogicalPlan, place: int) -> tuple[KeptTable, ...]:
    """The tables that are vertices beside the node's own."""
    return () if isinstance(plan.nodes[place], ReverseJoin | View) else tables_at(plan, place)


def _printable(text: str) -> str:
    """Control characters are spelled: neither XML nor a line of a flowchart can hold them."""
    return "".join(character if character.isprintable() else repr(character)[1:-1] for character in text)
