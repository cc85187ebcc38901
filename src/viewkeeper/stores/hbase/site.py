"""A site: what all parts of an open store in HBase share.

In: an address. Out: requests to the HBase tables of a store's tables. Always: a table that was never made has no records,
and neither has one that was dropped, whoever dropped it.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from viewkeeper.stores.hbase.address import Address
from viewkeeper.stores.hbase.connections import Connections, Refused
from viewkeeper.stores.hbase.metarow import MetaRows
from viewkeeper.stores.hbase.tables import Tables

_AT_ONCE = 3  # requests to each Thrift server: while one is done there, another is made here
_FEW = 4  # requests: these are made one after the other, and leave HBase to those who write base rows
_LOW = 10  # the nice value of one who does so with any number of requests


class Site:
    """The connections of an open store, its facts and its tables."""

    def __init__(self, address: Address, connections: Connections, incarnation: str, partitions: int) -> None:
        self.address = address
        self.connections = connections
        self.incarnation = incarnation
        self.partitions = partitions
        self.rows = MetaRows(connections, address.namespace)
        self.tables = Tables(connections, self.rows, address.namespace, partitions)

    def ask(
        self,
        table: int,
        request: str,
        *arguments: object,
        absent: Any = None,
        before: Callable[[], object] | None = None,
    ) -> Any:
        """The reply to a request to a table's HBase table, repeated if need be; `absent` where there is none."""
        found = self.ask_behind((), table, request, *arguments, before=before)
        return absent if found is None else found[0]

    def ask_behind(
        self,
        ahead: Sequence[tuple[Any, ...]],
        table: int,
        request: str,
        *arguments: object,
        before: Callable[[], object] | None = None,
    ) -> list[Any] | None:
        """The replies to other requests and to one to a table's HBase table, which is begun when those are done."""
        name = self.tables.name_of(table)
        if name is None:
            return None
        attempts = 0

        def look() -> None:
            nonlocal attempts
            attempts += 1
            if attempts > 1 and self.tables.is_dropped(table):
                raise _Dropped
            if before is not None:
                before()

        try:
            return self.connections.ask_in_turn(*ahead, (request, name, *arguments), before=look)
        except _Dropped:
            return None
        except Refused:
            if self.tables.is_dropped(table):
                return None
            raise

    def ask_each(
        self,
        table: int,
        request: str,
        batches: Iterable[Any],
        *,
        make: Callable[[Any], Any] = lambda batch: batch,
        absent: Any = None,
        before: Callable[[], object] | None = None,
    ) -> list[Any]:
        """The replies to a request for each of the batches, some of them under way at a time, over all Thrift servers.

        `make` makes the request's argument of a batch when it is sent: structs by the ten thousand would keep Python's
        garbage collector busier than the work itself.
        """

        def ask(batch: Any) -> Any:
            return self.ask(table, request, make(batch), absent=absent, before=before)

        waiting = list(batches)
        if len(waiting) <= _FEW or os.getpriority(os.PRIO_PROCESS, 0) >= _LOW:
            return [ask(batch) for batch in waiting]
        with ThreadPoolExecutor(min(len(waiting), _AT_ONCE * len(self.address.servers))) as pool:
            return list(pool.map(ask, waiting))


class _Dropped(Exception):
    """The table was dropped by another process, as its first failure showed."""
