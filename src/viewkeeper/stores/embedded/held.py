"""Held records: what some partitions or nodes hold, unchanged for as long as a reader needs it.

In: partitions, or nodes. Out: chains of records, or rows, by key and in key order. Always: LMDB's read transactions
keep them unchanged, so a scan may take any time once the horizon was checked after the opening; nothing is pinned in
the epoch record for it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING

import lmdb

from viewkeeper.stores.embedded import tree
from viewkeeper.stores.embedded.lmdb_errors import translate

if TYPE_CHECKING:
    import lmdb

    from viewkeeper.stores.embedded.node import Node
    from viewkeeper.stores.embedded.partition import Partition


class HeldViews:
    """Open read transactions over partitions, or over nodes for their rows; end them with `close`."""

    def __init__(self, partitions: Sequence[tuple[int, Partition | Node]]) -> None:
        self._partitions = dict(partitions)
        self._ends = ExitStack()
        self._transactions = {
            number: self._ends.enter_context(partition.snapshot()) for number, partition in partitions
        }

    def transaction(self, number: int) -> lmdb.Transaction:
        return self._transactions[number]

    def get(self, partition: int, table: int, key: bytes) -> bytes | None:
        """The chain of one record."""
        with self._told():
            return tree.get(self._transactions[partition], tree.table_prefix(table) + key)

    def scan(
        self, partitions: Sequence[int], table: int, start: bytes, stop: bytes | None, *, reverse: bool = False
    ) -> Iterator[tuple[bytes, bytes]]:
        """(key, chain) pairs with start <= key < stop, in key order across `partitions`."""
        transactions = [self._transactions[partition] for partition in partitions]
        with self._told():
            yield from tree.scan_table(transactions, table, start, stop, reverse=reverse)

    def written_between(
        self, partitions: Sequence[int], table: int, since: int, epoch: int
    ) -> list[tuple[bytes, bytes]]:
        """(key, chain) of a view's records that the epochs after `since` up to `epoch` wrote, in key order."""
        from viewkeeper.stores.embedded.partition import Partition

        found: list[tuple[bytes, bytes]] = []
        for number in partitions:
            partition = self._partitions[number]
            if isinstance(partition, Partition):
                found += partition.written_between(self._transactions[number], table, since, epoch)
        return sorted(found)

    def scan_all(
        self, table: int, start: bytes, stop: bytes | None, *, reverse: bool = False
    ) -> Iterator[tuple[bytes, bytes]]:
        """`scan` over all that is held."""
        return self.scan(tuple(self._transactions), table, start, stop, reverse=reverse)

    @contextmanager
    def _told(self) -> Iterator[None]:
        """Raise errors of LMDB as ours; which of several environments is damaged is not known here."""
        try:
            yield
        except lmdb.Error as error:
            store = next(iter(self._partitions.values())).environment.path.parent
            raise translate(error, store) from error

    def close(self) -> None:
        self._ends.close()
