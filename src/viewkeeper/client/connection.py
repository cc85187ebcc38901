"""The connection: an open store and its catalog, as tables, views and statements use them.

In: a store. Out: its catalog, and writes that are checked against it. Always: any number of processes may have the same
store open; the catalog is read again when its version has changed, and no row of a dropped table is written.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from typing import TYPE_CHECKING, Protocol, Self
from weakref import WeakKeyDictionary

from viewkeeper.catalog.catalog import Catalog, ViewDefinition
from viewkeeper.client.reading import TIMEOUT_SECONDS, take_token, wait_for
from viewkeeper.coordinator.swaps import swap_catalog
from viewkeeper.errors import InputError, UnknownName, ViewKeeperError
from viewkeeper.model.schema import TableSchema
from viewkeeper.model.token import Token
from viewkeeper.model.writes import Expected, Image, RowWrites

if TYPE_CHECKING:
    from viewkeeper.ports.store import Store


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
            ends.callback(self._close_store)
            for one in list(self._opened):
                ends.callback(one.close)

    def _close_store(self) -> None:
        self._closed = True
        self._store.close()

    def ends_with_it(self, opened: Closable) -> None:
        """Have `close` close this too, before the store and before what was opened earlier."""
        self._opened[opened] = None

    @property
    def store(self) -> Store:
        """The store of the database."""
        if self._closed:
            raise InputError("the database is closed", "connect again")
        return self._store

    def catalog(self) -> Catalog:
        """The tables and views as they are now."""
        return self._catalog_at(self.store.read_horizon().catalog_version)

    def forget_catalog(self) -> None:
        """Read the catalog again at the next use."""
        self._catalog = None

    def change_catalog(self, change: Callable[[Catalog], Catalog]) -> Catalog:
        """Swap in the catalog that `change` returns; repeated while others swap theirs in between."""
        self.require_writable()
        self._catalog = swap_catalog(self.store, change)
        return self._catalog

    def view_as_of(self, definition: ViewDefinition, version: int) -> ViewDefinition | None:
        """The view as of catalog `version`: the same, or its replacement, unless it was dropped.

        None when that catalog is no longer the current one.
        """
        catalog = self._catalog_at(version)
        if catalog.version != version:
            return None
        for view in catalog.views:
            if definition.id in (view.id, *view.replaces):
                return view
        raise UnknownName(f"view {definition.name} was dropped")

    def current_table(self, schema: TableSchema) -> TableSchema:
        """The table as of now: the same, unless columns were added or it was dropped."""
        table = self.catalog().tables_by_id.get(schema.id)
        if table is None:
            raise UnknownName(f"table {schema.name} was dropped")
        return table

    def require_writable(self) -> None:
        """Raise unless this database may write."""
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

        Rows of a dropped table are removed in later transactions, so none is written after the removal and stays for
        good.
        """

        def merge(befores: list[Image]) -> list[Image]:
            for table in tables:
                self.current_table(table)
            return writes.merge(befores)

        return RowWrites(writes.table, writes.keys, merge, writes.repeats)

    def wait_for(self, token: Token | str, timeout: float = TIMEOUT_SECONDS) -> None:
        """Return once all views include the token's write; StaleRead after `timeout` seconds."""
        wait_for(self.store, take_token(token), timeout)
