"""Cores: who runs where.

In: cores. Out: processes that are started in the block, and the thread that starts them, run on these alone. Always: the
thread has its own cores back afterwards.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def on_cores(cores: set[int]) -> Iterator[None]:
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, cores)
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


def one_each() -> tuple[set[int], set[int]]:
    """The first core for one, all others for the other; the same where there is but one."""
    first, *others = sorted(os.sched_getaffinity(0))
    return {first}, set(others) or {first}
