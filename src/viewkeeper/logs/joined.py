"""Joined logs: several log sources behind one.

In: log sources, each with streams of its own. Out: one log source. Always: a stream belongs to the source that claims its
name; the one that is asked first gets as many changes of an epoch as it has, the next ones what is left, or a share.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from typing import Protocol

import pyarrow as pa

from viewkeeper.model.positions import Cut, Position, Positions, Stream, Waiting
from viewkeeper.ports.log import LogSource


class OwnLog(LogSource, Protocol):
    """A log source that knows its streams by name."""

    def owns(self, stream: Stream) -> bool: ...


class JoinedLog(ABC):
    """The port `LogSource`."""

    @property
    @abstractmethod
    def _sources(self) -> Sequence[OwnLog]: ...

    def ends(self) -> Positions:
        return {stream: end for source in self._sources for stream, end in source.ends().items()}

    def last_entries(self) -> Positions:
        return {stream: end for source in self._sources for stream, end in source.last_entries().items()}

    def has_changes(self, start: Positions, stop: Positions) -> bool:
        return any(source.has_changes(_own(source, start), _own(source, stop)) for source in self._sources)

    def cut(self, start: Positions, *, changes_max: int, bytes_max: int) -> Cut:
        positions: Positions = {}
        changes, stamps = 0, []
        for source in self._sources:
            left = max(1, changes_max // 4, changes_max - changes)
            found = source.cut(_own(source, start), changes_max=left, bytes_max=bytes_max)
            positions |= found.positions
            changes += found.changes
            stamps.append(found.stamp)
        return Cut(positions, min(stamps), changes)

    def skip_log(self, start: Positions) -> Cut:
        found = [source.skip_log(_own(source, start)) for source in self._sources]
        positions = {stream: at for one in found for stream, at in one.positions.items()}
        return Cut(positions, min(one.stamp for one in found), 0)

    def log_bytes(self, start: Positions, stop: Positions) -> int:
        return sum(source.log_bytes(_own(source, start), _own(source, stop)) for source in self._sources)

    def waiting(self, start: Positions) -> Waiting:
        found = [source.waiting(_own(source, start)) for source in self._sources]
        oldest = [one.oldest for one in found if one.oldest is not None]
        return Waiting(sum(one.changes for one in found), min(oldest, default=None))

    def pieces(self, stream: Stream, start: Position, stop: Position, *, count: int) -> list[Position]:
        return self._source(stream).pieces(stream, start, stop, count=count)

    def log_entries(self) -> int:
        return sum(source.log_entries() for source in self._sources)

    def checksums(self, positions: Positions) -> dict[Stream, int]:
        found: dict[Stream, int] = {}
        for source in self._sources:
            found |= source.checksums(_own(source, positions))
        return found

    def read_log(self, stream: Stream, start: Position, stop: Position) -> Iterator[tuple[int, pa.RecordBatch]]:
        return self._source(stream).read_log(stream, start, stop)

    def truncate_log(self, positions: Positions, *, older_than_seconds: float, entries_max: int) -> int:
        return sum(
            source.truncate_log(_own(source, positions), older_than_seconds=older_than_seconds, entries_max=entries_max)
            for source in self._sources
        )

    def _source(self, stream: Stream) -> OwnLog:
        return next(source for source in self._sources if source.owns(stream))


def _own(source: OwnLog, positions: Positions) -> Positions:
    return {stream: position for stream, position in positions.items() if source.owns(stream)}
