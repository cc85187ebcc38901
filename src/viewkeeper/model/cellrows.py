"""Cell rows: rows as stores without transactions keep them, each column a cell with a stamp of its own.

In: writes of cells, from any stream, in any order, some of them twice. Out: what is known of each row, and the values that
a reader of the base would see. Always: merging is associative, commutative and idempotent, so the order and number of
merges do not matter. A put that is older than what hides it stays hidden, even if it was written later. Where a cell was
read anew, what was written before that does not count; what was written after it must not be merged with that first.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from viewkeeper.model.keyorder import order_of_keys
from viewkeeper.model.rowbatches import decode_rows, encode_rows
from viewkeeper.model.schema import Column
from viewkeeper.model.types import BIGINT, BINARY

PUT, HIDE = 0, 1  # a value; or: all values up to the stamp are deleted
READ, READ_NONE = 2, 3  # a value, or none, that was found when the cell was read: what was written before is not there
NEVER = np.iinfo(np.int64).min
_KEPT_BYTES_MAX = (10 << 20) - (128 << 10)  # of a row: HBase keeps a record in one cell, which takes 10 MiB


@dataclass(frozen=True, slots=True)
class CellRows:
    """What some writes say of rows: for each row and column the newest put, and up to which stamp puts are hidden.

    Of two puts with one stamp the one with the greater `order` is newer: its place in the store's log. Those with an order
    below `read` do not count.
    """

    values: tuple[pa.Array, ...]  # one for each column, NULL where there is no put, or one that is too large to be kept
    stamps: np.ndarray  # of the puts, by column and row
    orders: np.ndarray
    hidden: np.ndarray
    read: np.ndarray

    def __len__(self) -> int:
        return self.stamps.shape[1]

    @staticmethod
    def of_writes(columns: int, writes: pa.RecordBatch) -> CellRows:
        """One row for each write: (`column`, `kind`, `stamp`, `order`, `value`)."""
        column, kind, stamp, order = (np.asarray(writes[name]) for name in ("column", "kind", "stamp", "order"))
        here = column == np.arange(columns)[:, None]
        puts = here & np.isin(kind, (PUT, READ))
        places = np.arange(len(column))
        return CellRows(
            tuple(writes["value"].take(pa.array(places, mask=~row)) for row in puts),
            np.where(puts, stamp, NEVER),
            np.where(puts, order, NEVER),
            np.where(here & (kind == HIDE), stamp, NEVER),
            np.where(here & np.isin(kind, (READ, READ_NONE)), order, NEVER),
        )

    @staticmethod
    def decode(columns: int, rows: pa.Array) -> CellRows:
        """Of row bytes; NULL: nothing is known of the row."""
        arrays = decode_rows(state_columns(columns), rows)
        numbers = (
            np.stack([np.asarray(array.fill_null(NEVER)) for array in arrays[at * columns : (at + 1) * columns]])
            for at in (1, 2, 3, 4)
        )
        return CellRows(tuple(arrays[:columns]), *numbers)

    def encode(self) -> pa.Array:
        numbers = [*self.stamps, *self.orders, *self.hidden, *self.read]
        arrays = [*self.values, *(pa.array(row, mask=row == NEVER) for row in numbers)]
        return encode_rows(state_columns(len(self.values)), arrays, len(self))

    def take(self, chosen: np.ndarray) -> CellRows:
        at = pa.array(chosen)
        values = tuple(value.take(at) for value in self.values)
        numbers = (part[:, chosen] for part in (self.stamps, self.orders, self.hidden, self.read))
        return CellRows(values, *numbers)

    def merged(self, starts: np.ndarray, order: np.ndarray) -> CellRows:
        """The rows of each group as one: groups are the runs of `order` that begin at `starts`."""
        group = np.repeat(np.arange(len(starts)), np.diff(starts, append=len(order)))
        hidden, read = (np.maximum.reduceat(part[:, order], starts, axis=1) for part in (self.hidden, self.read))
        ordered = self.take(order).since(read[:, group])
        newest = [
            np.lexsort((orders, stamps, group))[_ends(starts, len(order))]
            for stamps, orders in zip(ordered.stamps, ordered.orders, strict=True)
        ]
        values = tuple(value.take(pa.array(at)) for value, at in zip(ordered.values, newest, strict=True))
        stamps, orders = (
            np.stack([row[at] for row, at in zip(rows, newest, strict=True)])
            for rows in (ordered.stamps, ordered.orders)
        )
        return CellRows(values, stamps, orders, hidden, read)

    def since(self, read: np.ndarray) -> CellRows:
        """Without the puts that were written before cells were read."""
        counts = self.orders >= read
        if counts.all():
            return self
        places = np.arange(len(self))
        values = tuple(value.take(pa.array(places, mask=~row)) for value, row in zip(self.values, counts, strict=True))
        stamps, orders = (np.where(counts, part, NEVER) for part in (self.stamps, self.orders))
        return CellRows(values, stamps, orders, self.hidden, self.read)

    def merged_with(self, other: CellRows) -> CellRows:
        """What both say of the same rows."""
        read = np.maximum(self.read, other.read)
        mine, others = self.since(read), other.since(read)
        later = (others.stamps > mine.stamps) | ((others.stamps == mine.stamps) & (others.orders > mine.orders))
        values = tuple(
            pc.if_else(pa.array(chosen), new, old)
            for chosen, new, old in zip(later, others.values, mine.values, strict=True)
        )
        stamps, orders = np.where(later, others.stamps, mine.stamps), np.where(later, others.orders, mine.orders)
        return CellRows(values, stamps, orders, np.maximum(self.hidden, other.hidden), read)

    def kept(self) -> CellRows:
        """The same, without the largest values of rows that are too large for a record; their stamps stay."""
        sizes = np.stack([np.asarray(pc.binary_length(value).fill_null(0)) for value in self.values])
        if (sizes.sum(axis=0) <= _KEPT_BYTES_MAX).all():
            return self
        order = np.argsort(sizes, axis=0, kind="stable")
        fits = np.empty(sizes.shape, bool)
        np.put_along_axis(
            fits, order, np.cumsum(np.take_along_axis(sizes, order, 0), axis=0) <= _KEPT_BYTES_MAX, axis=0
        )
        values = tuple(
            pc.if_else(pa.array(row), value, pa.scalar(None, value.type))
            for row, value in zip(fits, self.values, strict=True)
        )
        return CellRows(values, self.stamps, self.orders, self.hidden, self.read)

    @property
    def too_large(self) -> np.ndarray:
        """By column and row, the values that a reader of the base sees and that are not kept."""
        shown = self.stamps > self.hidden
        return shown & np.stack([np.asarray(value.is_null()) for value in self.values])

    @property
    def seen(self) -> tuple[pa.Array, ...]:
        """The values of each column that a reader sees; NULL where there is none."""
        shown = self.stamps > self.hidden
        return tuple(
            value.take(pa.array(np.arange(len(self)), mask=~row)) for value, row in zip(self.values, shown, strict=True)
        )


def state_columns(columns: int) -> tuple[Column, ...]:
    """The columns in which what is known of a row is stored."""
    numbers = [Column(f"{name}{i}", BIGINT) for name in ("stamp", "order", "hidden", "read") for i in range(columns)]
    return (*(Column(f"value{i}", BINARY) for i in range(columns)), *numbers)


def merge_by_key(keys: pa.Array, rows: CellRows, groups: np.ndarray) -> tuple[np.ndarray, CellRows]:
    """The index of one row for each key, by `groups` and then by key; and what all rows of that key say together."""
    order, starts = order_of_keys(keys, groups=groups)
    return order[starts], rows.take(order) if len(starts) == len(order) else rows.merged(starts, order)


def _ends(starts: np.ndarray, count: int) -> np.ndarray:
    return np.append(starts[1:], count) - 1
