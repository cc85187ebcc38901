"""Pieces: the parts of a picture that hang together within one zone, each laid out by itself.

In: a picture and the shapes of its vertices. Out: pieces with the places of their vertices, counted from the piece's corner.
Always: a piece is a tree that grows to the right, entered at its root alone, so that pieces never feed each other in a
circle; its shapes do not overlap, and what leaves the piece crosses none of them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from viewkeeper.optimize.shapes import FONT_PX, Shape, shortened, text_width_px
from viewkeeper.optimize.vertices import Picture

COLUMN_GAP_PX = 36
ROW_GAP_PX = 16
_SIDE_PX, _HEAD_PX, _FOOT_PX = 16, 30, 14
_LABEL_CHARACTERS_MAX = 64


@dataclass(frozen=True, slots=True)
class Piece:
    """`middles`: where each vertex stands. `spans`: from where to where its column goes, beside which edges may bend.

    `exits`: for each vertex that feeds other pieces, from where on an edge may run straight to the right.
    """

    label: str
    root: int
    middles: Mapping[int, tuple[float, float]]
    spans: Mapping[int, tuple[float, float]]
    exits: Mapping[int, tuple[float, float]]
    width: float
    height: float


def pieces_of(picture: Picture, shapes: Sequence[Shape]) -> list[Piece]:
    """The pieces in the order of their roots."""
    home = homes(picture)
    children: dict[int, list[int]] = {}
    leaving: set[int] = set()
    for source, target in picture.edges:
        if home[source] == home[target]:
            children.setdefault(source, []).append(target)
        else:
            leaving.add(source)
    roots = dict.fromkeys(home)
    return [_Tree(picture, shapes, children, leaving).lay_out(root) for root in roots]


def homes(picture: Picture) -> list[int]:
    """For each vertex the root of its piece: a vertex of another zone than its input, or not of one input, is a root."""
    degree = Counter(target for _, target in picture.edges)
    source_of = {target: source for source, target in picture.edges}
    home: list[int] = []
    for place, vertex in enumerate(picture.vertices):
        is_inside = degree[place] == 1 and picture.vertices[source_of[place]].zone == vertex.zone
        home.append(home[source_of[place]] if is_inside else place)
    return home


class _Tree:
    """One piece while it is laid out: depths become columns, leaves rows, and a vertex stands amid its children."""

    def __init__(
        self, picture: Picture, shapes: Sequence[Shape], children: Mapping[int, list[int]], leaving: set[int]
    ) -> None:
        self._picture = picture
        self._shapes = shapes
        self._children = children
        self._leaving = leaving
        self._depth: dict[int, int] = {}
        self._y: dict[int, float] = {}
        self._ways_out: dict[int, float] = {}  # of vertices that also have children: a row of its own

    def lay_out(self, root: int) -> Piece:
        bottom = self._descend(root, 0, _HEAD_PX) - ROW_GAP_PX + _FOOT_PX
        widths = [0.0] * (max(self._depth.values()) + 1)
        for place, depth in self._depth.items():
            widths[depth] = max(widths[depth], self._shapes[place].width)
        starts = [_SIDE_PX + sum(widths[:depth]) + COLUMN_GAP_PX * depth for depth in range(len(widths))]
        zone = shortened(self._picture.vertices[root].zone, _LABEL_CHARACTERS_MAX)
        content = starts[-1] + widths[-1] + _SIDE_PX
        middles = {p: (starts[d] + widths[d] / 2, self._y[p]) for p, d in self._depth.items()}
        spans = {p: (starts[d], starts[d] + widths[d]) for p, d in self._depth.items()}
        exits = {place: self._way_out(place, starts, spans[place][1]) for place in middles if place in self._leaving}
        width = max(content, text_width_px(zone, FONT_PX) + 2 * _SIDE_PX)
        return Piece(zone, root, middles, spans, exits, width, bottom)

    def _descend(self, place: int, depth: int, top: float) -> float:
        """Place the vertex and all below it from `top` on; the answer is where the next may begin."""
        self._depth[place] = depth
        shape, children = self._shapes[place], self._children.get(place, [])
        bottom = top
        for child in children:
            bottom = self._descend(child, depth + 1, bottom)
        if children and place in self._leaving:
            self._ways_out[place] = bottom
            bottom += ROW_GAP_PX
        rows = [self._y[child] for child in children]
        self._y[place] = (rows[0] + rows[-1]) / 2 if rows else top + shape.up
        lacking = top - (self._y[place] - shape.up)
        if lacking > 0:
            self._shift(place, lacking)
            bottom += lacking
        return max(bottom, self._y[place] + shape.down + ROW_GAP_PX)

    def _shift(self, place: int, by: float) -> None:
        self._y[place] += by
        if place in self._ways_out:
            self._ways_out[place] += by
        for child in self._children.get(place, []):
            self._shift(child, by)

    def _way_out(self, place: int, starts: list[float], end: float) -> tuple[float, float]:
        if place in self._ways_out:
            return starts[self._depth[place] + 1], self._ways_out[place]
        return end, self._y[place]
