"""Rows: put, delete, get, scan and changes.

In: a store's URL, names, and keys as typed. Out: tokens and rows on stdout. Always: tables and views are read alike; a
read mode, and waiting for a token, are for views.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Annotated

import typer

from viewkeeper.cli.answers import Form, form_of, print_rows, print_tables
from viewkeeper.cli.failures import NO_ROW, print_error
from viewkeeper.cli.jsonlines import print_json, record_text, to_json_text
from viewkeeper.cli.opening import find_named, key_columns, open_database, shown_columns
from viewkeeper.cli.options import After, Csv, Json, Name, Read, TableName, Timeout, Url, Within
from viewkeeper.cli.output import print_facts, print_text
from viewkeeper.cli.values import parse_key, parse_put
from viewkeeper.errors import InputError
from viewkeeper.model.reads import Bounded

if TYPE_CHECKING:
    from viewkeeper.client.database import Database
    from viewkeeper.client.tables import Table
    from viewkeeper.client.views import View


@dataclass(frozen=True, slots=True)
class Freshness:
    """Which state of a view a user wants to see, and how long to wait for it."""

    read: str | None
    after: str | None
    within: float | None
    timeout: float

    @property
    def is_asked_for(self) -> bool:
        return bool(self.read or self.after or self.within is not None)


def put(
    url: Url,
    table: TableName,
    row: Annotated[
        list[str],
        typer.Argument(metavar="KEY|COL=VALUE", help="The key, then the columns to write.", show_default=False),
    ],
) -> None:
    """Write some columns of a row and print the token of the write.

    `put URL orders o1 region=eu amount=30` and `put URL orders '{"id": "o1", "region": "eu", "amount": 30}'` do the
    same. Columns left out keep their value. `col:=null` is NULL: what follows `:=` is JSON.
    """
    with open_database(url) as database:
        target = database.table(table)
        print(target.put(parse_put(target.schema, row)))


def delete(
    url: Url,
    table: TableName,
    key: Annotated[list[str], typer.Argument(metavar="KEY", help="A value for each key column.", show_default=False)],
    column: Annotated[
        list[str] | None, typer.Option(metavar="COL", help="Set this column to NULL instead; again for the next.")
    ] = None,
) -> None:
    """Delete the row under a key and print the token of the write. A missing row is not an error."""
    with open_database(url) as database:
        target = database.table(table)
        print(target.delete(*parse_key(target.schema.key_columns, key), columns=column))


def get(
    url: Url,
    name: Name,
    key: Annotated[
        list[str] | None, typer.Argument(metavar="KEY", help="A value for each key column.", show_default=False)
    ] = None,
    read: Read = None,
    after: After = None,
    within: Within = None,
    timeout: Timeout = 10.0,
    json: Json = False,
    csv: Csv = False,
) -> None:
    """Print the row under a key. Exit code 3 when there is none."""
    form, freshness = form_of(json=json, csv=csv), Freshness(read, after, within, timeout)
    with open_database(url, read_only=True) as database:
        named = _find_to_read(database, name, freshness)
        row = named.get(*parse_key(key_columns(named), key or []))
    if row is None:
        print_error(f"{name} has no row ({', '.join(key or [])})")
        raise typer.Exit(NO_ROW)
    if form is Form.TEXT:
        print_facts(row)  # neither this nor JSON waits for Arrow
    elif form is Form.JSON:
        print_json(row)
    else:
        print_rows(list(row), [tuple(row.values())], form)


def scan(
    url: Url,
    name: Name,
    prefix: Annotated[
        list[str] | None, typer.Argument(metavar="PREFIX", help="The key's first columns.", show_default=False)
    ] = None,
    start: Annotated[
        list[str] | None,
        typer.Option(metavar="VALUE", help="First value of the key column after the prefix; again for the next."),
    ] = None,
    stop: Annotated[list[str] | None, typer.Option(metavar="VALUE", help="As `--start`; not included.")] = None,
    limit: Annotated[int | None, typer.Option(metavar="N", min=0, help="At most so many rows.")] = None,
    reverse: Annotated[bool, typer.Option("--reverse", help="From the last key to the first.")] = False,
    read: Read = None,
    after: After = None,
    within: Within = None,
    timeout: Timeout = 10.0,
    json: Json = False,
    csv: Csv = False,
) -> None:
    """Print rows in key order: all, or those whose key begins with the prefix."""
    form = form_of(json=json, csv=csv)
    with open_database(url, read_only=True) as database:
        named = _find_to_read(database, name, Freshness(read, after, within, timeout))
        columns, first = key_columns(named), prefix or []
        rest = columns[len(first) :]
        tables = named.batches(
            *parse_key(columns, first),
            start=parse_key(rest, start) if start else None,
            stop=parse_key(rest, stop) if stop else None,
            limit=limit,
            reverse=reverse,
        )
        print_tables(shown_columns(named), tables, form)


def changes(
    url: Url,
    view: Annotated[str, typer.Argument(metavar="VIEW", help="A view or an index.", show_default=False)],
    since: Annotated[int, typer.Option(metavar="EPOCH", help="The epoch that you have read.", show_default=False)],
    json: Json = False,
    csv: Csv = False,
) -> None:
    """Print what each epoch after `--since` did to the records of a view, and the epoch to pass the next time.

    Only the last epochs are kept, or as many as `keep` sets; exit code 5 means that some changes are lost and the view
    must be scanned. `status` prints the current epoch. With `--json` the last line is `{"epoch": …}`.
    """
    form = form_of(json=json, csv=csv)
    with open_database(url, read_only=True) as database:
        found = database.view(view).changes(since)
    if form is Form.JSON:
        for change in found:
            print_json(asdict(change))
        print_json({"epoch": found.epoch})
        return
    rows = ((c.epoch, to_json_text(c.key), record_text(c.before), record_text(c.after)) for c in found)
    print_rows(("epoch", "key", "before", "after"), rows, form)
    told = f"up to epoch {found.epoch}: --since {found.epoch} goes on from here"
    print_text(told, stderr=form is Form.CSV)


def _find_to_read(database: Database, name: str, freshness: Freshness) -> Table | View:
    """The table or view called `name`, in the requested read mode, once it holds the requested write."""
    from viewkeeper.client.reading import moment_of
    from viewkeeper.client.tables import Table

    named = find_named(database, name)
    if isinstance(named, Table):
        if freshness.is_asked_for:
            hint = "--read, --after and --within are for views"
            raise InputError(f"{named.name} is a table and always read as it is", hint)
        return named
    if freshness.after:
        database.wait_for(freshness.after, freshness.timeout)
    if freshness.within is not None:
        moment_of(database.store, Bounded(freshness.within), freshness.timeout)  # what is read below is no older
    return named.in_mode(str(freshness.read)) if freshness.read else named
