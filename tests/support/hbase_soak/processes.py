"""Processes of a soak, forked from a server that has imported everything: a start costs no imports.

In: a function and its arguments. Out: a process, and a pipe to it. Always: it is dead when `end` returns, and it ends by
itself when the soak does not live any more, because its pipe is then closed.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
from collections.abc import Callable
from contextlib import suppress
from multiprocessing.connection import Connection
from pathlib import Path

_IMPORTED = ("tests.support.hbase_soak.writers", "tests.support.hbase_soak.pipelines")
_CONTEXT = multiprocessing.get_context("forkserver")
_CONTEXT.set_forkserver_preload(list(_IMPORTED))


class Forked:
    """A running process; its function gets the other end of `pipe` last."""

    def __init__(self, work: Callable[..., None], *arguments: object) -> None:
        self.pipe, other = _CONTEXT.Pipe()
        self._process = _CONTEXT.Process(target=_run, args=(work, arguments, other), daemon=True)
        self._process.start()
        other.close()

    @property
    def pid(self) -> int:
        assert self._process.pid is not None
        return self._process.pid

    @property
    def is_dead(self) -> bool:
        return not self._process.is_alive()

    @property
    def is_stopped(self) -> bool:
        """Whether SIGSTOP has stopped it."""
        with suppress(OSError):
            return Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()[0] == "T"
        return False

    def send(self, number: signal.Signals) -> None:
        os.kill(self.pid, number)

    def wait(self, seconds: float) -> bool:
        """Whether it has ended in that time."""
        self._process.join(seconds)
        return self.is_dead

    def end(self) -> None:
        self._process.kill()
        self._process.join()


def _run(work: Callable[..., None], arguments: tuple[object, ...], pipe: Connection) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # of the terminal: the soak ends it
    with suppress(EOFError, BrokenPipeError):
        work(*arguments, pipe)
