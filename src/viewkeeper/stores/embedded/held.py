"""Held records: what some places or nodes hold, kept as it is for as long as a reader needs it.

In: places, or nodes. Out: chains of records, or rows, by key and in key order. Always: LMDB's read transactions hold them
still, so a scan may take any time once the horizon was checked behind the opening; nothing is pinned in the epoch record
for it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from typing import TYPE_CHECKING

from viewkeeper.stores.embedded import tree

if TYPE_CHECKING:
    from viewkeeper.stores.embedded.node import Node
    from viewkeeper.stores.embedded.place import Place


class HeldViews:
    """Open read transactions over places, or over nodes for their rows; end them with `close`."""

    def __init__(self, places: Sequence[tuple[int, Place | Node]]) -> None:
        self._places = dict(places)
        self._ends = ExitStack()
        self._transactions = {number: self._ends.enter_context(place.snapshot()) for number, place in places}

    def get(self, place: int, table: int, key: bytes) -> bytes | None:
        """The chain of one record."""
        return tree.get(self._transactions[place], tree.table_prefix(table) + key)

    def scan(
        self, places: Sequence[int], table: int, start: bytes, stop: bytes | None, *, reverse: bool = False
    ) -> Iterator[tuple[bytes, bytes]]:
        """(key, chain) pairs with start <= key < stop, in key order across `places`."""
        transactions = [self._transactions[place] for place in places]
        return tree.scan_table(transactions, table, start, stop, reverse=reverse)

    def written_between(self, places: Sequence[int], table: int, since: int, epoch: int) -> list[tuple[bytes, bytes]]:
        """(key, chain) of the records of a view that the epochs behind `since` up to `epoch` wrote, in key order."""
        from viewkeeper.stores.embedded.place import Place

        found: list[tuple[bytes, bytes]] = []
        for number in places:
            place = self._places[number]
            if isinstance(place, Place):
                found += place.written_between(self._transactions[number], table, since, epoch)
        return sorted(found)

    def scan_all(self, table: int, start: bytes, stop: bytes | None) -> Iterator[tuple[bytes, bytes]]:
        """`scan` over all that is held."""
        return self.scan(tuple(self._transactions), table, start, stop)

    def close(self) -> None:
        self._ends.close()
