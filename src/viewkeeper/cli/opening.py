"""Opening: a database for a command, and the table or view that it names.

In: a store's URL, a name. Out: an open database, a table or a view. Always: no command but `sql`, `restore` and
`load --create` creates a store, so a mistyped URL creates nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from viewkeeper.errors import UnknownName
from viewkeeper.model.nearest import suggestion

if TYPE_CHECKING:
    from viewkeeper.client.database import Database
    from viewkeeper.client.tables import Table
    from viewkeeper.client.views import View
    from viewkeeper.model.schema import Column

_MAKE_ONE = 'viewkeeper sql URL "CREATE TABLE …" makes one'


def open_database(url: str, *, create: bool = False, read_only: bool = False) -> Database:
    """The database at `url`; StoreError if there is none and it may not be created."""
    from viewkeeper.client.database import Database
    from viewkeeper.stores.open import open_store

    return Database(open_store(url, create=create, read_only=read_only), read_only=read_only)


def find_named(database: Database, name: str) -> Table | View:
    """The table or view called `name`."""
    catalog = database.catalog()
    if any(table.name.lower() == name.lower() for table in catalog.tables):
        return database.table(name)
    if catalog.has(name):
        return database.view(name)
    names = [table.name for table in catalog.tables] + [view.name for view in catalog.views]
    raise UnknownName(f"there is no table or view {name}", suggestion(name, names, "there are") or _MAKE_ONE)


def key_columns(named: Table | View) -> Sequence[Column]:
    """The columns of the key of a table or view."""
    from viewkeeper.client.tables import Table

    return named.schema.key_columns if isinstance(named, Table) else named.definition.key


def shown_columns(named: Table | View) -> list[str]:
    """The names of the columns that a reader sees."""
    from viewkeeper.client.tables import Table

    if isinstance(named, Table):
        return [column.name for column in named.schema.columns]
    return [shown.column.name for shown in named.definition.shown]
