"""Output: text and values for people.

In: texts and values. Out: lines on stdout. Always: a value is printed as it is, never interpreted as markup, and its
control characters are escaped; output that is not a terminal is never truncated, wrapped or coloured.
"""

from __future__ import annotations

import datetime as dt
import math
import os
import shutil
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from decimal import Decimal
from typing import TYPE_CHECKING, Literal, TextIO, TypeAlias

if TYPE_CHECKING:
    from rich.console import Console

Style: TypeAlias = Literal["bold", "dim", "red", "green", "yellow", "cyan"]

_UNBOUNDED_WIDTH = 100_000
_CODES: dict[Style, int] = {"bold": 1, "dim": 2, "red": 31, "green": 32, "yellow": 33, "cyan": 36}


def console(*, stderr: bool = False) -> Console:
    """A console on the current stream; wide if that is not a terminal."""
    from rich.console import Console

    class Output(Console):
        def on_broken_pipe(self) -> None:
            raise BrokenPipeError  # handled in one place for all commands, not by rich

    found = Output(file=sys.stderr if stderr else sys.stdout, highlight=False, markup=False, emoji=False)
    if not found.is_terminal:
        found.width = _UNBOUNDED_WIDTH
    return found


def print_facts(facts: Mapping[str, object]) -> None:
    """Names and values, one below the other; without rich, because `get` should not wait for it to load."""
    width = max((len(name) for name in facts), default=0)
    for name, value in facts.items():
        print(f"{spell(name):{width}}  {spell(plain(value))}".rstrip())


def print_text(text: str, style: Style | None = None, *, stderr: bool = False) -> None:
    """Lines that a terminal may wrap, but we do not."""
    stream = sys.stderr if stderr else sys.stdout
    write_out("".join(f"{styled(spell(line), style, stream)}\n" for line in text.split("\n")), stream)


def size_text(count: float) -> str:
    """A number of bytes in a readable unit."""
    for unit in ("bytes", "KiB", "MiB", "GiB"):
        if count < 1024:
            return f"{count:.0f} {unit}" if unit == "bytes" else f"{count:.1f} {unit}"
        count /= 1024
    return f"{count:.1f} TiB"


def working(what: str) -> AbstractContextManager[object]:
    """A spinner on stderr while something takes long, if it is a terminal."""
    target = console(stderr=True)
    return target.status(what) if target.is_terminal else nullcontext()


@contextmanager
def bar(what: str, *, then: str | None = None, bytes_counted: bool = True) -> Iterator[Callable[[int, int], None]]:
    """A bar on stderr that moves with what is done, bytes or rows, if that is a terminal; `then`: its title from then on."""
    target = console(stderr=True)
    if not target.is_terminal:
        yield lambda done, total: None
        return
    from rich import progress

    text, line = progress.TextColumn("{task.description}"), progress.BarColumn()
    columns: tuple[progress.ProgressColumn, ...] = (
        text,
        line,
        progress.DownloadColumn(),
        progress.TransferSpeedColumn(),
    )
    if not bytes_counted:
        columns = (progress.SpinnerColumn(), text, line, progress.MofNCompleteColumn(), progress.TimeRemainingColumn())
    with progress.Progress(*columns, console=target, transient=True) as shown:
        task = shown.add_task(what, total=None)
        yield lambda done, total: shown.update(task, description=then or what, completed=done, total=total)


def write_out(text: str, stream: TextIO | None = None) -> None:
    """Text on stdout, or on `stream`, at once; characters that its encoding lacks are escaped."""
    target = stream or sys.stdout
    try:
        target.write(text)
    except UnicodeEncodeError as error:
        target.write(text.encode(error.encoding, "backslashreplace").decode(error.encoding))
    target.flush()


def styled(text: str, style: Style | None, stream: TextIO | None = None) -> str:
    """The text in that style, if the stream is a terminal."""
    return f"\033[{_CODES[style]}m{text}\033[0m" if style and is_coloured(stream or sys.stdout) else text


def is_coloured(stream: TextIO) -> bool:
    return stream.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def terminal_width() -> float:
    """How many characters a line of stdout has; infinity if it is not a terminal."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else math.inf


def plain(value: object) -> str:
    """A value as it is printed."""
    match value:
        case None:
            return "NULL"
        case bool():
            return "true" if value else "false"
        case float():
            return plain_double(value)
        case Decimal():
            return f"{value:f}"
        case dt.datetime():
            return value.isoformat(sep=" ")
        case bytes() | bytearray():
            return value.hex()
    return str(value)


def plain_double(value: float) -> str:
    return repr(value) if math.isfinite(value) else {math.inf: "Infinity", -math.inf: "-Infinity"}.get(value, "NaN")


def spell(text: str) -> str:
    """The text without characters that control the terminal or break the table."""
    if text.isprintable():
        return text
    return "".join(character if character.isprintable() else repr(character)[1:-1] for character in text)
