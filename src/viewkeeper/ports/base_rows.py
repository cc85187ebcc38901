"""Base rows: the port to the rows that clients write.

In: groups of writes, keys and ranges of keys. Out: rows, and positions that cover the writes in the log. Always: a
group is atomic as far as `Capabilities.atomic_group` states; which node takes a row is up to the store.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from viewkeeper.errors import InvariantBroken, UnsupportedSql
from viewkeeper.model.positions import Positions, SplitPoints
from viewkeeper.model.schema import Foreign, TableSchema
from viewkeeper.model.stored_rows import Expected, Image, RowWrites

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa


@dataclass(frozen=True, slots=True)
class Mapped:
    """A table of the store's users, as one of ours; `told` is what someone who maps it should know."""

    foreign: Foreign
    told: str


class _Unexpected(Exception):
    """The row that was found is not the expected one."""


class HeldRows(Protocol):
    """The rows of all tables as they were when held, until `close`."""

    def scan_all(
        self, table: int, start: bytes, stop: bytes | None, *, reverse: bool = False
    ) -> Iterator[tuple[bytes, bytes]]:
        """(key, row) pairs with start <= key < stop, in key order."""
        ...

    def close(self) -> None: ...


class BaseTables(ABC):
    """The rows that clients write."""

    def map_table(self, schema: TableSchema, using: str | None, options: Mapping[str, str]) -> Mapped | None:
        """What CREATE TABLE … USING … means; None: the store keeps the rows itself. InputError where it does not fit."""
        if using is not None:
            hint = "leave it out; USING hbase is for a store at hbase://…"
            raise UnsupportedSql(f"USING {using} is not for tables of this store", hint)
        return None

    @abstractmethod
    def write(self, writes: Sequence[RowWrites], *, apart: bool = False) -> Positions:
        """One atomic group of writes, each applied after those before it; returns positions that cover them in the log.

        InputError where the rows cannot be one group: see `Capabilities.atomic_group`. With `apart` each row may be a
        group of its own; after an error any of them may have been written.
        """

    def write_if(self, writes: RowWrites, expected: Expected) -> Positions | None:
        """Write one row only if it is as expected then, None when not; InputError where it cannot compare so much at once."""

        def merge(befores: list[Image]) -> list[Image]:
            if not expected.is_met(befores[0]):
                raise _Unexpected
            return writes.merge(befores)

        try:
            return self.write([RowWrites(writes.table, writes.keys, merge)])
        except _Unexpected:
            return None

    @abstractmethod
    def together(self, keys: Sequence[bytes], *, apart: bool = False) -> list[np.ndarray]:
        """Which of many rows one `write` takes, with the same `apart`: their indexes in `keys`, write by write."""

    def get(self, table: int, key: bytes) -> Image:
        """The row under a key as it is now."""
        return self.get_many(table, [key])[0]

    @abstractmethod
    def get_many(self, table: int, keys: Sequence[bytes]) -> list[Image]:
        """The row under each key."""

    @abstractmethod
    def hold_rows(self) -> HeldRows:
        """The rows of all tables as they are now: of one moment of each node, where a group of writes is a node's."""

    def moves_after(self, stamp: int) -> bool:
        """Whether rows have moved from one part to another since that instant; moves lie in the log, like changes."""
        return False

    @abstractmethod
    def parts(self, table: int) -> Mapping[int, int]:
        """The parts of a base table and about how many rows each has; with before-images, a part is that of a stream."""

    def scan_as_of(
        self, table: int, part: int, positions: Positions, low: bytes = b"", high: bytes | None = None
    ) -> Iterator[pa.RecordBatch]:
        """The rows with low < key <= high of a part as of `positions`, as batches of (key, row); only with before-images."""
        raise InvariantBroken("this store's log has no before-images")

    @abstractmethod
    def row_borders(
        self, table: int, part: int, after: bytes, *, rows_max: int, bytes_max: int, pieces: int
    ) -> SplitPoints:
        """The next rows of a part after `after` in about equal pieces, up to the row that reaches one of the limits."""

    def stage(self, table: TableSchema, *, rows_max: int) -> bool:
        """Copy about so many older rows more of a foreign table to a chunk, each row once; whether all of them are copied.

        A store that maps tables has this and the next three: without them views would lack the rows that were there.
        """
        raise InvariantBroken("this store copies no rows of foreign tables")

    def staged(self) -> Mapping[str, int]:
        """The chunks that wait for an epoch, and the table of each."""
        return {}

    def read_staged(self, chunks: Sequence[str]) -> Iterator[tuple[int, pa.RecordBatch]]:
        """The copied rows as (table id, batch of CELLS_SCHEMA), as `read_log`; the same each time, until they are dropped."""
        raise InvariantBroken("this store copies no rows of foreign tables")

    def drop_staged(self, chunks: Sequence[str]) -> None:
        """Delete chunks that are committed; those that are gone already are no matter."""
        return None


def scan_rows(
    store: BaseTables, table: int, start: bytes, stop: bytes | None, *, reverse: bool = False
) -> Iterator[tuple[bytes, bytes]]:
    """(key, row) pairs with start <= key < stop, in key order across nodes, as they are now."""
    with closing(store.hold_rows()) as held:
        yield from held.scan_all(table, start, stop, reverse=reverse)
