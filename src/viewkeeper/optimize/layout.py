"""Layout: where everything in the picture of a plan stands.

In: a picture and the shapes of its vertices. Out: the middles of vertices, the areas of zones, the ways of edges. Always:
everything flows to the right: a piece's rank is the longest path from the base tables; areas do not overlap, and an edge
that passes a column without stopping there has a lane between its areas.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from viewkeeper.optimize.columns import Block, Link, place_blocks
from viewkeeper.optimize.pieces import homes, pieces_of
from viewkeeper.optimize.shapes import Shape
from viewkeeper.optimize.vertices import Picture

AREA_GAP_PX = 26
_BETWEEN_COLUMNS_PX = 64
_ENTRY_SPREAD_PX = 12

Point = tuple[float, float]


@dataclass(frozen=True, slots=True)
class Area:
    label: str
    x: float
    y: float
    width: float
    height: float


@dataclass(frozen=True, slots=True)
class Layout:
    """`routes[i]` are the points that edge i goes through; it arrives level at each."""

    middles: tuple[Point, ...]
    areas: tuple[Area, ...]
    routes: tuple[tuple[Point, ...], ...]
    width: float
    height: float


def lay_out(picture: Picture, shapes: Sequence[Shape]) -> Layout:
    """Pieces into columns by rank, lanes for the edges that pass a column, then the points of every edge."""
    return _Layout(picture, shapes).finish()


class _Layout:
    def __init__(self, picture: Picture, shapes: Sequence[Shape]) -> None:
        self._picture = picture
        self._shapes = shapes
        self._pieces = pieces_of(picture, shapes)
        number = {piece.root: at for at, piece in enumerate(self._pieces)}
        self._home = [number[root] for root in homes(picture)]
        self._ranks = self._rank_pieces()
        self._blocks = [Block(rank, piece.height) for rank, piece in zip(self._ranks, self._pieces, strict=True)]
        self._lanes: dict[tuple[int, int], int] = {}  # (vertex, column that its edges pass) → block
        self._links: list[Link] = []

    def finish(self) -> Layout:
        self._add_links()
        tops = place_blocks(self._blocks, self._links, gap=AREA_GAP_PX)
        starts, ends = self._columns()
        areas = tuple(
            Area(piece.label, starts[rank], top, piece.width, piece.height)
            for piece, rank, top in zip(self._pieces, self._ranks, tops[: len(self._pieces)], strict=True)
        )
        middles = tuple(
            self._moved(place, areas, self._pieces[home].middles[place]) for place, home in enumerate(self._home)
        )
        routes = tuple(self._route(at, middles, areas, tops, starts, ends) for at in range(len(self._picture.edges)))
        height = max((top + block.height for top, block in zip(tops, self._blocks, strict=True)), default=0.0)
        return Layout(middles, areas, routes, ends[-1] if ends else 0.0, height)

    def _rank_pieces(self) -> list[int]:
        """Roots stand in the order of the plan, so a piece's inputs are ranked before it."""
        ranks = [0] * len(self._pieces)
        for target, piece in enumerate(self._pieces):
            sources = [self._home[source] for source, vertex in self._picture.edges if vertex == piece.root]
            ranks[target] = max((ranks[source] + 1 for source in sources), default=0)
        return ranks

    def _add_links(self) -> None:
        for at, (source, target) in enumerate(self._picture.edges):
            home, goal = self._home[source], self._home[target]
            if home == goal:
                continue
            before, leaves = home, self._pieces[home].exits[source][1]
            for column in range(self._ranks[home] + 1, self._ranks[goal]):
                lane = self._lane(source, column)
                self._link(Link(before, leaves, lane, 0.0))
                before, leaves = lane, 0.0
            self._link(Link(before, leaves, goal, self._pieces[goal].middles[target][1] + self._entry(at)))

    def _lane(self, source: int, column: int) -> int:
        """Edges of one vertex share their lanes."""
        if (source, column) not in self._lanes:
            self._lanes[source, column] = len(self._blocks)
            self._blocks.append(Block(column, 0.0))
        return self._lanes[source, column]

    def _link(self, link: Link) -> None:
        if link not in self._links:
            self._links.append(link)

    def _entry(self, edge: int) -> float:
        """Edges into one vertex arrive one below the other."""
        target = self._picture.edges[edge][1]
        together = [at for at, (_, other) in enumerate(self._picture.edges) if other == target]
        return (together.index(edge) - (len(together) - 1) / 2) * _ENTRY_SPREAD_PX

    def _columns(self) -> tuple[list[float], list[float]]:
        """Where each column starts and ends."""
        starts: list[float] = []
        ends: list[float] = []
        for rank in range(max(self._ranks, default=-1) + 1):
            starts.append(ends[-1] + _BETWEEN_COLUMNS_PX if ends else 0.0)
            widths = [piece.width for piece, own in zip(self._pieces, self._ranks, strict=True) if own == rank]
            ends.append(starts[-1] + max(widths))
        return starts, ends

    def _moved(self, place: int, areas: Sequence[Area], point: Point) -> Point:
        area = areas[self._home[place]]
        return area.x + point[0], area.y + point[1]

    def _route(
        self,
        edge: int,
        middles: Sequence[Point],
        areas: Sequence[Area],
        tops: Sequence[float],
        starts: Sequence[float],
        ends: Sequence[float],
    ) -> tuple[Point, ...]:
        source, target = self._picture.edges[edge]
        home, goal = self._home[source], self._home[target]
        first = (middles[source][0] + self._shapes[source].body / 2, middles[source][1])
        last = (middles[target][0] - self._shapes[target].body / 2, middles[target][1] + self._entry(edge))
        if home == goal:
            return first, last
        way_out = self._moved(source, areas, self._pieces[home].exits[source])
        points = [first] if way_out == first else [first, way_out]
        points.append((ends[self._ranks[home]], way_out[1]))
        for column in range(self._ranks[home] + 1, self._ranks[goal]):
            level = tops[self._lanes[source, column]]
            points += [(starts[column], level), (ends[column], level)]
        return (*points, (starts[self._ranks[goal]], last[1]), last)
