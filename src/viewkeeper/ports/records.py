"""Records: the ports to records of views and of auxiliary tables, for view programs and for readers.

In: epochs, or the state that a read sees; keys and partitions. Out: records. Always: view programs address records by
epoch, never by bytes. Until an epoch is committed, its records are found as of the epoch before, so a run may be
repeated, and may be cut anywhere. A read begins and ends with a look at the read frontier: if the floor has passed the
epoch that it reads in between, what was read is discarded (R4), and may be anything for a record that was purged.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from viewkeeper.model.epochs import EpochRecord, Inflight
from viewkeeper.model.positions import SplitPoints
from viewkeeper.model.read_frontier import ReadFrontier, ReadTimestamp, RecordChange
from viewkeeper.model.stored_rows import Image

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa

Stored = tuple["pa.Array", "pa.Array", list[tuple[bytes, str]]]
# Of a record: its key, what is expected, what is found.
WrongColumns = tuple[bytes, dict[str, object], dict[str, object]]
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

        Beside them (key, why) of records whose versions no epoch up to `last` can have written.
        """
        ...

    def steps(self, partitions: Sequence[int], table: int, since: int) -> list[RecordChange]:
        """What the epochs after `since` did to the records, by epoch and key; `since` is not below the floor."""
        ...

    def keep(self) -> None:
        """Have the store keep them until `close`, or for some minutes after the last read; StaleRead: they are gone.

        Without it, and without `Capabilities.held_reads`, any read raises StaleRead where epochs that came meanwhile may have
        purged what it needs: callers do not look at the floor again.
        """
        ...

    def close(self) -> None: ...


class Reads(ABC):
    """Records of views, for readers."""

    @abstractmethod
    def get_record(self, partition: int, table: int, key: bytes, moment: ReadTimestamp) -> Image:
        """The row of one record as of a moment."""

    def get_committed(self, partition: int, table: int, key: bytes) -> tuple[Image, ReadFrontier] | None:
        """The row of one record as of the read frontier, in one look; None where that does not tell it.

        For stores whose requests take long. Beside it a read frontier of up to a second before, as of which it is the same:
        a view that was dropped or replaced since is noticed by the next look.
        """
        return None

    def wrong_columns(self, table: int) -> Iterator[WrongColumns]:
        """Records whose columns, which a store may keep once more for its own tools, show something else than they hold."""
        return iter(())

    @abstractmethod
    def hold(self, moment: ReadTimestamp, partitions: Sequence[int]) -> Held:
        """The records of `partitions` as of a moment; with `Capabilities.held_reads` no purge or drop changes them."""


@dataclass(frozen=True, slots=True)
class StoredVersions:
    """Records as an epoch finds them: `rows` as of the epoch before, NULL = absent.

    `applied` marks records that this epoch is known to have written (a re-run), `now` holds what it wrote; a store that
    does not look marks none. `raw` belongs to the store.
    """

    keys: pa.Array
    partitions: np.ndarray  # the partition of each record, in ascending order
    rows: pa.Array
    applied: np.ndarray
    now: pa.Array
    raw: Any


@dataclass(frozen=True, slots=True)
class VersionWrite:
    """New rows (NULL = delete the record) for records of one table, as found by `read_versions`."""

    table: int
    found: StoredVersions
    chosen: np.ndarray  # positions in `found` to write
    rows: pa.Array  # one for each chosen


class VersionedTables(ABC):
    """View and auxiliary tables, in partitions.

    Reads for an epoch may raise Fenced at a record of a later one (R3); without that they are as of the epoch before.
    """

    @property
    @abstractmethod
    def partitions(self) -> int:
        """How many partitions there are; fixed when the store is made."""

    @abstractmethod
    def admit(self, epoch: Inflight) -> None:
        """Called before each run of an epoch in flight: from here on it writes, and no earlier one is read as a later one.

        First the epoch record as read is made to survive a power loss (R10.3), also where another process began the epoch.
        Where `Inflight.anew` is greater than all epochs admitted, no record of an epoch before it is found from here on.
        A call that comes late, of a pipeline that was fenced off, takes away none of that epoch or of later ones.
        """

    @abstractmethod
    def written_epochs(self) -> tuple[int, int]:
        """The oldest and the newest epoch that a partition was last admitted for; without fences the last one, twice.

        They never fall.
        """

    @abstractmethod
    def read_versions(self, table: int, keys: pa.Array, partitions: np.ndarray, epoch: Inflight) -> StoredVersions:
        """Records of distinct `keys`, given in the order of their partitions."""

    @abstractmethod
    def scan_prefixes(
        self, partition: int, table: int, prefixes: Sequence[bytes], epoch: Inflight, *, rows_max: int | None = None
    ) -> Iterator[pa.RecordBatch]:
        """Records whose keys begin with one of the prefixes, as of the epoch before, prefix by prefix in key order.

        Batches of (prefix, key, row), `prefix` by its index in `prefixes`; about `rows_max` records of each at most.
        """

    @abstractmethod
    def scan_versions(
        self,
        partition: int,
        table: int,
        epoch: int,
        aborted: tuple[int, ...],
        low: bytes = b"",
        high: bytes | None = None,
    ) -> Iterator[pa.RecordBatch]:
        """Records with low < key <= high as of `epoch`, without versions of aborted epochs, as batches of (key, row)."""

    @abstractmethod
    def record_borders(
        self, table: int, part: int, after: bytes, *, rows_max: int, bytes_max: int, pieces: int
    ) -> SplitPoints:
        """Like `BaseTables.row_borders`, over the records of a partition."""

    @abstractmethod
    def write_versions(self, writes: Sequence[VersionWrite], epoch: Inflight) -> None:
        """Store version `epoch` of the records, each whole; Fenced unless it is in flight. An error may leave some.

        Without fences the epoch record is asked after the last read, before the first put, before each put that is repeated,
        and again whenever the last time was T ago (`docs/epochs.md`). Of tables in `Inflight.indexed` it is noted, not later
        than the write, which records the epoch wrote.
        """

    def purge(self, record: EpochRecord, *, records_max: int) -> int:
        """Drop versions that no reader at or above the floor needs, of about `records_max` records; returns of how many.

        Called between epochs, repeatedly until it returns 0. A store that drops them when an epoch is admitted, or with the
        next write of a record, returns 0. What killed readers held is released too.
        """
        return 0

    def distrust(self, tables: Sequence[int]) -> None:
        """Others may have changed records of these tables: what processes remember of them counts no longer."""
        return None

    @abstractmethod
    def drop(self, table: int) -> None:
        """Delete every record and every row of a dropped table; what a late task writes to it from here on is ignored."""

    def sync(self, *, closed_by: str | None = None) -> None:
        """From here on the epoch record as read, and what was written to the view tables, survive a power loss (R10).

        Nothing is to be done where each reply means that what was written is durable.

        With `closed_by`, the owner of a pipeline that has written its last, no power loss tears views any more, until an
        epoch is admitted; unless the epoch record has a new owner.
        """
        return None
