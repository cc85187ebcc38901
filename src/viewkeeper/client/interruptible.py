"""Interruptible work: work that Ctrl-C stops, although it runs in C or in another process.

In: the work, and how to stop it. Out: its result. Always: the work is done in a thread of its own, because Python handles
a signal only in the main thread, between two of its own steps; after Ctrl-C the work has ended, or has had some seconds
for it, before KeyboardInterrupt is raised. A second Ctrl-C waits for nothing.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, wait
from typing import TypeVar

T = TypeVar("T")

_TICK_SECONDS = 0.1
_PATIENCE_SECONDS = 10.0


def begin(work: Callable[[], T], name: str) -> tuple[threading.Thread, Future[T]]:
    """A daemon thread to be started, and the future that gets the result of `work`, or its failure."""
    answer: Future[T] = Future()

    def run() -> None:
        try:
            answer.set_result(work())
        except BaseException as error:
            answer.set_exception(error)

    return threading.Thread(target=run, name=name, daemon=True), answer


def interruptibly(work: Callable[[], T], interrupt: Callable[[], None]) -> T:
    """The result of `work`; Ctrl-C calls `interrupt`, repeatedly until the work has ended."""
    if threading.current_thread() is not threading.main_thread():
        return work()
    thread, answer = begin(work, "viewkeeper-work")
    try:
        thread.start()
        while not answer.done():  # a wait without a limit would not notice a signal that came just before it
            wait([answer], _TICK_SECONDS)
        return answer.result()
    except KeyboardInterrupt:
        until = time.monotonic() + _PATIENCE_SECONDS
        while not answer.done() and time.monotonic() < until:
            interrupt()  # what has not begun yet cannot be stopped yet
            wait([answer], _TICK_SECONDS)
        raise
    finally:
        if answer.done():  # it still frees what it held, and DuckDB aborts an interpreter that ends meanwhile
            thread.join()
