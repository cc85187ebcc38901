"""Positions: places in the store's log.

In and out: numbers with names. Always: a position counts the changes of its stream from 1, so the difference of two
positions is a number of changes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NewType

Stream = NewType("Stream", int)
Position = NewType("Position", int)
Positions = dict[Stream, Position]


@dataclass(frozen=True, slots=True)
class Cut:
    """One state of the whole base: the last position of each stream up to the instant `stamp` (nanoseconds)."""

    positions: Positions
    stamp: int


def covers(positions: Positions, others: Positions) -> bool:
    """Whether `positions` are at or behind `others` in every stream."""
    return all(positions.get(stream, 0) >= position for stream, position in others.items())


def count_between(start: Positions, stop: Positions) -> int:
    """How many changes lie in (start, stop]."""
    return sum(position - start.get(stream, 0) for stream, position in stop.items())


def positions_to_json(positions: Positions) -> dict[str, int]:
    return {str(stream): positions[stream] for stream in sorted(positions)}


def positions_from_json(value: dict[str, int]) -> Positions:
    return {Stream(int(stream)): Position(position) for stream, position in value.items()}
