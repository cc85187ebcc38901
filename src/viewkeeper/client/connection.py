"""The connection: an open store and its catalog, as tables, views and statements use them, and which state a read sees.

In: a store; a read mode. Out: its catalog, writes that are checked against it, and for a read a `ReadTimestamp`. Always:
any number of processes may have the same store open; the catalog is read again when its version has changed, and no row
of a dropped table is written. After reading, the read frontier is checked again; if the floor has passed the epoch the read
starts over (R4), so no result mixes states.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from typing import TYPE_CHECKING, Protocol, Self, TypeAlias, runtime_checkable
from weakref import WeakKeyDictionary

from viewkeeper.catalog.catalog import Catalog, ViewDefinition
from viewkeeper.client.arguments import take_seconds
from viewkeeper.coordinator.cas import swap_catalog
from viewkeeper.errors import InputError, StaleRead, UnknownName, ViewKeeperError
from viewkeeper.model.positions import Positions, Token
from viewkeeper.model.read_frontier import EPOCH_MAX, LATEST, SNAPSHOT, Bounded, ReadFrontier, ReadTimestamp
from viewkeeper.model.schema import TableSchema
from viewkeeper.model.stored_rows import Expected, Image, RowWrites

if TYPE_CHECKING:
    from viewkeeper.ports.store import Store


TIMEOUT_SECONDS = 10.0


@runtime_checkable
class Reaching(Protocol):
    """A reader with its own requirements on the state it reads: a session."""

    def reaches(self, frontier: ReadFrontier) -> bool: ...

    def saw(self, epoch: int) -> None: ...


ReadMode: TypeAlias = str | Bounded | Token | Reaching


def moment_of(store: Store, mode: ReadMode, timeout: float) -> ReadTimestamp:
    """The moment that a read in `mode` sees; waits for it if necessary."""
    if mode == SNAPSHOT:
        return _snapshot(store.read_frontier())
    if mode == LATEST:
        frontier = store.read_frontier()
        return ReadTimestamp(EPOCH_MAX, frontier.aborted, frontier)
    if isinstance(mode, Bounded):
        oldest = store.now() - int(mode.seconds * 1e9)  # counted from the start of the read

        def holds_older(frontier: ReadFrontier) -> bool:
            return frontier.stamp >= oldest or not store.describe(frontier.positions, store.ends()).has_changes

        return _wait(store, holds_older, timeout, f"within {mode.seconds} s")
    if isinstance(mode, Token):
        return _wait(store, lambda frontier: is_at(store, mode, frontier.positions), timeout, "at the token")
    if isinstance(mode, Reaching):
        moment = _wait(store, mode.reaches, timeout, "at the session's writes")
        mode.saw(moment.epoch)
        return moment
    raise InputError(
        f"read={mode!r} is not a read mode", 'use "snapshot", "latest", vk.Bounded(seconds=…), a token or a session'
    )


def take_token(given: object) -> Token:
    """A token, possibly given as text."""
    token = Token.parse(given) if isinstance(given, str) else given
    if not isinstance(token, Token):
        raise InputError(f"{given!r} is not a token", "pass what put, delete or put_many returned")
    return token


def wait_for(store: Store, token: Token, timeout: float, meanwhile: Callable[[], None] = lambda: None) -> None:
    """Return once the views include the token's writes; `meanwhile` is called with every look, and may raise."""

    def is_there(frontier: ReadFrontier) -> bool:
        meanwhile()
        return is_at(store, token, frontier.positions)

    _wait(store, is_there, timeout, "at the token")


def is_at(store: Store, token: Token, positions: Positions) -> bool:
    """Whether a state at `positions` includes the token's writes."""
    is_covered = token.is_covered_by(store.incarnation, positions)
    return is_covered or not store.describe(positions, token.positions).has_changes


def _snapshot(frontier: ReadFrontier) -> ReadTimestamp:
    return ReadTimestamp(frontier.committed, frontier.aborted, frontier)


def _wait(store: Store, is_there: Callable[[ReadFrontier], bool], timeout: float, goal: str) -> ReadTimestamp:
    deadline = time.monotonic() + take_seconds("timeout", timeout)
    while True:
        frontier = store.read_frontier()
        if is_there(frontier):
            return _snapshot(frontier)
        if time.monotonic() >= deadline:
            raise StaleRead(
                f"the views are not {goal} after {timeout:g} s (epoch {frontier.committed})",
                "is a pipeline running? Pass a longer timeout, or read a snapshot",
            )
        time.sleep(store.capabilities.poll_seconds)


