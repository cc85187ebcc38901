"""Failpoints: named places where a test may kill the process.

In: `VIEWKEEPER_FAILPOINT_DIR`, a directory in which a file `NAME.armed` holds the hit at which the point NAME kills. Out:
nothing, or SIGKILL to oneself. Always: without the variable a call is one test of a constant; hits are counted by all
processes of a run together, and an armed point fires once.
"""

from __future__ import annotations

import os
import signal
from pathlib import Path

_FOLDER = os.environ.get("VIEWKEEPER_FAILPOINT_DIR")


def failpoint(name: str) -> None:
    """Die here if armed, at the hit that was asked for."""
    if _FOLDER:
        _hit(Path(_FOLDER), name)


def _hit(folder: Path, name: str) -> None:
    with open(folder / f"{name}.hits", "ab", buffering=0) as hits:
        hits.write(b".")
        count = hits.tell()
    armed = folder / f"{name}.armed"
    try:
        wanted = int(armed.read_text())
    except FileNotFoundError:
        return
    if count >= wanted:
        armed.rename(folder / f"{name}.fired")
        os.kill(os.getpid(), signal.SIGKILL)
