"""The command line: what can be typed.

In: arguments. Out: a call of the module that does the work. Always: nothing is imported before it is needed, so that
`--help`, `put` and `get` wait neither for Spark nor for DuckDB nor for the SQL parser.
"""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from viewkeeper import __version__
from viewkeeper.cli.answers import form_of
from viewkeeper.cli.failures import CHECK_FAILED, EXIT_CODES, NO_ROW, print_error
from viewkeeper.cli.group import Command, Group

_EPILOG = "\n\n".join(["Exit codes:", *(f"- {code}: {meaning}" for code, meaning in EXIT_CODES)])

app = typer.Typer(
    name="viewkeeper",
    cls=Group,
    help="Materialized views for key-value stores, kept fresh by Spark.",
    epilog=_EPILOG,
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="markdown",
    context_settings={"help_option_names": ["-h", "--help"]},
    pretty_exceptions_enable=False,
)


class ReadMode(StrEnum):
    """What a read of a view sees."""

    SNAPSHOT = "snapshot"
    LATEST = "latest"


Url = Annotated[str, typer.Argument(metavar="URL", help="The store, as in `embedded:./shop`.", show_default=False)]
Name = Annotated[str, typer.Argument(metavar="NAME", help="A table, a view or an index.", show_default=False)]
Json = Annotated[bool, typer.Option("--json", help="Print JSON, one line for each row.")]
Csv = Annotated[
    bool, typer.Option("--csv", help='Print CSV with a first line of names; NULL is nothing, `""` the empty text.')
]
Read = Annotated[
    ReadMode | None,
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


def _print_version(wanted: bool) -> None:
    if wanted:
        print(f"viewkeeper {__version__}")
        raise typer.Exit


@app.callback()
def viewkeeper(
    version: Annotated[
        bool, typer.Option("--version", help="Print the version and exit.", callback=_print_version, is_eager=True)
    ] = False,
) -> None:
    """Materialized views for key-value stores, kept fresh by Spark."""


@app.command(cls=Command)
def sql(
    url: Url,
    text: Annotated[
        list[str] | None, typer.Argument(metavar="TEXT", help="Statements, each text in quotes.", show_default=False)
    ] = None,
    file: Annotated[Path | None, typer.Option(help="A file of statements; `-` is the input.", metavar="FILE")] = None,
    json: Json = False,
    csv: Csv = False,
) -> None:
    """Run SQL statements, those of a file or of a pipe; without any, open a prompt.

    The first `CREATE TABLE` creates a store that does not exist. All statements of a text are parsed before the first
    one runs. In the prompt a statement ends with `;`, `\\help` helps, and `\\q` or Ctrl-D quits. With `--json` a
    statement without rows prints `{"message": …}`.
    """
    from viewkeeper.cli.sql import sql as run_sql

    run_sql(url, text or [], file, form_of(json=json, csv=csv))


@app.command(cls=Command)
def put(
    url: Url,
    table: Annotated[str, typer.Argument(metavar="TABLE", help="A table.", show_default=False)],
    row: Annotated[
        list[str],
        typer.Argument(metavar="KEY|COL=VALUE", help="The key, then the columns to write.", show_default=False),
    ],
) -> None:
    """Write some columns of a row and print the token of the write.

    `put URL orders o1 region=eu amount=30` and `put URL orders '{"id": "o1", "region": "eu", "amount": 30}'` do the
    same. Columns left out keep their value. `col:=null` is NULL: what follows `:=` is JSON.
    """
    from viewkeeper.cli.row_commands import put as put_row

    put_row(url, table, row)


@app.command(cls=Command)
def delete(
    url: Url,
    table: Annotated[str, typer.Argument(metavar="TABLE", help="A table.", show_default=False)],
    key: Annotated[list[str], typer.Argument(metavar="KEY", help="A value for each key column.", show_default=False)],
    column: Annotated[
        list[str] | None, typer.Option(metavar="COL", help="Set this column to NULL instead; again for the next.")
    ] = None,
) -> None:
    """Delete the row under a key and print the token of the write. A missing row is not an error."""
    from viewkeeper.cli.row_commands import delete as delete_row

    delete_row(url, table, key, column)


@app.command(cls=Command)
def load(
    url: Url,
    table: Annotated[str, typer.Argument(metavar="TABLE", help="A table.", show_default=False)],
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
    json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Put the rows of CSV, TSV, JSON lines or Parquet files; text also as `.gz`, any single file also in a `.zip`.

    Every value of all files is checked first, and nothing is written if one does not fit. Columns are matched by name;
    those that the files lack keep their value. Of rows with the same key the last one stays, and the number of replaced
    rows is printed. With `--create` keys must be unique, unless `--last-wins` is given; the store is created too, if it
    does not exist. The same command resumes a load that was interrupted.
    """
    from viewkeeper.cli.load import Choices
    from viewkeeper.cli.load import load as load_files
    from viewkeeper.load.files import Reading

    names = tuple(name.strip() for name in key.split(",")) if key else ()
    choices = Choices(create, names, last_wins, ignore_unknown)
    load_files(url, table, files, Reading(format, delimiter, null or "", guess_null), choices, as_json=json)


@app.command(cls=Command)
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
    from viewkeeper.cli.row_commands import Freshness
    from viewkeeper.cli.row_commands import get as get_row

    freshness = Freshness(read, after, within, timeout)
    found = get_row(url, name, key or [], freshness, form_of(json=json, csv=csv))
    if not found:
        print_error(f"{name} has no row ({', '.join(key or [])})")
        raise typer.Exit(NO_ROW)


@app.command(cls=Command)
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
    from viewkeeper.cli.row_commands import Freshness
    from viewkeeper.cli.row_commands import scan as scan_rows

    scan_rows(
        url,
        name,
        prefix or [],
        start=start or [],
        stop=stop or [],
        limit=limit,
        reverse=reverse,
        freshness=Freshness(read, after, within, timeout),
        form=form_of(json=json, csv=csv),
    )


@app.command(cls=Command)
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
    from viewkeeper.cli.row_commands import changes as print_changes

    print_changes(url, view, since, form_of(json=json, csv=csv))


@app.command(cls=Command)
def run(
    url: Url,
    view_managers: Annotated[int, typer.Option(metavar="N", help="Workers that share the views' keys.")] = 2,
    until_caught_up: Annotated[
        bool, typer.Option("--until-caught-up", help="Stop once the views hold all that was written before.")
    ] = False,
    take_over: Annotated[
        bool, typer.Option("--take-over", help="Fence off a pipeline that is still running; it ends within seconds.")
    ] = False,
    changes_per_epoch: Annotated[
        int | None,
        typer.Option(
            metavar="N", help="About so many changes in one epoch; a transaction is never cut.", show_default="1000000"
        ),
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON line for each committed epoch.")] = False,
) -> None:
    """Run the pipeline that keeps all views fresh, until Ctrl-C or SIGTERM. Needs Java 17.

    Stopping it at any moment, `kill -9` included, loses nothing and counts nothing twice.
    """
    from viewkeeper.cli.run import Settings
    from viewkeeper.cli.run import run as run_pipeline

    run_pipeline(url, Settings(view_managers, take_over, changes_per_epoch, until_caught_up), as_json=json)


@app.command(cls=Command)
def status(url: Url, json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False) -> None:
    """Print the state of the pipeline, how far the views lag, and how much the log holds."""
    from viewkeeper.cli.reports import status as print_status

    print_status(url, as_json=json)


@app.command(cls=Command)
def explain(
    url: Url,
    view: Annotated[
        str | None, typer.Argument(metavar="VIEW", help="A view; all when left out.", show_default=False)
    ] = None,
    mermaid: Annotated[bool, typer.Option("--mermaid", help="Print a Mermaid flowchart.")] = False,
    picture: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="Draw the plan to this file, `plan.svg`. Needs Graphviz.", show_default=False
        ),
    ] = None,
) -> None:
    """Print the plan that maintains a view, or the merged plan of all views.

    Each line is a node: a base table, δ, σ, π, γ, ⋈, ∪, top or a view. Comments show the zones, that is, the row keys;
    the tables that a node keeps; and the views that share it.
    """
    from viewkeeper.cli.reports import explain as print_plan

    print_plan(url, view, mermaid=mermaid, picture=picture)


@app.command(cls=Command)
def check(
    url: Url,
    views: Annotated[
        list[str] | None, typer.Argument(metavar="VIEW", help="Views; all when left out.", show_default=False)
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Recompute views from scratch with Spark SQL. Exit code 1 when one is wrong or cannot be judged. Needs Java 17.

    To repair a view, run `CREATE OR REPLACE MATERIALIZED VIEW` with its own text.
    """
    from viewkeeper.cli.reports import check as check_views

    if not check_views(url, views or [], as_json=json):
        raise typer.Exit(CHECK_FAILED)


@app.command(cls=Command)
def backup(
    url: Url,
    destination: Annotated[
        Path, typer.Argument(metavar="DEST", help="A directory that is new, or empty.", show_default=False)
    ],
    json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Write a backup of the whole store as of this moment, while writers and the pipeline go on.

    The backup is complete when the command succeeds; an interrupted one leaves no backup. While it runs the store's
    files may grow, because nothing that the backup still has to copy is overwritten.
    """
    from viewkeeper.cli.upkeep import backup as write_backup

    write_backup(url, destination, as_json=json)


@app.command(cls=Command)
def restore(
    source: Annotated[
        Path, typer.Argument(metavar="BACKUP", help="What `backup` wrote.", show_default=False, exists=True)
    ],
    url: Annotated[
        str, typer.Argument(metavar="URL", help="The store to make; it must not exist.", show_default=False)
    ],
    json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Create a new store from a backup, after verifying every file.

    It holds rows, log, views and epochs as of the backup. The first pipeline repeats an epoch that was in flight. Older
    tokens are not valid: waiting for one is an error.
    """
    from viewkeeper.cli.upkeep import restore as restore_backup

    restore_backup(source, url, as_json=json)


@app.command(cls=Command)
def compact(url: Url, json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False) -> None:
    """Truncate the log, remove dropped tables and views, and return the space to the disk.

    Nobody else may have the store open, and no pipeline may run: a process that has the old files open would go on
    writing to them. A kill at any moment leaves the store intact.
    """
    from viewkeeper.cli.upkeep import compact as compact_store

    compact_store(url, as_json=json)


@app.command(cls=Command)
def keep(
    url: Url,
    epochs: Annotated[int, typer.Option(metavar="N", help="At least the last N epochs.")] = 0,
    seconds: Annotated[float, typer.Option(metavar="S", help="At least the epochs of the last S seconds.")] = 0,
) -> None:
    """Keep what `changes` prints for longer than the last two epochs.

    The setting belongs to the store: it holds from the next epoch on until it is changed; without options it returns to
    the default. Records that change often take more room and time, for each version that is kept.
    """
    from viewkeeper.cli.upkeep import keep as keep_changes

    keep_changes(url, epochs, seconds)


@app.command(cls=Command)
def demo(
    keep: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Make the store in this new directory and leave it there.")
    ] = None,
) -> None:
    """Show tables, views, and changes flowing from one to the other. Needs Java 17."""
    from viewkeeper.cli.demo import demo as show_demo

    show_demo(keep)
