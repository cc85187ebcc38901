"""Options: what several commands are given, and how they open a store and find what is named in it.

In: what is typed. Out: typer's declarations, a form, an open database, a table or a view. Always: the same words mean the
same in every command; no command but `sql`, `restore` and `load --create` creates a store, so a mistyped URL creates nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from viewkeeper.errors import InputError, UnknownName
from viewkeeper.model.wording import suggestion

if TYPE_CHECKING:
    from viewkeeper.client.database import Database
    from viewkeeper.client.tables import Table
    from viewkeeper.client.views import View
    from viewkeeper.model.schema import Column


class Form(StrEnum):
    """How rows are printed. TEXT is a table or, on a terminal too narrow for it, EXPANDED: a line for each value."""

    TEXT = "text"
    TABLE = "table"
    EXPANDED = "expanded"
    JSON = "json"
    CSV = "csv"


Url = Annotated[str, typer.Argument(metavar="URL", help="The store, as in `embedded:./shop`.", show_default=False)]
Name = Annotated[str, typer.Argument(metavar="NAME", help="A table, a view or an index.", show_default=False)]
Json = Annotated[bool, typer.Option("--json", help="Print JSON, one line for each row.")]
Csv = Annotated[
    bool, typer.Option("--csv", help='Print CSV with a first line of names; NULL is nothing, `""` the empty text.')
]
Read = Annotated[
    Literal["snapshot", "latest"] | None,
    typer.Option(help="For views: one committed epoch (`snapshot`), or the newest of each record (`latest`)."),
]
Within = Annotated[
    float | None,
    typer.Option(metavar="SECONDS", min=0, help="For views: wait first until no change older than that is missing."),
]
After = Annotated[
    str | None,
    typer.Option(metavar="TOKEN", help="For views: wait first until they hold the write that printed this token."),
]
Timeout = Annotated[float, typer.Option(metavar="SECONDS", min=0, help="How long `--after` and `--within` wait.")]
Views = Annotated[
    list[str] | None, typer.Argument(metavar="VIEW", help="Views; all when left out.", show_default=False)
]
JsonObject = Annotated[bool, typer.Option("--json", help="Print one JSON object.")]
TableName = Annotated[str, typer.Argument(metavar="TABLE", help="A table.", show_default=False)]


def form_of(*, json: bool, csv: bool) -> Form:
    if json and csv:
        raise InputError("rows are printed as JSON or as CSV, not both", "leave one of them out")
    return Form.JSON if json else Form.CSV if csv else Form.TEXT


def read_bounds(text: str) -> tuple[int, int]:
    """A number of view managers, `2`, or the least and the most of them, `1..4`."""
    least, dots, most = text.partition("..")
    if not (least.isdecimal() and (most.isdecimal() if dots else True)):
        raise InputError(f"{text} is not a number of view managers", "as in 2, or 1..4")
    bounds = int(least), int(most if dots else least)
    if not 1 <= bounds[0] <= bounds[1]:
        raise InputError(f"{text} is not a number of view managers", "1 or more, and the least first, as in 1..4")
    return bounds


def open_database(url: str, *, create: bool = False, read_only: bool = False) -> Database:
    """The database at `url`; StoreError if there is none and it may not be created."""
    from viewkeeper.client.database import Database
    from viewkeeper.stores.open import open_store

    return Database(open_store(url, create=create, read_only=read_only), read_only=read_only)


def find_named(database: Database, name: str) -> Table | View:
    catalog = database.catalog()
    if any(table.name.lower() == name.lower() for table in catalog.tables):
        return database.table(name)
    if catalog.has(name):
        return database.view(name)
    names = [table.name for table in catalog.tables] + [view.name for view in catalog.views]
    hint = 'viewkeeper sql URL "CREATE TABLE …" makes one'
    raise UnknownName(f"there is no table or view {name}", suggestion(name, names, "there are") or hint)


def key_columns(named: Table | View) -> Sequence[Column]:
    from viewkeeper.client.tables import Table

    return named.schema.key_columns if isinstance(named, Table) else named.definition.key


def shown_columns(named: Table | View) -> list[str]:
    from viewkeeper.client.tables import Table

    if isinstance(named, Table):
        return [column.name for column in named.schema.columns]
    return [shown.column.name for shown in named.definition.shown]
