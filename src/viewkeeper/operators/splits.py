"""Splits: the pieces of an epoch's input, each read by one task.

In: the plan and the epoch in flight. Out: ranges of the log, and ranges of rows that fill views. Always: together they are
exactly the epoch's input, whatever the number of pieces (R9, R12).
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass

from viewkeeper.model.epochs import Inflight
from viewkeeper.model.fills import START
from viewkeeper.model.positions import Position, Stream
from viewkeeper.plan.physical import PhysicalPlan
from viewkeeper.ports.log import LogSource

_NONE, _FIRST = Stream(""), Position(0)


@dataclass(frozen=True, slots=True)
class Split:
    """A range (start, stop] of a stream; or, with `chunk`, the rows of a key range with low < key <= high.

    In an epoch of repairs: a partition, `part`. In one for rows set aside: all of these.
    """

    number: int
    stream: Stream = _NONE
    start: Position = _FIRST
    stop: Position = _FIRST
    chunk: int | None = None
    part: int = 0
    low: bytes = START
    high: bytes | None = None
    opens: bool = False  # also emits the records that exist over an empty base


def plan_splits(
    log: LogSource, plan: PhysicalPlan, epoch: Inflight, *, pieces: int, partitions: int = 0
) -> list[Split]:
    """The input work of an epoch; each stream's range is cut in about `pieces`."""
    splits = [Split(part, part=part) for part in range(partitions if plan.repairs else 1 if plan.aside else 0)]
    if plan.reads_log(epoch.chunks) and not plan.aside:
        for stream, stop in sorted(epoch.stop.positions.items()):
            start = epoch.start.get(stream, _FIRST)
            borders = log.pieces(stream, start, stop, count=pieces) if start < stop else []
            for low, high in itertools.pairwise(borders):
                splits.append(Split(len(splits), stream, low, high))
    for number, chunk in enumerate(epoch.chunks):
        opens = chunk.opens
        for part, keys in sorted(chunk.borders.items()):
            for first, last in zip(keys, keys[1:], strict=False):
                split = Split(len(splits), chunk=number, part=part, low=first or START, high=last, opens=opens)
                splits.append(split)
                opens = False
    return splits


def chunk_of(epoch: Inflight, backfill: int, source: int) -> int | None:
    """The epoch's chunk that brings rows of a source to a backfill."""
    chunks = enumerate(epoch.chunks)
    return next((number for number, chunk in chunks if chunk.source == source and backfill in chunk.tables), None)


def opening_chunk(epoch: Inflight, backfill: int) -> int | None:
    """The chunk with which a backfill begins in this epoch, if any: one of those that open its sources."""
    chunks = enumerate(epoch.chunks)
    return next((number for number, chunk in chunks if chunk.opens and backfill in chunk.tables), None)
