"""Output: answers for people.

In: columns and rows as the client gives them. Out: tables on stdout. Always: a value is shown as it is, never read as
markup, and its control characters are spelled out; output that is not a terminal is never cut or wrapped.
"""

from __future__ import annotations

import datetime as dt
import itertools
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from decimal import Decimal
from typing import TYPE_CHECKING

from viewkeeper.cli.jsonlines import print_json

if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text

    from viewkeeper.client.result import Result

_PAGE_ROWS = 1_000  # a table's widths need all of its rows, so a long answer is several tables
_UNBOUNDED_WIDTH = 100_000


def console(*, stderr: bool = False) -> Console:
    """A console on the stream as it is now; wide when nobody looks at it."""
    from rich.console import Console

    class Output(Console):
        def on_broken_pipe(self) -> None:
            raise BrokenPipeError  # ended in one place for all commands, not by rich

    found = Output(file=sys.stderr if stderr else sys.stdout, highlight=False, markup=False, emoji=False)
    if not found.is_terminal:
        found.width = _UNBOUNDED_WIDTH
    return found


def print_result(result: Result, *, as_json: bool) -> None:
    """A statement's answer."""
    if as_json:
        for row in result.to_dicts() if result.columns else [{"message": result.message}]:
            print_json(row)
    elif result.columns == ("plan",):
        print_text("\n".join(str(row[0]) for row in result.rows))
    elif result.columns:
        print_rows(result.columns, result.rows)
    elif result.message:
        print_text(result.message)


def print_dicts(columns: Sequence[str], rows: Iterable[dict[str, object]], *, as_json: bool) -> None:
    """Rows of a scan, as they come."""
    if as_json:
        for row in rows:
            print_json(row)
    else:
        print_rows(columns, (tuple(row.values()) for row in rows))


def print_rows(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """Tables of at most `_PAGE_ROWS` rows, and how many rows there were."""
    target, count = console(), 0
    for page in _pages(rows):
        target.print(_table(columns, page))
        count += len(page)
    target.print(f"({count:,} {'row' if count == 1 else 'rows'})", style="dim")


def print_facts(facts: Mapping[str, object]) -> None:
    """Names and values, one below the other; without rich, because `get` should not wait for it to load."""
    width = max((len(name) for name in facts), default=0)
    for name, value in facts.items():
        print(f"{_spell(name):{width}}  {_spell(_plain(value))}".rstrip())


def print_text(text: str, style: str | None = None) -> None:
    """Lines that a terminal may wrap, but we do not."""
    for line in text.split("\n"):
        console().print(_spell(line), style=style, soft_wrap=True)


def size_text(count: float) -> str:
    """A number of bytes, as people say it."""
    for unit in ("bytes", "KiB", "MiB", "GiB"):
        if count < 1024:
            return f"{count:.0f} {unit}" if unit == "bytes" else f"{count:.1f} {unit}"
        count /= 1024
    return f"{count:.1f} TiB"


def working(what: str) -> AbstractContextManager[object]:
    """A spinner on stderr while something takes long, if anybody looks."""
    target = console(stderr=True)
    return target.status(what) if target.is_terminal else nullcontext()


def show(value: object) -> Text:
    """A value as it is printed."""
    from rich.text import Text

    return Text(_spell(_plain(value)), style="dim" if value is None else "")


def _plain(value: object) -> str:
    match value:
        case None:
            return "NULL"
        case bool():
            return "true" if value else "false"
        case Decimal():
            return f"{value:f}"
        case dt.datetime():
            return value.isoformat(sep=" ")
        case bytes() | bytearray():
            return value.hex()
    return str(value)


def _spell(text: str) -> str:
    """No character of a value steers the terminal or breaks the table."""
    return "".join(character if character.isprintable() else repr(character)[1:-1] for character in text)


def _pages(rows: Iterable[Sequence[object]]) -> Iterator[list[Sequence[object]]]:
    iterator = iter(rows)
    page = list(itertools.islice(iterator, _PAGE_ROWS))
    yield page  # an empty answer still shows its columns
    while page := list(itertools.islice(iterator, _PAGE_ROWS)):
        yield page


def _table(columns: Sequence[str], rows: Sequence[Sequence[object]]) -> object:
    from rich import box
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, header_style="bold")
    for place, name in enumerate(columns):
        numeric = any(row[place] is not None for row in rows) and all(_is_numeric(row[place]) for row in rows)
        table.add_column(_spell(name), justify="right" if numeric else "left", overflow="fold")
    for row in rows:
        table.add_row(*(show(value) for value in row))
    return table


def _is_numeric(value: object) -> bool:
    return value is None or (isinstance(value, int | float | Decimal) and not isinstance(value, bool))