class Closable(Protocol):
    """What must be closed before its store is."""

    def close(self) -> None: ...


class Connection:
    """An open store, until `close`."""

    def __init__(self, store: Store, *, read_only: bool) -> None:
        self._store = store
        self._opened: WeakKeyDictionary[Closable, None] = WeakKeyDictionary()  # from it, in this order
        self.read_only = read_only
        self._catalog: Catalog | None = None
        self._closed = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *error: object) -> None:
        try:
            self.close()
        except ViewKeeperError:
            if kind is None:  # else the block's own error is the one to be seen
                raise

    def close(self) -> None:
        """End its pipeline and close the store; what was made from this database can no longer be used."""
        if self._closed:
            return
        with ExitStack() as ends:
            ends.callback(self._store.close)
            ends.callback(setattr, self, "_closed", True)
            for one in list(self._opened):
                ends.callback(one.close)

    def ends_with_it(self, opened: Closable) -> None:
        """Have `close` close this too, before the store and before what was opened earlier."""
        self._opened[opened] = None

    @property
    def store(self) -> Store:
        if self._closed:
            raise InputError("the database is closed", "connect again")
        return self._store

    def catalog(self) -> Catalog:
        return self._catalog_at(self.store.read_frontier().catalog_version)

    def forget_catalog(self) -> None:
        """Read the catalog again at the next use."""
        self._catalog = None

    def change_catalog(self, change: Callable[[Catalog], Catalog]) -> Catalog:
        """Swap in the catalog that `change` returns; repeated while others swap theirs in between."""
        self.require_writable()
        self._catalog = swap_catalog(self.store, change)
        return self._catalog

    def view_as_of(self, definition: ViewDefinition, version: int) -> ViewDefinition | None:
        """The view, or its replacement, in catalog `version`; None if that is not current, UnknownName if it was dropped."""
        catalog = self._catalog_at(version)
        if catalog.version != version:
            return None
        for view in catalog.views:
            if definition.id in (view.id, *view.replaces):
                return view
        raise UnknownName(f"view {definition.name} was dropped")

    def current_table(self, schema: TableSchema) -> TableSchema:
        """The table as it is now, with the columns that were added since; UnknownName if it was dropped."""
        table = self.catalog().tables_by_id.get(schema.id)
        if table is None:
            raise UnknownName(f"table {schema.name} was dropped")
        return table

    def require_writable(self) -> None:
        if self.read_only:
            raise InputError("the database is open for reading only", "connect without read_only=True")

    def _catalog_at(self, version: int) -> Catalog:
        if self._catalog is None or self._catalog.version != version:
            self._catalog = Catalog.from_json(self.store.read_catalog())
        return self._catalog

    def write_rows(self, writes: Sequence[RowWrites], tables: Sequence[TableSchema], *, apart: bool = False) -> Token:
        """Write a group of rows, all or none unless `apart`; every base write goes through here or `write_row_if`."""
        self.require_writable()
        guarded = [self._guarded(writes[0], tables), *writes[1:]]
        return Token(self.store.incarnation, self.store.write(guarded, apart=apart))

    def write_row_if(self, writes: RowWrites, table: TableSchema, expected: Expected) -> Token | None:
        """Write a row if it is as expected; None when it is not."""
        self.require_writable()
        reached = self.store.write_if(self._guarded(writes, (table,)), expected)
        return None if reached is None else Token(self.store.incarnation, reached)

    def _guarded(self, writes: RowWrites, tables: Sequence[TableSchema]) -> RowWrites:
        """The same writes; whether the tables still exist is checked inside the transaction.

        Rows of a dropped table are removed in later transactions: one written after its removal would stay for good.
        """

        def merge(befores: list[Image]) -> list[Image]:
            for table in tables:
                self.current_table(table)
            return writes.merge(befores)

        return RowWrites(writes.table, writes.keys, merge, writes.repeats)

    def wait_for(self, token: Token | str, timeout: float = TIMEOUT_SECONDS) -> None:
        """Return once all views include the token's write; StaleRead after `timeout` seconds."""
        wait_for(self.store, take_token(token), timeout)
