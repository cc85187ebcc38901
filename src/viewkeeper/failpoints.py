"""Failpoints: named places where a test may kill the process.

In: `VIEWKEEPER_FAILPOINTS="name@n,…"` (kill at the n-th hit) and `VIEWKEEPER_FAILPOINT_DIR` (where hits are counted, by
all processes of a run together). Out: nothing, or SIGKILL to oneself. Always: without the variables a call costs one
dictionary look-up, and an armed point fires once in a run, however many processes pass it afterwards.
"""

from __future__ import annotations

import os
import signal
from pathlib import Path


def _armed() -> dict[str, int]:
    pairs = (item.rpartition("@") for item in os.environ.get("VIEWKEEPER_FAILPOINTS", "").split(",") if item)
    return {name or count: int(count) if name else 1 for name, _, count in pairs}


_ARMED = _armed()


def failpoint(name: str) -> None:
    """Die here when armed and when it is the hit that was asked for."""
    if name in _ARMED:
        _hit(name)


def rearm() -> None:
    """Read the environment anew: for a process forked after import."""
    _ARMED.clear()
    _ARMED.update(_armed())


def _hit(name: str) -> None:
    folder = Path(os.environ["VIEWKEEPER_FAILPOINT_DIR"])
    with open(folder / f"{name}.hits", "ab", buffering=0) as hits:
        hits.write(b".")
        count = hits.tell()
    if count == _ARMED[name]:
        (folder / f"{name}.fired").touch()
        os.kill(os.getpid(), signal.SIGKILL)
