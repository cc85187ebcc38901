"""Cores: who runs where, and how much of them others had.

In: cores. Out: processes that are started in the block, and the thread that starts them, run on these alone; the share of a
block's time in which a virtual machine's host gave the cores to others. Always: the thread has its own cores back afterwards.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

_STEAL, _FACTS = 7, 8  # of the first line of /proc/stat, behind its name; guests are counted twice after these


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


@dataclass(slots=True)
class Stolen:
    """The share of a block's time that the host took; 0 where no kernel tells."""

    share: float = 0.0


@contextmanager
def stolen() -> Iterator[Stolen]:
    found, before = Stolen(), _ticks()
    yield found
    passed = [now - then for now, then in zip(_ticks(), before, strict=True)]
    found.share = passed[_STEAL] / sum(passed) if sum(passed) else 0.0


def _ticks() -> list[int]:
    facts = Path("/proc/stat")
    return [int(one) for one in facts.read_text().split(None, _FACTS + 1)[1:-1]] if facts.exists() else [0] * _FACTS
