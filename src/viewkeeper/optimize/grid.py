"""Grid: which column each piece of a picture stands in, and the lanes of edges that pass a column.

In: a picture and its pieces. Out: blocks and links for `columns`. Always: a piece's rank is the longest path from the base
tables, so that every edge goes to the right; the first blocks are the pieces, in their order, the others are lanes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from viewkeeper.optimize.columns import Block, Link
from viewkeeper.optimize.pieces import Piece, homes
from viewkeeper.optimize.vertices import Picture

_BETWEEN_COLUMNS_PX = 64


@dataclass(frozen=True, slots=True)
class Grid:
    """`home[v]`: the piece of vertex v. `lanes[v, column]`: the block by which edges of v pass a column."""

    pieces: Sequence[Piece]
    home: Sequence[int]
    ranks: Sequence[int]
    blocks: Sequence[Block]
    lanes: dict[tuple[int, int], int]
    links: Sequence[Link]

    def passed(self, source: int, target: int) -> range:
        """The columns that an edge between two vertices passes without stopping."""
        return range(self.ranks[self.home[source]] + 1, self.ranks[self.home[target]])

    def columns(self) -> tuple[list[float], list[float]]:
        """Where each column starts and ends."""
        starts: list[float] = []
        ends: list[float] = []
        for rank in range(max(self.ranks, default=-1) + 1):
            starts.append(ends[-1] + _BETWEEN_COLUMNS_PX if ends else 0.0)
            widths = [piece.width for piece, own in zip(self.pieces, self.ranks, strict=True) if own == rank]
            ends.append(starts[-1] + max(widths))
        return starts, ends


def grid_of(picture: Picture, pieces: Sequence[Piece]) -> Grid:
    """Rank the pieces, give edges of one vertex a common lane in each column that they pass, and link what follows."""
    number = {piece.root: at for at, piece in enumerate(pieces)}
    home = [number[root] for root in homes(picture)]
    ranks = _ranks(picture, pieces, home)
    blocks = [Block(rank, piece.height) for rank, piece in zip(ranks, pieces, strict=True)]
    lanes: dict[tuple[int, int], int] = {}
    links: dict[Link, None] = {}
    grid = Grid(pieces, home, ranks, blocks, lanes, ())
    for source, target in picture.edges:
        if home[source] == home[target]:
            continue
        before, leaves = home[source], pieces[home[source]].exits[source][1]
        for column in grid.passed(source, target):
            if (source, column) not in lanes:
                lanes[source, column] = len(blocks)
                blocks.append(Block(column, 0.0))
            links[Link(before, leaves, lanes[source, column], 0.0)] = None
            before, leaves = lanes[source, column], 0.0
        links[Link(before, leaves, home[target], pieces[home[target]].middles[target][1])] = None
    return Grid(pieces, home, ranks, tuple(blocks), lanes, tuple(links))


def _ranks(picture: Picture, pieces: Sequence[Piece], home: Sequence[int]) -> list[int]:
    """Roots stand in the order of the plan, so what feeds a piece is ranked before it."""
    ranks: list[int] = []
    for piece in pieces:
        sources = [home[source] for source, target in picture.edges if target == piece.root]
        ranks.append(max((ranks[source] + 1 for source in sources), default=0))
    return ranks
