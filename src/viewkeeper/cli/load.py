"""Load: files into a table, with a bar on a terminal.

In: a store's URL, a table and files. Out: rows put, their number and time, and how many replaced another. Always: a
store that does not exist is created only for `--create`, and only once the files are known to fit.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from viewkeeper.cli.failures import Interrupted, print_label
from viewkeeper.cli.jsonlines import print_json
from viewkeeper.cli.opening import open_database
from viewkeeper.cli.output import console, print_text
from viewkeeper.errors import StoreError

if TYPE_CHECKING:
    from viewkeeper.load.files import Reading
    from viewkeeper.load.loading import Load, Loaded


@dataclass(frozen=True, slots=True)
class Choices:
    """What the user chose."""

    create: bool
    key: tuple[str, ...]
    last_wins: bool
    ignore_unknown: bool


def load(url: str, table: str, files: Sequence[str], reading: Reading, choices: Choices, *, as_json: bool) -> None:
    """Put the rows of the files and report it."""
    from viewkeeper.load.loading import open_load, require_sensible, require_target

    require_sensible(create=choices.create, key=choices.key, ignore_unknown=choices.ignore_unknown)
    try:
        with open_database(url, read_only=True) as database:
            require_target(database, table, create=choices.create)
    except StoreError:
        if not choices.create:
            raise  # else it is created below, and other errors are raised there
    opened: Load | None = None
    try:
        with _bar() as progress, open_load(files, reading) as opened:
            created = opened.infer(table, choices.key, last_wins=choices.last_wins) if choices.create else None
            with open_database(url, create=choices.create) as database:
                done = opened.run(database, table, created, ignore_unknown=choices.ignore_unknown, progress=progress)
    except KeyboardInterrupt:
        rows = f"{opened.written:,} of {opened.total:,} rows are" if opened and opened.written else "no row is"
        raise Interrupted(
            f"{rows} in {table}; the same command puts all, those that are there change nothing"
        ) from None
    _tell(done, as_json=as_json)


@contextmanager
def _bar() -> Iterator[Callable[[int, int], None]]:
    """A bar on stderr while files are checked and rows are put, if it is a terminal."""
    target = console(stderr=True)
    if not target.is_terminal:
        yield lambda done, total: None
        return
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeRemainingColumn

    columns = (
        SpinnerColumn(),
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=target, transient=True) as bar:
        task = bar.add_task("checking", total=None)
        yield lambda done, total: bar.update(task, description="loading", completed=done, total=total)


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
