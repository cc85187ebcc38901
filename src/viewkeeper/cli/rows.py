"""Rows: put, delete, load, get, scan and changes.

In: a store's URL, names, keys and values as typed, and files. Out: tokens and rows on stdout. Always: tables and views are
read alike; a read mode, and waiting for a token, are for views. Only `load --create` creates a store, and only once the
files are known to fit.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from viewkeeper.cli.display import bar
from viewkeeper.cli.exit_codes import NO_ROW, Interrupted, print_error
from viewkeeper.cli.formats import parse_key, parse_put, record_text, to_json_text
from viewkeeper.cli.options import (
    After,
    Csv,
    Form,
    Json,
    JsonObject,
    Name,
    Read,
    TableName,
    Timeout,
    Url,
    Within,
    find_named,
    form_of,
    key_columns,
    open_database,
    shown_columns,
)
from viewkeeper.cli.terminal import print_facts, print_json, print_label, print_text
from viewkeeper.errors import InputError, StoreError
from viewkeeper.model.read_frontier import Bounded
from viewkeeper.model.wording import counted

if TYPE_CHECKING:
    from viewkeeper.client.database import Database
    from viewkeeper.client.tables import Table
    from viewkeeper.client.views import View
    from viewkeeper.load.loading import Load, Loaded


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


def load(
    url: Url,
    table: TableName,
    files: Annotated[
        list[str], typer.Argument(metavar="FILE", help="Files; `-` is the input, with `--format`.", show_default=False)
    ],
    create: Annotated[bool, typer.Option("--create", help="Make the table, with types that fit the files.")] = False,
    key: Annotated[str | None, typer.Option(metavar="COL[,COL]", help="For `--create`: the key columns.")] = None,
    format: Annotated[
        str | None, typer.Option(metavar="FORMAT", help="`csv`, `tsv`, `jsonl` or `parquet`, whatever the suffix.")
    ] = None,
    delimiter: Annotated[str | None, typer.Option(metavar="CHAR", help="Of CSV, if the first line misleads.")] = None,
    null: Annotated[
        str | None,
        typer.Option(metavar="TEXT", help="What stands for NULL in CSV, unquoted; else it is nothing at all."),
    ] = None,
    guess_null: Annotated[
        bool,
        typer.Option("--guess-null", help="Read NA, NULL and \\\\N as NULL, if they stand among numbers or dates."),
    ] = False,
    last_wins: Annotated[
        bool, typer.Option("--last-wins", help="With `--create`: of rows with the same key keep the last.")
    ] = False,
    ignore_unknown: Annotated[
        bool, typer.Option("--ignore-unknown", help="Leave out columns that the table has not.")
    ] = False,
    json: JsonObject = False,
) -> None:
    """Put the rows of CSV, TSV, JSON or Parquet files; text also as `.gz`, any single file also in a `.zip`.

    Every value of all files is checked first, and nothing is written if one does not fit. Columns are matched by name;
    those that the files lack keep their value. Of rows with the same key the last one stays, and the number of replaced
    rows is printed. With `--create` keys must be unique, unless `--last-wins` is given; the store is created too, if it
    does not exist. The same command resumes a load that was interrupted.
    """
    from viewkeeper.load.files import Reading
    from viewkeeper.load.loading import open_load, require_sensible, require_target

    names = tuple(name.strip() for name in key.split(",")) if key else ()
    reading = Reading(format, delimiter, null or "", guess_null)
    require_sensible(create=create, key=names, ignore_unknown=ignore_unknown)
    not_there = [StoreError] if create else []  # it is created below, and other errors are raised there
    with suppress(*not_there), open_database(url, read_only=True) as database:
        require_target(database, table, create=create)
    opened: Load | None = None
    try:
        with (
            bar("checking", then="loading", bytes_counted=False) as progress,
            open_load(files, reading, ignore_unknown=ignore_unknown) as opened,
        ):
            created = opened.infer(table, names, last_wins=last_wins) if create else None
            with open_database(url, create=create) as database:
                done = opened.run(database, table, created, progress=progress)
    except KeyboardInterrupt:
        rows = f"{opened.written:,} of {opened.total:,} rows are" if opened and opened.written else "no row is"
        raise Interrupted(
            f"{rows} in {table}; the same command puts all, those that are there change nothing"
        ) from None
    _print_loaded(done, as_json=json)


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
    form = form_of(json=json, csv=csv)
    with open_database(url, read_only=True) as database:
        named = _find_to_read(database, name, read, after, within, timeout)
        row = named.get(*parse_key(key_columns(named), key or []))
    if row is None:
        print_error(f"{name} has no row ({', '.join(key or [])})")
        raise typer.Exit(NO_ROW)
    if form is Form.TEXT:
        print_facts(row)  # neither this nor JSON waits for Arrow
    elif form is Form.JSON:
        print_json(row)
    else:
        from viewkeeper.cli.render import print_rows

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
    from viewkeeper.cli.render import print_tables

    form = form_of(json=json, csv=csv)
    with open_database(url, read_only=True) as database:
        named = _find_to_read(database, name, read, after, within, timeout)
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
    from viewkeeper.cli.render import print_rows

    rows = ((c.epoch, to_json_text(c.key), record_text(c.before), record_text(c.after)) for c in found)
    print_rows(("epoch", "key", "before", "after"), rows, form)
    print_text(f"up to epoch {found.epoch}: --since {found.epoch} goes on from here", stderr=form is Form.CSV)


def _find_to_read(
    database: Database, name: str, read: str | None, after: str | None, within: float | None, timeout: float
) -> Table | View:
    """The table or view called `name`, in the requested read mode, once it holds the requested write."""
    from viewkeeper.client.connection import moment_of
    from viewkeeper.client.tables import Table

    named = find_named(database, name)
    if isinstance(named, Table):
        if read or after or within is not None:
            fact = f"{named.name} is a table and always read as it is"
            raise InputError(fact, "--read, --after and --within are for views")
        return named
    if after:
        database.wait_for(after, timeout)
    if within is not None:
        moment_of(database.store, Bounded(within), timeout)  # the read below sees no older state
    return named.in_mode(read) if read else named


def _print_loaded(done: Loaded, *, as_json: bool) -> None:
    rate = round(done.rows / max(done.seconds, 1e-3))
    if as_json:
        print_json(asdict(done) | {"token": str(done.token), "rows_per_second": rate})
        return
    if done.created:
        print_text(f"{done.created};")
    rows = counted(done.rows, "row")
    print_text(f"{rows} loaded into {done.table} in {done.seconds:.1f} s, {rate:,} rows/s")
    if done.nulls:
        print_text(f"read as NULL: {', '.join(done.nulls)}")
    if done.replaced:
        keys = f"{done.added:,} {'key is' if done.added == 1 else 'keys are'} new"
        print_label("warning", "yellow", f"{done.replaced:,} of {rows} replaced a row with the same key; {keys}")
