"""Positions in the WAL of one region server: which of its files, and how far into it, as one ordered number.

In: a file's name time (milliseconds, as in its name) and an offset. Out: a position, and back. Always: positions of a later
file are after all positions of an earlier one. A file's first position is its age at `BYTES_PER_MS` bytes a millisecond,
32 GiB a second, faster than a log is written; `check_order` refuses files for which that does not hold.
"""

from __future__ import annotations

from viewkeeper.errors import InvariantBroken
from viewkeeper.model.positions import Position

BYTES_PER_MS = 1 << 25  # leaves room for servers that run for eight years
_SLACK_MS = 86_400_000  # a server's clock may have been set back while it started
_END = 1 << 63


def first_position(name_ms: int, start_ms: int) -> Position:
    """The position before everything in the file of that name time, of the server that started at `start_ms`."""
    age_ms = name_ms - start_ms + _SLACK_MS
    if not 0 < age_ms < _END // BYTES_PER_MS:
        raise InvariantBroken(
            f"a WAL of {name_ms} does not fit a server that started at {start_ms}", "restart that region server"
        )
    return Position(age_ms * BYTES_PER_MS)


def check_order(name: str, size: int, first: Position, next_first: Position) -> None:
    """The file that begins at `first` has no position at or after the next one's first."""
    if size >= next_first - first:
        raise InvariantBroken(f"the WAL {name} is too large for the time until the next one: {size} bytes")
