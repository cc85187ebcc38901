"""Session guarantees: whether readers and writers saw what a session promises.

In: the operations of all sessions in one list, each session's own in order: writes with their positions, reads with the
positions that they showed. Out: the first violation of each guarantee. Always: one pass over the operations, and a
search by position; a stream may be that of a node, by tokens, or a single row, by its versions.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

Positions = Mapping[str, int]  # of each stream the last update written, or shown


class Guarantee(StrEnum):
    """What a session promises of the operations in it."""

    READ_YOUR_WRITES = "read your writes"  # a read shows what its session wrote before
    MONOTONIC_READS = "monotonic reads"  # a read shows what its session read before
    MONOTONIC_WRITES = "monotonic writes"  # who sees a write sees what its session wrote before it
    WRITES_FOLLOW_READS = "writes follow reads"  # who sees a write sees what its session had read before it


@dataclass(frozen=True, slots=True)
class Write:
    """A write of a session; its token has the positions."""

    session: str
    positions: Positions


@dataclass(frozen=True, slots=True)
class Read:
    """A read of a session, and how far it showed each stream; a stream that is left out was not shown at all."""

    session: str
    positions: Positions


@dataclass(frozen=True, slots=True)
class Violation:
    """The first read, counted from 0 among all operations, that breaks a guarantee."""

    guarantee: Guarantee
    operation: int
    session: str
    reason: str

    def __str__(self) -> str:
        return f"{self.guarantee}: operation {self.operation}, a read of session {self.session}, {self.reason}"


def violations(operations: Sequence[Write | Read]) -> tuple[Violation, ...]:
    """The first violation of each guarantee that is broken, earliest first; none if all sessions were kept."""
    wrote, showed = defaultdict[str, dict[str, int]](dict), defaultdict[str, dict[str, int]](dict)
    after_writes, after_reads = _required(operations)
    found: dict[Guarantee, Violation] = {}
    for index, operation in enumerate(operations):
        session, positions = operation.session, operation.positions
        if isinstance(operation, Write):
            _raise(wrote[session], positions)
            continue
        needed = {
            Guarantee.READ_YOUR_WRITES: wrote[session],
            Guarantee.MONOTONIC_READS: showed[session],
            Guarantee.MONOTONIC_WRITES: after_writes.by(positions),
            Guarantee.WRITES_FOLLOW_READS: after_reads.by(positions),
        }
        for guarantee, least in needed.items():
            reason = _lack(positions, least)
            if reason and guarantee not in found:
                found[guarantee] = Violation(guarantee, index, session, reason)
        _raise(showed[session], positions)
    return tuple(sorted(found.values(), key=lambda violation: violation.operation))


class _Requirements:
    """By stream: what must be shown by whoever shows it up to a position."""

    def __init__(self, steps: Iterable[tuple[str, int, Positions]]) -> None:
        self._positions: dict[str, list[int]] = defaultdict(list)
        self._needed: dict[str, list[dict[str, int]]] = defaultdict(lambda: [{}])
        for stream, position, positions in sorted(steps, key=lambda step: step[:2]):
            needed = dict(self._needed[stream][-1])
            _raise(needed, positions)
            self._needed[stream].append(needed)
            self._positions[stream].append(position)

    def by(self, shown: Positions) -> dict[str, int]:
        needed: dict[str, int] = {}
        for stream, position in shown.items():
            _raise(needed, self._needed[stream][bisect_right(self._positions[stream], position)])
        return needed


def _required(operations: Sequence[Write | Read]) -> tuple[_Requirements, _Requirements]:
    """What each write requires of those who see it: its session's earlier writes, and its session's earlier reads."""
    wrote, showed = defaultdict[str, dict[str, int]](dict), defaultdict[str, dict[str, int]](dict)
    writes: list[tuple[str, int, Positions]] = []
    reads: list[tuple[str, int, Positions]] = []
    for operation in operations:
        session = operation.session
        if isinstance(operation, Write):
            for stream, position in operation.positions.items():
                writes.append((stream, position, dict(wrote[session])))
                reads.append((stream, position, dict(showed[session])))
        _raise((wrote if isinstance(operation, Write) else showed)[session], operation.positions)
    return _Requirements(writes), _Requirements(reads)


def _raise(positions: dict[str, int], others: Positions) -> None:
    for stream, position in others.items():
        positions[stream] = max(positions.get(stream, 0), position)


def _lack(shown: Positions, least: Positions) -> str | None:
    """What is missing, if anything is."""
    for stream, position in sorted(least.items()):
        if shown.get(stream, 0) < position:
            return f"shows {stream or 'the log'} up to {shown.get(stream, 0)}, not up to {position}"
    return None
