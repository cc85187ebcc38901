"""Columns: where blocks stand above each other so that links between columns are short and rarely cross.

In: the column and height of each block, and the links between them. Out: the top of each block. Always: blocks of one column
do not overlap; the same blocks give the same answer.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

_SWEEPS = 4


@dataclass(frozen=True, slots=True)
class Block:
    column: int
    height: float


@dataclass(frozen=True, slots=True)
class Link:
    """From one block to another, further right; `leaves` and `enters` count from their tops."""

    source: int
    leaves: float
    target: int
    enters: float


def place_blocks(blocks: Sequence[Block], links: Sequence[Link], *, gap: float) -> list[float]:
    """Order each column by where its links want to be (the barycenter), to and fro, and keep blocks apart."""
    columns: dict[int, list[int]] = {}
    tops = [0.0] * len(blocks)
    for place, block in enumerate(blocks):
        columns.setdefault(block.column, []).append(place)
    for members in columns.values():
        _settle(members, {place: 0.0 for place in members}, blocks, tops, gap)
    numbers = sorted(columns)
    for sweep in range(2 * _SWEEPS):
        rightwards = sweep % 2 == 0
        for number in numbers if rightwards else reversed(numbers):
            wanted = {place: _wanted(place, links, tops, rightwards=rightwards) for place in columns[number]}
            columns[number].sort(key=wanted.__getitem__)
            _settle(columns[number], wanted, blocks, tops, gap)
    highest = min(tops, default=0.0)
    return [top - highest for top in tops]


def _wanted(place: int, links: Sequence[Link], tops: Sequence[float], *, rightwards: bool) -> float:
    """The top at which the block's links from the left, or to the right, are level on average."""
    if rightwards:
        levels = [tops[link.source] + link.leaves - link.enters for link in links if link.target == place]
    else:
        levels = [tops[link.target] + link.enters - link.leaves for link in links if link.source == place]
    return sum(levels) / len(levels) if levels else tops[place]


def _settle(
    members: Sequence[int], wanted: dict[int, float], blocks: Sequence[Block], tops: list[float], gap: float
) -> None:
    """The tops nearest to the wanted ones, by least squares, that keep order and gap: neighbours in conflict move as one."""
    runs: list[list[float]] = []  # [sum of wants less what stands above, how many]
    offsets: list[float] = []
    above = 0.0
    for place in members:
        offsets.append(above)
        runs.append([wanted[place] - above, 1.0])
        above += blocks[place].height + gap
        while len(runs) > 1 and runs[-2][0] / runs[-2][1] > runs[-1][0] / runs[-1][1]:
            total, count = runs.pop()
            runs[-1][0] += total
            runs[-1][1] += count
    levels = [total / count for total, count in runs for _ in range(int(count))]
    for place, level, offset in zip(members, levels, offsets, strict=True):
        tops[place] = level + offset
