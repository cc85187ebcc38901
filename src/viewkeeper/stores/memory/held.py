"""Held records: what some partitions or nodes hold, as it was when a reader began.

In: maps that never change. Out: chains of records, or rows, by key and in key order. Always: a reader holds back only
the memory of what it can see.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Mapping, Sequence

from viewkeeper.errors import InputError
from viewkeeper.stores.memory.node import NO_PAIRS
from viewkeeper.stores.memory.pairs import Pair
from viewkeeper.stores.memory.partition import State


class HeldTables:
    """The tables of partitions, or of nodes, with what indexed epochs wrote; `close` releases them."""

    def __init__(self, parts: Mapping[int, State]) -> None:
        self._parts = parts
        self._is_closed = False

    def get(self, partition: int, table: int, key: bytes) -> bytes | None:
        """The chain of one record."""
        return self._open()[partition][0].get(table, NO_PAIRS).get(key)

    def scan(
        self, partitions: Sequence[int], table: int, start: bytes, stop: bytes | None, *, reverse: bool = False
    ) -> Iterator[Pair]:
        """(key, chain) pairs with start <= key < stop, in key order across `partitions`."""
        held = self._open()
        tables = [held[partition][0].get(table, NO_PAIRS) for partition in partitions]
        walks = [pairs.walk(start, stop, reverse=reverse) for pairs in tables]
        return walks[0] if len(walks) == 1 else heapq.merge(*walks, reverse=reverse)

    def scan_all(self, table: int, start: bytes, stop: bytes | None, *, reverse: bool = False) -> Iterator[Pair]:
        """`scan` over all that is held."""
        return self.scan(tuple(self._parts), table, start, stop, reverse=reverse)

    def written_between(self, partitions: Sequence[int], table: int, since: int, epoch: int) -> list[Pair]:
        """(key, chain) of a view's records that the epochs after `since` up to `epoch` wrote, in key order."""
        held, found = self._open(), list[Pair]()
        for tables, written in (held[partition] for partition in partitions):
            keys = {key for at, by_table in written.items() if since < at <= epoch for key in by_table.get(table, ())}
            pairs = tables.get(table, NO_PAIRS)
            found += [(key, chain) for key in keys if (chain := pairs.get(key)) is not None]
        return sorted(found)

    def close(self) -> None:
        self._parts, self._is_closed = {}, True

    def _open(self) -> Mapping[int, State]:
        if self._is_closed:
            raise InputError("the snapshot is closed", "open another one")
        return self._parts
