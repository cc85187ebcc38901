"""SQL: statements from arguments, a file or a pipe, each with its result.

In: texts. Out: results on stdout. Always: a text is parsed as a whole before its first statement runs; the store is
created only by a text that creates a table.
"""

from __future__ import annotations

import sys
import time
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from viewkeeper.cli.exit_codes import Interrupted
from viewkeeper.cli.options import Csv, Form, Json, Url, form_of, open_database
from viewkeeper.cli.terminal import paged
from viewkeeper.errors import InputError, ViewKeeperError

if TYPE_CHECKING:
    from viewkeeper.cli.shell import Names
    from viewkeeper.client.database import Database


class SqlRunner:
    """Runs texts against one store, which it opens with the first text."""

    def __init__(self, url: str, form: Form) -> None:
        self._url = url
        self.form = form
        self.is_paged = False
        self._database: Database | None = None

    def run(self, text: str) -> float:
        """Run the statements of `text` and print each result; returns the seconds they took, without the printing."""
        from viewkeeper.cli.render import print_result
        from viewkeeper.client.statements import execute_each
        from viewkeeper.model.syntax import CreateTable
        from viewkeeper.sql.statement_parser import parse_statements

        if self._database is None:
            statements = parse_statements(text)
            if not statements:
                return 0.0
            creates = any(isinstance(statement, CreateTable) for statement in statements)
            self._database = open_database(self._url, create=creates)
        done, is_printing, seconds, started = 0, False, 0.0, time.monotonic()
        try:
            for result in execute_each(self._database, text):
                seconds += time.monotonic() - started
                done, is_printing = done + 1, bool(result.columns)
                with paged() if self.is_paged else nullcontext():
                    print_result(result, self.form)
                is_printing, started = False, time.monotonic()
        except KeyboardInterrupt:
            raise Interrupted(_stopped(done, is_printing=is_printing)) from None
        return seconds

    def names(self) -> Names:
        """What can be named in a statement; nothing before the store exists."""
        from viewkeeper.cli.shell import Names

        try:
            self._database = self._database or open_database(self._url)
        except ViewKeeperError:
            return Names()
        catalog = self._database.catalog()
        columns = [column.name for table in catalog.tables for column in table.columns]
        columns += [shown.column.name for view in catalog.views for shown in view.shown]
        return Names([table.name for table in catalog.tables] + [view.name for view in catalog.views], columns)


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
    texts, form = text or [], form_of(json=json, csv=csv)
    if texts and file:
        raise InputError("statements come as arguments or from a file, not both", "leave one of them out")
    runner = SqlRunner(url, form)
    if not texts and not file and sys.stdin.isatty():
        from viewkeeper.cli.shell import run_shell

        run_shell(runner, url)
        return
    for one in texts or [_read(file)]:
        runner.run(one)


def _stopped(done: int, *, is_printing: bool) -> str:
    """What is done when the statements of a text are interrupted."""
    if is_printing:
        last = "the statement" if done == 1 else f"statement {done}"
        return f"the answer of {last} was cut short; what it did is done"
    if not done:
        return "the statement was stopped; it can be run again"
    before = "the one before it is" if done == 1 else f"the {done} before it are"
    return f"statement {done + 1} was stopped and can be run again; {before} done"


def _read(file: Path | None) -> str:
    try:
        text = sys.stdin.read() if file is None or str(file) == "-" else file.read_text(encoding="utf-8")
        return text.removeprefix("\ufeff")  # some editors begin a file with a byte order mark
    except OSError as error:
        hint = "name a file of statements, or - for the input"
        raise InputError(f"{file or 'the input'} cannot be read: {error.strerror}", hint) from None
    except UnicodeDecodeError:
        raise InputError(f"{file or 'the input'} is not UTF-8 text", "SQL is read as UTF-8") from None
