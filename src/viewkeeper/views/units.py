"""Units: the pieces of an epoch's input, each read by one task.

In: the plan and the epoch in flight. Out: ranges of the log, and ranges of rows that fill views. Always: together they are
exactly the epoch's input, whatever the number of pieces (R9, R12).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from viewkeeper.model.epochs import Inflight
from viewkeeper.model.fills import START
from viewkeeper.model.positions import Position, Stream
from viewkeeper.plan.physical import PhysicalPlan


@dataclass(frozen=True, slots=True)
class Unit:
    """A range (start, stop] of the log of stream `part`; or, with `chunk`, the rows of a part with low < key <= high."""

    number: int
    part: int
    start: int = 0
    stop: int = 0
    chunk: int | None = None
    low: bytes = START
    high: bytes | None = None
    opens: bool = False  # gives the records that stand over an empty base too


def plan_units(plan: PhysicalPlan, epoch: Inflight, *, pieces: int) -> list[Unit]:
    """The input work of an epoch; each stream's range is cut in about `pieces`."""
    units: list[Unit] = []
    if plan.reads_log(epoch.chunks):
        for stream, stop in sorted(epoch.stop.positions.items()):
            start = epoch.start.get(stream, Position(0))
            borders = np.linspace(start, stop, min(pieces, max(stop - start, 1)) + 1).astype(int).tolist()
            for low, high in zip(borders, borders[1:], strict=False):
                if low < high:
                    units.append(Unit(len(units), stream, low, high))
    for number, chunk in enumerate(epoch.chunks):
        opens, is_stored = chunk.opens, plan.stored_in(chunk.source) is not None
        for part, keys in sorted(chunk.borders.items()):
            for first, last in zip(keys, keys[1:], strict=False):
                end = 0 if is_stored else epoch.stop.positions.get(Stream(part), Position(0))
                units.append(Unit(len(units), part, 0, end, number, first or START, last, opens))
                opens = False
    return units


def chunk_of(epoch: Inflight, backfill: int, source: int) -> int | None:
    """Which of the epoch's chunks brings rows of a source to a backfill."""
    chunks = enumerate(epoch.chunks)
    return next((number for number, chunk in chunks if chunk.source == source and backfill in chunk.tables), None)


def opening_chunk(epoch: Inflight, backfill: int) -> int | None:
    """The chunk with which a backfill begins in this epoch, if it does: one of those that open its sources."""
    chunks = enumerate(epoch.chunks)
    return next((number for number, chunk in chunks if chunk.opens and backfill in chunk.tables), None)
