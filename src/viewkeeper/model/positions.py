"""Positions: how far something has come in the streams of a log.

In and out: numbers with names. Always: a position is ordered within its stream, and nothing more: the difference of two
does not tell how much lies between them. A stream is identified by its name.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NewType

Stream = NewType("Stream", str)
Position = NewType("Position", int)
Positions = dict[Stream, Position]


@dataclass(frozen=True, slots=True)
class Cut:
    """One state of the whole base: the last position of each stream up to the instant `stamp` (nanoseconds).

    `changes`: how many lie between the given start and the cut.
    """

    positions: Positions
    stamp: int
    changes: int


@dataclass(frozen=True, slots=True)
class Waiting:
    """What lies after some positions: how many changes, and the stamp of the oldest, None when there is none."""

    changes: int
    oldest: int | None


def covers(positions: Positions, others: Positions) -> bool:
    """Whether `positions` are at or after `others` in every stream."""
    return all(positions.get(stream, 0) >= position for stream, position in others.items())


def positions_to_json(positions: Positions) -> dict[str, int]:
    return {stream: positions[stream] for stream in sorted(positions)}


def positions_from_json(value: dict[str, int]) -> Positions:
    return {Stream(stream): Position(position) for stream, position in value.items()}
