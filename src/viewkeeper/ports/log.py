"""LogSource: the port through which changes are read.

A range (start, stop] of a stream can be read repeatedly with the same result, until it is truncated; only what the
pipeline has committed is. Positions are ordered, not counted; the log is asked for a number of changes.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

import pyarrow as pa

from viewkeeper.model.positions import Cut, Position, Positions, Stream, Waiting

CHANGES_SCHEMA = pa.schema(
    [("position", pa.int64()), ("key", pa.binary()), ("before", pa.binary()), ("after", pa.binary())]
)
CELLS_SCHEMA = pa.schema(  # of foreign tables; `order` is greater for what the store wrote later
    [
        *(("position", pa.int64()), ("key", pa.binary()), ("column", pa.int32()), ("kind", pa.int8())),
        *(("stamp", pa.int64()), ("order", pa.int64()), ("value", pa.binary())),
    ]
)


class LogSource(Protocol):
    """The changes of a store, stream by stream."""

    def ends(self) -> Positions:
        """A position of every stream that nothing written before this call lies after.

        No lock is taken, so the streams are not cut at one instant; an entry that is just being written may be cut.
        """
        ...

    def last_entries(self) -> Positions:
        """Where the last whole entry of every stream ends: a range up to there can be read."""
        ...

    def has_changes(self, start: Positions, stop: Positions) -> bool:
        """Whether there is a change in (start, stop]; a log may also hold what is none, such as the writes of views."""
        ...

    def cut(self, start: Positions, *, changes_max: int, bytes_max: int) -> Cut:
        """One state of the whole base (R17) after `start`: for each stream the last position up to one instant.

        Never cuts a base transaction; the last transaction before the cut is at most the one that reaches `changes_max`
        or `bytes_max`. Everything up to the cut is durable when this returns (R10.1).
        """
        ...

    def skip_log(self, start: Positions) -> Cut:
        """A cut at the end of the log, whatever lies after `start`, or was lost after it."""
        ...

    def log_bytes(self, start: Positions, stop: Positions) -> int:
        """The size in bytes of the changes of (start, stop]."""
        ...

    def waiting(self, start: Positions) -> Waiting:
        """What lies after `start` now."""
        ...

    def pieces(self, stream: Stream, start: Position, stop: Position, *, count: int) -> list[Position]:
        """Ascending positions from `start` to `stop` that cut the range in up to `count` pieces of about equal size."""
        ...

    def log_entries(self) -> int:
        """How many entries the log holds, in all streams."""
        ...

    def checksums(self, positions: Positions) -> dict[Stream, int]:
        """The checksum of the entry that ends at each stream's position; streams without that entry are left out."""
        ...

    def read_log(self, stream: Stream, start: Position, stop: Position) -> Iterator[tuple[int, pa.RecordBatch]]:
        """Changes of (start, stop] as (table id, batch of CHANGES_SCHEMA), in log order; batches are bounded.

        Those of foreign tables are batches of CELLS_SCHEMA (`model.foreign_rows`).
        """
        ...

    def truncate_log(self, positions: Positions, *, older_than_seconds: float, entries_max: int) -> int:
        """Delete old entries that end before `positions`, up to so many of each stream; returns how many."""
        ...
