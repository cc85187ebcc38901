"""Rows: put, delete, get, scan and changes.

In: a store's URL, names, and keys as typed. Out: tokens and rows on stdout. Always: tables and views are read alike; a
read mode, and waiting for a token, are for views.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from viewkeeper.cli.answers import Form, print_rows, print_tables
from viewkeeper.cli.jsonlines import print_json, to_json_text
from viewkeeper.cli.opening import find_named, key_columns, open_database, shown_columns
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


def put(url: str, name: str, arguments: Sequence[str]) -> None:
    """Write one row and print its token."""
    with open_database(url) as database:
        table = database.table(name)
        print(table.put(parse_put(table.schema, arguments)))


def delete(url: str, name: str, key: Sequence[str], columns: Sequence[str] | None) -> None:
    """Delete one row, or set some of its columns to NULL, and print the token."""
    with open_database(url) as database:
        table = database.table(name)
        print(table.delete(*parse_key(table.schema.key_columns, key), columns=columns))


def get(url: str, name: str, key: Sequence[str], freshness: Freshness, form: Form) -> bool:
    """Print the row under a key; returns whether there is one."""
    with open_database(url, read_only=True) as database:
        named = _find_to_read(database, name, freshness)
        row = named.get(*parse_key(key_columns(named), key))
    if row is not None and form is Form.TEXT:
        print_facts(row)  # neither this nor JSON waits for Arrow
    elif row is not None and form is Form.JSON:
        print_json(row)
    elif row is not None:
        print_rows(list(row), [tuple(row.values())], form)
    return row is not None


def scan(
    url: str,
    name: str,
    prefix: Sequence[str],
    *,
    start: Sequence[str],
    stop: Sequence[str],
    limit: int | None,
    reverse: bool,
    freshness: Freshness,
    form: Form,
) -> None:
    """Print rows in key order."""
    with open_database(url, read_only=True) as database:
        named = _find_to_read(database, name, freshness)
        columns = key_columns(named)
        rest = columns[len(prefix) :]
        tables = named.batches(
            *parse_key(columns, prefix),
            start=parse_key(rest, start) if start else None,
            stop=parse_key(rest, stop) if stop else None,
            limit=limit,
            reverse=reverse,
        )
        print_tables(shown_columns(named), tables, form)


def changes(url: str, name: str, since: int, form: Form) -> None:
    """Print what happened to the records of a view, and the epoch to go on from."""
    with open_database(url, read_only=True) as database:
        found = database.view(name).changes(since)
    if form is Form.JSON:
        for change in found:
            print_json(asdict(change))
        print_json({"epoch": found.epoch})
        return
    rows = ((c.epoch, to_json_text(c.key), _record(c.before), _record(c.after)) for c in found)
    print_rows(("epoch", "key", "before", "after"), rows, form)
    told = f"up to epoch {found.epoch}: --since {found.epoch} goes on from here"
    print_text(told, stderr=form is Form.CSV)


def _record(record: dict[str, object] | None) -> str | None:
    return None if record is None else to_json_text(record)


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
