"""The command line: what can be typed.

In: arguments. Out: the command that they name. Always: no command imports what it needs before it runs, so that `--help`,
`put` and `get` wait neither for Spark nor for DuckDB nor for the SQL parser.
"""

from __future__ import annotations

from typing import Annotated

import typer

from viewkeeper import __version__
from viewkeeper.cli.check_repair import check, rebuild, repair, set_aside
from viewkeeper.cli.demo import demo
from viewkeeper.cli.exit_codes import EXIT_CODES, Command, Group
from viewkeeper.cli.maintenance import backup, compact, explain, keep, restore, scale, status
from viewkeeper.cli.rows import changes, delete, get, load, put, scan
from viewkeeper.cli.run import run
from viewkeeper.cli.sql import sql

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


for _commands in (
    (sql, put, delete, load, get, scan, changes),
    (run, scale, status, explain, check, repair, rebuild, set_aside),
    (backup, restore, compact, keep, demo),
):
    for _command in _commands:
        app.command(cls=Command)(_command)
