"""Records: the ports to records of views and of auxiliary tables, for view programs and for readers.

In: epochs, or the state that a read sees; keys and partitions. Out: records. Always: view programs address records by
epoch, never by bytes; how a version is stored is up to the store. Until an epoch is committed, its records are found as
of the epoch before, so a run may be repeated, and may be cut anywhere. A read begins and ends with a look at the read
frontier: if the floor has passed the epoch that it reads in between, what was read is discarded (R4). Between the two a
store may return anything for a record that was purged.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import pyarrow as pa

from viewkeeper.model.epochs import EpochRecord, Inflight
from viewkeeper.model.positions import SplitPoints
from viewkeeper.model.read_frontier import Horizon, ReadTimestamp, RecordChange
from viewkeeper.model.stored_rows import Image

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

    def steps(self, partitions: Sequence[int], table: int, since: int) -> list[RecordChange]:
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

    def get_record(self, partition: int, table: int, key: bytes, moment: ReadTimestamp) -> Image:
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

    def hold(self, moment: ReadTimestamp, partitions: Sequence[int]) -> Held:
        """The records of `partitions` as of a moment.

        With `Capabilities.held_reads` they do not change, whatever is purged or dropped meanwhile.
        """
        ...


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


class VersionedTables(Protocol):
    """View and auxiliary tables; a partition is a part of them that one manager owns.

    Reads for an epoch may raise Fenced when they meet a record of a later one (R3); their results are as of the epoch
    before even so.
    """

    @property
    def partitions(self) -> int:
        """How many partitions there are; fixed when the store is made."""
        ...

    def partition_of(self, first_part: bytes) -> int:
        """The partition of the records whose keys begin with these bytes of their first part."""
        ...

    def admit(self, epoch: Inflight) -> None:
        """Called before each run of an epoch in flight: from here on it writes, and no earlier one does."""
        ...

    def written_epochs(self) -> tuple[int, int]:
        """The oldest and the newest epoch that a partition was last admitted for."""
        ...

    def read_versions(self, table: int, keys: pa.Array, partitions: np.ndarray, epoch: Inflight) -> StoredVersions:
        """Records of distinct `keys`, given in the order of their partitions."""
        ...

    def scan_prefixes(
        self, partition: int, table: int, prefixes: Sequence[bytes], epoch: Inflight, *, rows_max: int | None = None
    ) -> Iterator[pa.RecordBatch]:
        """Records whose keys begin with one of the prefixes, as of the epoch before, prefix by prefix in key order.

        Batches of (prefix, key, row), `prefix` by its index in `prefixes`; about `rows_max` records of each at most.
        """
        ...

    def has_records(self, partition: int, table: int) -> bool:
        """Whether a table has any record in a partition, tombstones included."""
        ...

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
        ...

    def record_borders(
        self, table: int, part: int, after: bytes, *, rows_max: int, bytes_max: int, pieces: int
    ) -> SplitPoints:
        """Like `BaseTables.row_borders`, over the records of a partition."""
        ...

    def write_versions(self, writes: Sequence[VersionWrite], epoch: Inflight) -> None:
        """Store version `epoch` of the records; Fenced unless the epoch is in flight.

        Each record is written whole; after an error any of them may have been written.
        """
        ...

    def purge(self, record: EpochRecord, *, records_max: int) -> int:
        """Drop versions that no reader at or above the floor needs, of about `records_max` records; returns how many.

        Called between epochs, repeatedly until it returns 0. A store that drops them when an epoch is admitted, or with
        the next write of a record, returns 0.
        """
        ...

    def distrust(self, tables: Sequence[int]) -> None:
        """Others may have changed records of these tables: what processes remember of them counts no longer."""
        ...

    def drop_records(self, table: int) -> None:
        """Delete every record of a dropped view; what a late task writes to it from here on is ignored."""
        ...

    def open_views(self) -> None:
        """Called before a pipeline writes views: from here on a power loss may tear them, where one can."""
        ...

    def close_views(self, owner: str) -> None:
        """After a pipeline's last write: mark the views as durable, unless the epoch record has a new owner."""
        ...

    def sync_views(self) -> None:
        """From here on, what was written to the view tables survives a power loss (R10.5)."""
        ...
