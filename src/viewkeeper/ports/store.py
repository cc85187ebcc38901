"""Store: the port to a key-value store that holds base tables, views and the epoch record.

View programs reach records in terms of epochs, never of bytes; how a version is stored is the store's own matter. The URL
travels to executors, never a client.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import pyarrow as pa

from viewkeeper.model.epochs import EpochRecord, Inflight
from viewkeeper.model.fills import Borders
from viewkeeper.model.positions import Position, Stream
from viewkeeper.ports.log import LogSource


@dataclass(frozen=True, slots=True)
class Capabilities:
    """What a store can do; view programs and planner ask here, never by name."""

    before_images: bool
    cell_timestamps: bool
    snapshots: bool
    atomic_multi_row: bool
    many_processes: bool  # others reach the store by its URL, Spark's workers among them


@dataclass(frozen=True, slots=True)
class StoredVersions:
    """Records as an epoch finds them: `rows` as of the epoch before, NULL = absent.

    `applied` marks records this epoch has already written (a re-run), `now` holds what it wrote. `raw` is the store's own.
    """

    keys: pa.Array
    places: np.ndarray  # where each record lives, in growing order
    rows: pa.Array
    applied: np.ndarray
    now: pa.Array
    raw: Any


@dataclass(frozen=True, slots=True)
class VersionWrite:
    """New rows (NULL = the record goes) for records of one table, as found by `read_versions`."""

    table: int
    found: StoredVersions
    chosen: np.ndarray  # positions in `found` to write
    rows: pa.Array  # one for each chosen


class VersionedTables(Protocol):
    """View and auxiliary tables; a place is a part of them that one manager owns."""

    @property
    def places(self) -> int:
        """How many places there are; fixed when the store is made."""
        ...

    def open_epoch(self, place: int, epoch: Inflight) -> None:
        """Before an epoch's first read of a place: what no reader needs any more goes (purge)."""
        ...

    def read_versions(self, table: int, keys: pa.Array, places: np.ndarray, epoch: Inflight) -> StoredVersions:
        """Records of distinct `keys`, given in the order of the places they live in.

        Raises Fenced when one was written by a later epoch (R3).
        """
        ...

    def next_keys(
        self,
        place: int,
        table: int,
        ranges: Sequence[tuple[bytes, bytes]],
        left_out: frozenset[bytes],
        epoch: Inflight,
        *,
        reverse: bool,
    ) -> list[bytes | None]:
        """For each (prefix, start) the first key behind `start` (before it, in reverse) that begins with `prefix`.

        Of the records as of the epoch before, without those in `left_out`; None where there is none. Raises Fenced when it
        meets a record of a later epoch (R3).
        """
        ...

    def scan_prefixes(
        self, place: int, table: int, prefixes: Sequence[bytes], epoch: Inflight, *, rows_max: int | None = None
    ) -> Iterator[pa.RecordBatch]:
        """Records whose keys begin with one of the prefixes, as of the epoch before, prefix by prefix in key order.

        Batches of (prefix, key, row), `prefix` by its place in `prefixes`; about `rows_max` records of each at most. Raises
        Fenced when it meets a record of a later epoch (R3).
        """
        ...

    def has_records(self, place: int, table: int) -> bool:
        """Whether a table has any record in a place, tombstones included."""
        ...

    def scan_versions(
        self, place: int, table: int, epoch: int, void: tuple[int, ...], low: bytes = b"", high: bytes | None = None
    ) -> Iterator[pa.RecordBatch]:
        """Records with low < key <= high as of `epoch`, without void versions, as batches of (key, row)."""
        ...

    def record_borders(
        self, table: int, part: int, after: bytes, *, rows_max: int, bytes_max: int, pieces: int
    ) -> Borders:
        """As `Store.row_borders`, over the records of a place."""
        ...

    def count_records(self, table: int) -> int:
        """About how many records a table holds, tombstones included."""
        ...

    def write_versions(self, writes: Sequence[VersionWrite], epoch: Inflight) -> None:
        """Store version `epoch` of the records, place by place, all of one place or none.

        Raises Fenced unless each place is at the epoch (R1a). Versions that no reader at or above the epoch's floor needs
        go in the same step.
        """
        ...

    def fences(self) -> tuple[int, int]:
        """The oldest and the newest epoch that a place was last opened for."""
        ...

    def open_views(self) -> None:
        """Before a pipeline writes views: from here on a power loss may tear them."""
        ...

    def close_views(self, owner: str) -> None:
        """After a pipeline's last write: views are durable and known to be, unless another owns the epoch record by now."""
        ...

    def raise_fences(self, epoch: int) -> None:
        """From here on only this epoch, or a later one, writes any place."""
        ...

    def sync_views(self) -> None:
        """What was written to the view tables survives a power loss from here on (R10.5)."""
        ...


class Store(LogSource, VersionedTables, Protocol):
    """Everything the pipeline needs of a store."""

    @property
    def url(self) -> str: ...

    @property
    def incarnation(self) -> str:
        """Which store this is: one that is made anew or restored under the same URL has another."""
        ...

    @property
    def capabilities(self) -> Capabilities: ...

    def read_epoch_record(self) -> EpochRecord:
        """The epoch record as last swapped in."""
        ...

    def swap_epoch_record(self, expected_version: int, record: EpochRecord) -> bool:
        """Replace the record if its version is still the expected one; durable when it answers True."""
        ...

    def sync_epoch_record(self) -> None:
        """The epoch record as read survives a power loss from here on (R10.3)."""
        ...

    def read_catalog(self) -> dict:
        """The catalog's JSON; empty at first."""
        ...

    def scan_as_of(
        self, table: int, stream: Stream, position: Position, low: bytes = b"", high: bytes | None = None
    ) -> Iterator[pa.RecordBatch]:
        """The rows with low < key <= high of one stream's part of a base table as of `position`, as batches of (key, row).

        Only where the log has before-images.
        """
        ...

    def row_borders(
        self, table: int, part: int, after: bytes, *, rows_max: int, bytes_max: int, pieces: int
    ) -> Borders:
        """The next rows of a stream behind `after`, in about equal pieces.

        They end with the row with which `rows_max` or `bytes_max` is reached.
        """
        ...

    def count_rows(self, table: int) -> int:
        """About how many rows a base table holds."""
        ...

    def keep_plan(self, digest: str, plan: dict) -> None:
        """Store a plan, as JSON, before an epoch begins that runs it; others than that of an epoch in flight may go.

        Durable when this returns.
        """
        ...

    def read_plan(self, digest: str) -> dict:
        """A plan that was stored for the epoch in flight; CorruptStore when it is not there."""
        ...

    def swap_catalog(self, expected_version: int, catalog: dict) -> bool:
        """Replace the catalog if its version is still the expected one; durable when it answers True."""
        ...

    def clear_stale_readers(self) -> int:
        """Let go of what readers held that were killed; answers how many there were."""
        ...

    def drop_records(self, table: int) -> None:
        """Delete every record of a dropped view."""
        ...

    def drop_rows(self, table: int) -> None:
        """Delete every row of a dropped base table."""
        ...
