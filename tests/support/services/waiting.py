"""Waiting on a condition, with progress: whoever waits sees what for, and how long already.

Always: a line when the state changes and every ten seconds; the condition is asked again after a short pause.
"""

from __future__ import annotations

import time
from collections.abc import Callable

PAUSE_SECONDS = 0.25
TOLD_EVERY_SECONDS = 10.0


def wait_until(
    condition: Callable[[], bool], *, seconds_max: float, state: Callable[[], str], tell: Callable[[str], None]
) -> bool:
    """Whether the condition came true in time."""
    began, told_at, told = time.monotonic(), 0.0, ""
    while not condition():
        now = time.monotonic()
        if now - began > seconds_max:
            return False
        text = state()
        if text != told or now - told_at > TOLD_EVERY_SECONDS:
            tell(f"{text} ({now - began:.0f} s)")
            told_at, told = now, text
        time.sleep(PAUSE_SECONDS)
    return True


def say_nothing(line: str) -> None:
    """For whoever does not show progress."""
