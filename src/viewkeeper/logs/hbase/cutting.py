"""Cuts: where an epoch ends in each stream, such that what the earlier owner of a region wrote comes first.

In: the tails of all streams. Out: positions. Always: if a cut has what was written to a region after it was opened by a
server, it has all that was written to it before, on any server. Two looks at all streams, between which no region was opened,
are such a cut: what the second look found of a region's earlier log was there before the first found it opened. Of a long
backlog a part is cut off by the time of writing; servers' clocks differ by less than `SKEW_MS`, or HBase refuses them. Where
not all is known yet, a cut ends before a region was opened too late to know all that was written to it before.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from viewkeeper.logs.hbase.tail import SLOT_MS, Tail
from viewkeeper.model.positions import Position, Positions

SKEW_MS = 30_000 + SLOT_MS  # hbase.master.maxclockskew, between the beginnings of two slots
_EVER = 1 << 62


def part_of(tails: Sequence[Tail], known: Sequence[Tail], *, changes_max: int, bytes_max: int) -> tuple[Positions, int]:
    """Positions of about so many changes or bytes, and the time (ms) up to which they hold everything.

    `known`: those of the tails that are looked at to their ends; of the others nothing later than what is known is cut off.
    That may be nothing at all.
    """
    last = _known_until(tails, known)
    until = min(last, _last_time(tails, changes_max, bytes_max))
    positions: Positions = {}
    while (found := {tail.stream: _before(tail, until) for tail in tails}) != positions:
        positions = found
        until = min(last, max(until, _opened_by(tails, positions) + SKEW_MS))
    return positions, until


def _known_until(tails: Sequence[Tail], known: Sequence[Tail]) -> int:
    """The last time such that of each region opened up to it all is known that may have been written before."""
    last = min((int(_times(tail)[-1]) for tail in tails if tail not in known), default=_EVER)
    opened = np.concatenate([_times(tail)[tail.entries["opens"]] for tail in tails])
    while (late := opened[(opened > last - SKEW_MS) & (opened <= last)]).size:
        last = int(late.min()) - 1
    return last


def _last_time(tails: Sequence[Tail], changes_max: int, bytes_max: int) -> int:
    """The time of writing of the entry that reaches one of the limits, of the first entry at least."""
    times = np.concatenate([_times(tail) for tail in tails])
    order = np.argsort(times, kind="stable")
    entries = np.concatenate([tail.entries for tail in tails])[order]
    reached = (np.cumsum(entries["cells"]) >= changes_max) | (np.cumsum(entries["bytes"]) >= bytes_max)
    last = int(np.argmax(reached)) if reached.any() else len(order) - 1
    return int(times[order[last]])


def _times(tail: Tail) -> np.ndarray:
    """When entries were written; never earlier than the one before, whatever the server's clock did."""
    return np.maximum.accumulate(tail.entries["written"])


def _before(tail: Tail, until: int) -> Position:
    count = int(np.searchsorted(_times(tail), until, "right"))
    return Position(int(tail.entries["position"][count - 1])) if count else tail.start


def _opened_by(tails: Sequence[Tail], positions: Positions) -> int:
    """The time at which the last region was opened up to `positions`; long ago if none was."""
    found = [tail.upto(positions[tail.stream]) for tail in tails]
    return max((int(one["written"][one["opens"]].max(initial=-SKEW_MS)) for one in found), default=-SKEW_MS)
