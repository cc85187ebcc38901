"""Children: processes that tests start, and signals that they inherit.

In: a run of the tests, begun in the foreground or not. Out: the dispositions that tests rely on. Always: SIGINT reaches
tests and their children even where the run was begun in the background, by a script or under nohup, with SIGINT ignored; a
test that fails ends the processes that it started, where the standard library would wait for them.
"""

from __future__ import annotations

import multiprocessing
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager


def let_interrupts_through() -> None:
    """What is ignored stays so in children; a handler of Python's own does not."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def kill_at_failures() -> None:
    """From here on `with subprocess.Popen(…)` kills its process when the block raises; its own way is to wait for it."""
    wait = subprocess.Popen.__exit__

    def leave(process: subprocess.Popen, kind: type[BaseException] | None, *error: object) -> None:
        if kind is not None:
            process.kill()
        wait(process, kind, *error)

    subprocess.Popen.__exit__ = leave


@contextmanager
def none_left() -> Iterator[None]:
    """Of the processes that `multiprocessing` starts within the block none outlives it: Python would wait for them."""
    before = set(multiprocessing.active_children())
    try:
        yield
    finally:
        for process in set(multiprocessing.active_children()) - before:
            process.kill()
            process.join()
