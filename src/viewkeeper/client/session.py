"""Sessions and snapshots: several reads that belong together.

In: an open database. Out: tables and views bound to the session or to one epoch. Always: a session's view reads include
its own writes and never go back in time; a snapshot's reads all see the same epoch, for as long as it is open.
"""

from __future__ import annotations

from collections.abc import Iterator

from viewkeeper.catalog.catalog import Catalog
from viewkeeper.client.connection import Connection, is_at, moment_of
from viewkeeper.client.tables import Table
from viewkeeper.client.views import View
from viewkeeper.errors import InputError
from viewkeeper.model.positions import Token
from viewkeeper.model.read_frontier import SNAPSHOT, ReadFrontier, ReadTimestamp
from viewkeeper.ports.records import Stored


class Session:
    """Read your writes, and monotonic reads; also a read mode of its own: `view.get(key, read=session)`."""

    def __init__(self, database: Connection) -> None:
        self._database = database
        self.token = Token(database.store.incarnation)
        self._epoch = 0

    def __enter__(self) -> Session:
        return self

    def __exit__(self, *error: object) -> None:
        pass

    def table(self, name: str) -> Table:
        """A table whose writes this session's view reads wait for."""
        table = Table(self._database, self._database.catalog().table(name))
        table._written = self.wrote
        return table

    def view(self, name: str) -> View:
        return View(self._database, self._database.catalog().view(name)).in_mode(self)

    def wrote(self, token: Token) -> None:
        """Add the token of a write to the session."""
        if not isinstance(token, Token):
            raise InputError(f"{token!r} is not a token", "pass what put, delete or put_many returned")
        self.token |= token

    def reaches(self, frontier: ReadFrontier) -> bool:
        """Whether a committed state holds all that this session wrote and saw."""
        return frontier.committed >= self._epoch and is_at(self._database.store, self.token, frontier.positions)

    def saw(self, epoch: int) -> None:
        self._epoch = max(self._epoch, epoch)


class Snapshot:
    """One committed epoch of all views, held until closed; `catalog` defines these views."""

    def __init__(self, database: Connection) -> None:
        self._database = database
        store = database.store
        while True:
            moment = moment_of(store, SNAPSHOT, 0)
            self._held = store.hold(moment, range(store.partitions))
            self.catalog: Catalog = database.catalog()
            now = store.read_frontier()
            versions = {self.catalog.version, moment.frontier.catalog_version, now.catalog_version}
            if now.floor <= moment.epoch and len(versions) == 1 and now.anew == moment.frontier.anew:
                self._moment: ReadTimestamp = moment.kept_from(now.floor)
                break
            self._held.close()

    @property
    def epoch(self) -> int:
        return self._moment.epoch

    @property
    def frontier(self) -> ReadFrontier:
        return self._moment.frontier

    def view(self, name: str) -> View:
        return View(self._database, self.catalog.view(name), (self._held, self._moment))

    def keys_of(self, table: int) -> Iterator[bytes]:
        return (key for key, _ in self.pairs_of(table))

    def pairs_of(self, table: int) -> Iterator[tuple[bytes, bytes]]:
        """Keys and rows of the records of an auxiliary table, in order."""
        return self._held.scan(range(self._database.store.partitions), table, b"", None)

    def stored(self, partition: int, table: int, last: int) -> Iterator[Stored]:
        """All records of one partition, and apart from them those of no epoch up to `last` (`ports/records.py`)."""
        return self._held.stored(partition, table, last)

    def keep(self) -> Snapshot:
        """Have the store keep the epoch until `close`, where it would give it up."""
        self._held.keep()
        return self

    def close(self) -> None:
        self._held.close()

    def __enter__(self) -> Snapshot:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()
