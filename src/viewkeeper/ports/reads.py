"""Reads: the port through which clients see records of views as of a moment.

A read begins and ends with a look at the horizon: if the floor has passed the moment's epoch in between, what was read
is discarded (R4). Between the two a store may return anything for a record that was purged.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Protocol

from viewkeeper.model.horizon import Horizon
from viewkeeper.model.moments import Moment, Step
from viewkeeper.model.writes import Image

if TYPE_CHECKING:
    import pyarrow as pa

Stored = tuple["pa.Array", "pa.Array", list[tuple[bytes, str]]]
WrongColumns = tuple[
    bytes, dict[str, object], dict[str, object]
]  # of a record: its key, what is expected, what is found
Span = tuple[Sequence[int], bytes, bytes | None]  # partitions, and start <= key < stop


class Held(Protocol):
    """The records of some partitions as of one moment, until `close`."""

    def get(self, partition: int, table: int, key: bytes) -> Image:
        """The row of one record."""
        ...

    def scan(
        self, partitions: Sequence[int], table: int, start: bytes, stop: bytes | None, *, reverse: bool = False
    ) -> Iterator[tuple[bytes, bytes]]:
        """(key, row) pairs with start <= key < stop, in key order across `partitions`."""
        ...

    def batches(
        self, table: int, spans: Iterable[Span], *, reverse: bool = False
    ) -> Iterator[tuple[pa.Array, pa.Array]]:
        """Keys and rows of one span after the other, each like `scan`, some thousand at a time."""
        ...

    def stored(self, partition: int, table: int, last: int) -> Iterator[Stored]:
        """Keys and rows of all records of one partition, some thousand at a time, whatever their partition should be.

        Apart from them (key, why) of records whose versions no epoch up to `last` can have written, where the store could
        hold such.
        """
        ...

    def steps(self, partitions: Sequence[int], table: int, since: int) -> list[Step]:
        """What the epochs after `since` did to the records, by epoch and key; `since` is not below the floor."""
        ...

    def keep(self) -> None:
        """Have the store keep them until `close`, or for some minutes after the last read; StaleRead: they are gone.

        Without it, and without `Capabilities.held_reads`, any read may raise StaleRead: epochs that came meanwhile may have
        purged what it needs.
        """
        ...

    def close(self) -> None: ...


class Reads(Protocol):
    """Records of views, for readers."""

    def get_record(self, partition: int, table: int, key: bytes, moment: Moment) -> Image:
        """The row of one record as of a moment."""
        ...

    def get_committed(self, partition: int, table: int, key: bytes) -> tuple[Image, Horizon] | None:
        """The row of one record as of the horizon, in one look; None where that does not tell it.

        For stores whose requests take long: whoever gets None reads as of a moment. Beside it a horizon of up to a second
        before, as of which the row is the same: a view that was dropped or replaced since is told by the next look.
        """
        ...

    def wrong_columns(self, table: int) -> Iterator[WrongColumns]:
        """Records whose columns, which a store may keep once more for its own tools, show something else than they hold."""
        ...

    def hold(self, moment: Moment, partitions: Sequence[int]) -> Held:
        """The records of `partitions` as of a moment.

        With `Capabilities.held_reads` they do not change, whatever is purged or dropped meanwhile.
        """
        ...
