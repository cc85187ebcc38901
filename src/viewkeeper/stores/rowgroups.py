"""Groups of base writes: which node takes a row, what may be one group, and conditional writes.

In: keys and writes. Out: a node, or groups of keys. Always: a row has one node, by the slot of its key; a condition is
tested inside the transaction that writes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from viewkeeper.errors import RowsApart, UnsupportedSql
from viewkeeper.model.positions import Positions
from viewkeeper.model.writes import Expected, Image, RowWrites
from viewkeeper.stores.placement import SLOTS, Placement, listed, slots_of

if TYPE_CHECKING:
    import numpy as np


def node_of_group(writes: Sequence[RowWrites], placement: Placement) -> tuple[int, int | None]:
    """The node of all rows of a group, and their slots if they were looked at; RowsApart when they have several."""
    if placement.only is not None:
        return placement.only, None
    slots = slots_of(key for write in writes for key in write.keys)
    found = {placement.slots[slot] for slot in listed(slots)}
    if len(found) > 1:
        raise RowsApart("a group of writes touches rows of several nodes", "write rows of one node at a time")
    return (found.pop() if found else placement.slots[0]), slots


def by_node(keys: Sequence[bytes], placement: Placement) -> list[np.ndarray]:
    """The keys of each node, by their indexes in `keys`; nodes without a key are left out."""
    import numpy as np
    import pyarrow as pa

    from viewkeeper.model.keybatches import hash_all
    from viewkeeper.model.ragged import Ragged

    if placement.only is not None:
        return [np.arange(len(keys))]
    placed = np.array(placement.slots)[hash_all(Ragged.from_arrow(pa.array(keys, pa.binary()))) % SLOTS]
    return [np.flatnonzero(placed == node) for node in np.unique(placed)]


def refuse_mapping(using: str | None) -> None:
    """Raise where a table is to be mapped, in a store that keeps all rows itself."""
    if using is not None:
        raise UnsupportedSql(
            f"USING {using} is not for tables of this store", "leave it out; USING hbase is for a store at hbase://…"
        )


class _Unexpected(Exception):
    """The row that was found is not the expected one."""


def write_if(
    write: Callable[[Sequence[RowWrites]], Positions], writes: RowWrites, expected: Expected
) -> Positions | None:
    """Write only if the row found is as expected."""

    def merge(befores: list[Image]) -> list[Image]:
        if not expected.is_met(befores[0]):
            raise _Unexpected
        return writes.merge(befores)

    try:
        return write([RowWrites(writes.table, writes.keys, merge)])
    except _Unexpected:
        return None
