"""LogSource: the port through which changes are read.

A range (start, stop] of a stream can be read repeatedly with the same result, until it is truncated; only what the
pipeline has committed is. Positions are ordered, not counted; the log is asked for a number of changes. Position 0, or a
stream that is missing in a mapping, means before everything. In one incarnation no two logs have the same stream's name.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import TYPE_CHECKING

from viewkeeper.model.positions import Cut, LogRange, Position, Positions, Stream

if TYPE_CHECKING:
    import pyarrow as pa

ALL = 1 << 62  # of changes or bytes: more than there are


class LogSource(ABC):
    """The changes of a store, stream by stream."""

    @abstractmethod
    def ends(self) -> Positions:
        """A position of every stream that nothing written before this call lies after; streams are not cut at one instant.

        An entry that is just being written may be cut.
        """

    @abstractmethod
    def describe(self, start: Positions, stop: Positions | None = None) -> LogRange:
        """What lies in (start, stop], or after `start` now; PositionLost where some of that is gone.

        A log may also hold what is no change, such as the writes of views.
        """

    @abstractmethod
    def cut(self, start: Positions, *, changes_max: int = ALL, bytes_max: int = ALL, skips: bool = False) -> Cut:
        """One state of the whole base (R17) after `start`, durable: for each stream the last position up to one instant.

        With `skips` that is at the end of the log, whatever lies after `start`, or was lost after it. Of foreign tables it
        may be a state that never was, which a later cut corrects: their writes are merged by stamp and order.

        Never cuts a base transaction; the last one before the cut is at most the one that reaches `changes_max` or
        `bytes_max`.
        """

    @abstractmethod
    def pieces(self, stream: Stream, start: Position, stop: Position, *, count: int) -> list[Position]:
        """Ascending positions from `start` to `stop` that cut the range in up to `count` pieces of about equal size."""

    def checksums(self, positions: Positions) -> dict[Stream, int]:
        """The checksum of the entry that ends at each stream's position; streams without that entry are left out.

        None at all only where a stream's name never comes back with other entries: a backup that is restored shows by them.
        """
        return {}

    @abstractmethod
    def read_log(self, stream: Stream, start: Position, stop: Position) -> Iterator[tuple[int, pa.RecordBatch]]:
        """Changes of (start, stop] as (table id, batch of CHANGES_SCHEMA) in log order; batches are bounded.

        Those of foreign tables are batches of CELLS_SCHEMA (`model.foreign_rows`): `column` is an index of `value_columns`,
        and `order` compares across streams.
        """

    def truncate_log(self, positions: Positions, *, older_than_seconds: float, entries_max: int) -> int:
        """Delete old entries that end before `positions`, up to so many of each stream; returns how many.

        Streams that have ended are forgotten once they are old and committed to their ends. A store whose log is kept for
        others, who delete it, deletes none.
        """
        return 0

    def changed_keys(self, table: int, start: Positions) -> Iterator[pa.Array]:
        """Keys of a table's rows that may show something else now than at `start`; some keys more than once.

        This default is for tables whose rows change by what the log says of them alone, so not for foreign ones.
        """
        for stream, end in self.ends().items():
            for changed, batch in self.read_log(stream, start.get(stream, Position(0)), end):
                if changed == table:
                    yield batch["key"]
