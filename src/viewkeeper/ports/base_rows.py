"""Base rows: the port to the rows that clients write.

In: groups of writes, keys and ranges of keys. Out: rows, and positions that cover the writes in the log. Always: a
group is atomic as far as `Capabilities.atomic_group` states; which node takes a row is up to the store.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import pyarrow as pa

from viewkeeper.model.positions import Positions, SplitPoints, Stream
from viewkeeper.model.schema import Foreign, TableSchema
from viewkeeper.model.stored_rows import Expected, Image, RowWrites


@dataclass(frozen=True, slots=True)
class Mapped:
    """A table of the store's users, as one of ours; `told` is what someone who maps it should know."""

    foreign: Foreign
    told: str


class HeldRows(Protocol):
    """The rows of all tables as they were when held, until `close`."""

    def scan_all(
        self, table: int, start: bytes, stop: bytes | None, *, reverse: bool = False
    ) -> Iterator[tuple[bytes, bytes]]:
        """(key, row) pairs with start <= key < stop, in key order."""
        ...

    def close(self) -> None: ...


class BaseTables(Protocol):
    """The rows that clients write."""

    def map_table(self, schema: TableSchema, using: str | None, options: Mapping[str, str]) -> Mapped | None:
        """What CREATE TABLE … USING … OPTIONS means of a table that is to be made; None: the store keeps its rows itself.

        InputError where the clause does not fit the store, or the store's table does not fit the columns.
        """
        ...

    def write(self, writes: Sequence[RowWrites], *, apart: bool = False) -> Positions:
        """One atomic group of writes, each applied after those before it; returns positions that cover them in the log.

        InputError where the rows cannot be one group: see `Capabilities.atomic_group`. With `apart` each row may be a
        group of its own; after an error any of them may have been written.
        """
        ...

    def write_if(self, writes: RowWrites, expected: Expected) -> Positions | None:
        """Write one row only if it is as expected at that moment; None when it is not.

        InputError where the store cannot compare so much at once.
        """
        ...

    def together(self, keys: Sequence[bytes], *, apart: bool = False) -> list[np.ndarray]:
        """Which of many rows one `write` takes, with the same `apart`: their indexes in `keys`, write by write."""
        ...

    def get(self, table: int, key: bytes) -> Image:
        """The row under a key as it is now."""
        ...

    def get_many(self, table: int, keys: Sequence[bytes]) -> list[Image]:
        """The row under each key."""
        ...

    def scan(
        self, table: int, start: bytes, stop: bytes | None, *, reverse: bool = False
    ) -> Iterator[tuple[bytes, bytes]]:
        """(key, row) pairs with start <= key < stop, in key order across nodes, all of one moment of each node."""
        ...

    def hold_rows(self) -> HeldRows:
        """The rows of all tables as they are now."""
        ...

    def moves_after(self, stamp: int) -> bool:
        """Whether rows have moved from one part to another since that instant; moves lie in the log, like changes."""
        ...

    def parts(self, table: int) -> Sequence[int]:
        """The parts that hold a base table's rows, each row in one."""
        ...

    def part_of(self, stream: Stream) -> int:
        """The part whose changes a stream holds; only where the log has before-images."""
        ...

    def scan_as_of(
        self, table: int, part: int, positions: Positions, low: bytes = b"", high: bytes | None = None
    ) -> Iterator[pa.RecordBatch]:
        """The rows with low < key <= high of a part of a base table as of `positions`, as batches of (key, row).

        Only where the log has before-images.
        """
        ...

    def row_borders(
        self, table: int, part: int, after: bytes, *, rows_max: int, bytes_max: int, pieces: int
    ) -> SplitPoints:
        """The next rows of a part after `after`, in about equal pieces.

        They end with the row that reaches `rows_max` or `bytes_max`.
        """
        ...

    def stage(self, table: TableSchema, *, rows_max: int) -> bool:
        """Copy about so many rows more of a foreign table, which were there before us, to the log; whether all of them are.

        Each row is copied once, whoever goes on with it; see `Foreign.staged`.
        """
        ...

    def count_rows(self, table: int) -> int:
        """The approximate number of rows of a base table."""
        ...

    def drop_rows(self, table: int) -> None:
        """Delete every row of a dropped base table."""
        ...
