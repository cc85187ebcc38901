"""Layout: where everything in the picture of a plan stands.

In: a picture and the shapes of its vertices. Out: the middles of vertices, the areas of zones, the ways of edges. Always:
everything flows to the right; areas do not overlap, and an edge bends only between columns, so that it crosses no shape.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from viewkeeper.optimize.columns import place_blocks
from viewkeeper.optimize.grid import Grid, grid_of
from viewkeeper.optimize.pieces import pieces_of
from viewkeeper.optimize.shapes import Shape
from viewkeeper.optimize.vertices import Picture

_AREA_GAP_PX = 26
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
    """`routes[i]` are the points that edge i goes through, level at each."""

    middles: tuple[Point, ...]
    areas: tuple[Area, ...]
    routes: tuple[tuple[Point, ...], ...]
    width: float
    height: float


def lay_out(picture: Picture, shapes: Sequence[Shape]) -> Layout:
    """Lay out each piece, then the pieces in columns, then the edges."""
    grid = grid_of(picture, pieces_of(picture, shapes))
    tops = place_blocks(grid.blocks, grid.links, gap=_AREA_GAP_PX)
    starts, ends = grid.columns()
    corners = zip(grid.pieces, grid.ranks, tops, strict=False)  # lanes, at the end of `tops`, have none
    areas = tuple(Area(piece.label, starts[rank], top, piece.width, piece.height) for piece, rank, top in corners)
    placed = _Placed(picture, shapes, grid, tops, starts, ends)
    middles = tuple(placed.middle(vertex) for vertex in range(len(picture.vertices)))
    routes = tuple(placed.route(edge) for edge in range(len(picture.edges)))
    height = max((top + block.height for top, block in zip(tops, grid.blocks, strict=True)), default=0.0)
    return Layout(middles, areas, routes, ends[-1] if ends else 0.0, height)


@dataclass(frozen=True, slots=True)
class _Placed:
    """A grid of which all places are known."""

    picture: Picture
    shapes: Sequence[Shape]
    grid: Grid
    tops: Sequence[float]
    starts: Sequence[float]
    ends: Sequence[float]

    def middle(self, vertex: int) -> Point:
        return self._moved(vertex, self.grid.pieces[self.grid.home[vertex]].middles[vertex])

    def route(self, edge: int) -> tuple[Point, ...]:
        source, target = self.picture.edges[edge]
        home, goal = self.grid.home[source], self.grid.home[target]
        first = (self.middle(source)[0] + self.shapes[source].body / 2, self.middle(source)[1])
        last = (self.middle(target)[0] - self.shapes[target].body / 2, self.middle(target)[1] + self._entry(edge))
        end, start = self._span(source)[1], self._span(target)[0]
        if home == goal:
            return first, (end, first[1]), (start, last[1]), last
        way_out = self._moved(source, self.grid.pieces[home].exits[source])
        points = [first, (end, first[1]), way_out, (self.ends[self.grid.ranks[home]], way_out[1])]
        for column in self.grid.passed(source, target):
            level = self.tops[self.grid.lanes[source, column]]
            points += [(self.starts[column], level), (self.ends[column], level)]
        return (*points, (self.starts[self.grid.ranks[goal]], last[1]), last)

    def _moved(self, vertex: int, point: Point) -> Point:
        """A point of the vertex's piece, counted from the corner of the whole."""
        home = self.grid.home[vertex]
        return self.starts[self.grid.ranks[home]] + point[0], self.tops[home] + point[1]

    def _span(self, vertex: int) -> Point:
        """From where to where the vertex's column in its piece goes."""
        left, right = self.grid.pieces[self.grid.home[vertex]].spans[vertex]
        return self._moved(vertex, (left, 0.0))[0], self._moved(vertex, (right, 0.0))[0]

    def _entry(self, edge: int) -> float:
        """Edges into one vertex arrive one below the other, in the order in which they come."""
        target = self.picture.edges[edge][1]
        together = [at for at, (_, other) in enumerate(self.picture.edges) if other == target]
        together.sort(key=self._level)
        return (together.index(edge) - (len(together) - 1) / 2) * _ENTRY_SPREAD_PX

    def _level(self, edge: int) -> float:
        """At which level an edge comes to the column of its target."""
        source, target = self.picture.edges[edge]
        passed = self.grid.passed(source, target)
        if passed:
            return self.tops[self.grid.lanes[source, passed[-1]]]
        piece = self.grid.pieces[self.grid.home[source]]
        return self._moved(source, piece.exits.get(source, piece.middles[source]))[1]
