"""The terminal: text on stdout and stderr, and a pager for what is longer than the screen.

In: texts and values. Out: lines. Always: a value is printed as it is, never interpreted as markup, and its control
characters are escaped; output that is not a terminal is never truncated, wrapped, coloured or paged. `rich` is loaded
only for a console, so that `get` does not wait for it.
"""

from __future__ import annotations

import io
import math
import os
import shlex
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Literal, TextIO, TypeAlias

from viewkeeper.cli.formats import escape, plain, to_json_text

if TYPE_CHECKING:
    from rich.console import Console

Style: TypeAlias = Literal["bold", "dim", "red", "green", "yellow", "cyan"]

_UNBOUNDED_WIDTH = 100_000
_CODES: dict[Style, int] = {"bold": 1, "dim": 2, "red": 31, "green": 32, "yellow": 33, "cyan": 36}
_LESS = "RSX"  # colours kept, long lines truncated, and the text stays on the screen


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
    """Names and values, one below the other."""
    width = max((len(name) for name in facts), default=0)
    for name, value in facts.items():
        print(f"{escape(name):{width}}  {escape(plain(value))}".rstrip())


def print_json(value: object) -> None:
    print(to_json_text(value), flush=True)


def print_text(text: str, style: Style | None = None, *, stderr: bool = False) -> None:
    """Lines that a terminal may wrap, but we do not."""
    stream = sys.stderr if stderr else sys.stdout
    write_out("".join(f"{styled(escape(line), style, stream)}\n" for line in text.split("\n")), stream)


def print_label(label: str, style: Style, text: str) -> None:
    """One line on stderr; line breaks become blanks."""
    write_out(f"{styled(label + ':', style, sys.stderr)} {escape(text.replace(chr(10), ' '))}\n", sys.stderr)


def write_out(text: str, stream: TextIO | None = None) -> None:
    """Text on stdout, or on `stream`, at once; characters that its encoding lacks are escaped."""
    target = stream or sys.stdout
    try:
        target.write(text)
    except UnicodeEncodeError as error:
        target.write(text.encode(error.encoding, "backslashreplace").decode(error.encoding))
    target.flush()


def styled(text: str, style: Style | None, stream: TextIO | None = None) -> str:
    """The text in that style, if the stream is a terminal with colours."""
    if style is None or os.environ.get("NO_COLOR"):
        return text
    has_colours = (stream or sys.stdout).isatty() and os.environ.get("TERM") != "dumb"
    return f"\033[{_CODES[style]}m{text}\033[0m" if has_colours else text


def terminal_width() -> float:
    """How many characters a line of stdout has; infinity if it is not a terminal."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else math.inf


@contextmanager
def paged() -> Iterator[None]:
    """Within the block a terminal's stdout goes to $PAGER, `less` by default, once it is more than a screenful.

    Quitting the pager is not an error; Ctrl-C belongs to the pager while it is open.
    """
    command = shlex.split(os.environ.get("PAGER", "less"))
    if not sys.stdout.isatty() or not command or not shutil.which(command[0]):
        yield
        return
    terminal, sys.stdout = sys.stdout, (screenful := _Screenful(sys.stdout, command))
    try:
        with suppress(BrokenPipeError):
            yield
    finally:
        sys.stdout = terminal
        screenful.close()


class _Screenful(io.TextIOBase):
    """Holds text until it exceeds the screen, and then passes all of it to a pager, as it comes."""

    def __init__(self, terminal: TextIO, command: list[str]) -> None:
        self._terminal = terminal
        self._command = command
        self._held = ""
        self._pager: subprocess.Popen[str] | None = None

    @property
    def encoding(self) -> str:  # type: ignore[override]
        return self._terminal.encoding

    def isatty(self) -> bool:
        return True

    def write(self, text: str) -> int:
        held = self._held + text
        if self._pager is None and held.count("\n") < shutil.get_terminal_size().lines:
            self._held = held
            return len(text)
        self._held = ""
        self._pager = self._pager or subprocess.Popen(
            self._command, stdin=subprocess.PIPE, env={"LESS": _LESS, **os.environ}, text=True, encoding=self.encoding
        )
        assert self._pager.stdin is not None  # a pipe, as asked for
        self._pager.stdin.write(held)
        self._pager.stdin.flush()
        return len(text)

    def close(self) -> None:
        if self.closed:
            return
        super().close()
        if self._pager is None:
            write_out(self._held, self._terminal)
            return
        before = signal.signal(signal.SIGINT, signal.SIG_IGN)
        try:
            with suppress(BrokenPipeError):
                self._pager.communicate()
        finally:
            signal.signal(signal.SIGINT, before)
