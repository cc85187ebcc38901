"""The pager: a result that is longer than the screen is shown page by page.

In: what is printed in a `with` block. Out: the same on the terminal, or in $PAGER, `less` by default, once it is more
than a screenful. Always: quitting the pager is not an error; Ctrl-C belongs to the pager while it is open.
"""

from __future__ import annotations

import io
import os
import shlex
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import TextIO

_LESS = "RSX"  # colours kept, long lines truncated, and the text stays on the screen


@contextmanager
def paged() -> Iterator[None]:
    """Within the block stdout is paged, if it is a terminal and there is a pager."""
    command = _pager()
    if not sys.stdout.isatty() or not command:
        yield
        return
    real, sys.stdout = sys.stdout, _Screenful(sys.stdout, command)
    try:
        with suppress(BrokenPipeError):
            yield
    finally:
        ours, sys.stdout = sys.stdout, real
        ours.close()


def _pager() -> list[str]:
    command = shlex.split(os.environ.get("PAGER", "less"))
    return command if command and shutil.which(command[0]) else []


class _Screenful(io.TextIOBase):
    """Buffers text until it exceeds the screen, and then passes all of it to a pager."""

    def __init__(self, terminal: TextIO, command: list[str]) -> None:
        self._terminal = terminal
        self._command = command
        self._held: list[str] = []
        self._lines = 0
        self._process: subprocess.Popen[str] | None = None

    @property
    def encoding(self) -> str:  # type: ignore[override]
        return self._terminal.encoding

    def isatty(self) -> bool:
        return True

    def write(self, text: str) -> int:
        if self._process is None:
            self._held.append(text)
            self._lines += text.count("\n")
            if self._lines >= shutil.get_terminal_size().lines:
                self._open()
        else:
            self._hand_on(self._process, text)
        return len(text)

    def close(self) -> None:
        if self.closed:
            return
        super().close()
        if self._process is None:
            self._terminal.write("".join(self._held))
            self._terminal.flush()
            return
        before = signal.signal(signal.SIGINT, signal.SIG_IGN)
        try:
            with suppress(BrokenPipeError):
                self._process.communicate()
        finally:
            signal.signal(signal.SIGINT, before)

    def _open(self) -> None:
        settings = {**os.environ, "LESS": os.environ.get("LESS", _LESS)}
        self._process = subprocess.Popen(
            self._command, stdin=subprocess.PIPE, env=settings, text=True, encoding=self.encoding
        )
        held, self._held = "".join(self._held), []
        self._hand_on(self._process, held)

    def _hand_on(self, process: subprocess.Popen[str], text: str) -> None:
        if process.stdin is not None:
            process.stdin.write(text)
            process.stdin.flush()
