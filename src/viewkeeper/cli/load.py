"""Load: files into a table, with a bar on a terminal.

In: a store's URL, a table and files. Out: rows put, their number and time, and how many replaced another. Always: a
store that does not exist is created only for `--create`, and only once the files are known to fit.
"""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from viewkeeper.cli.failures import Interrupted, print_label
from viewkeeper.cli.jsonlines import print_json
from viewkeeper.cli.opening import open_database
from viewkeeper.cli.options import JsonObject, TableName, Url
from viewkeeper.cli.output import bar, print_text
from viewkeeper.errors import StoreError

if TYPE_CHECKING:
    from viewkeeper.load.loading import Load, Loaded


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
    try:
        with open_database(url, read_only=True) as database:
            require_target(database, table, create=create)
    except StoreError:
        if not create:
            raise  # else it is created below, and other errors are raised there
    opened: Load | None = None
    try:
        with bar("checking", then="loading", bytes_counted=False) as progress, open_load(files, reading) as opened:
            created = opened.infer(table, names, last_wins=last_wins) if create else None
            with open_database(url, create=create) as database:
                done = opened.run(database, table, created, ignore_unknown=ignore_unknown, progress=progress)
    except KeyboardInterrupt:
        rows = f"{opened.written:,} of {opened.total:,} rows are" if opened and opened.written else "no row is"
        raise Interrupted(
            f"{rows} in {table}; the same command puts all, those that are there change nothing"
        ) from None
    _tell(done, as_json=json)


def _tell(done: Loaded, *, as_json: bool) -> None:
    rate = round(done.rows / max(done.seconds, 1e-3))
    if as_json:
        print_json(asdict(done) | {"token": str(done.token), "rows_per_second": rate})
        return
    if done.created:
        print_text(f"{done.created};")
    rows = f"{done.rows:,} {'row' if done.rows == 1 else 'rows'}"
    print_text(f"{rows} loaded into {done.table} in {done.seconds:.1f} s, {rate:,} rows/s")
    if done.nulls:
        print_text(f"read as NULL: {', '.join(done.nulls)}")
    if done.replaced:
        keys = f"{done.added:,} {'key is' if done.added == 1 else 'keys are'} new"
        print_label("warning", "yellow", f"{done.replaced:,} of {rows} replaced a row with the same key; {keys}")
