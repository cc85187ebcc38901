"""Failpoints: named places where a test may stop what runs, as a crash would.

In: a hook, or `VIEWKEEPER_FAILPOINT_DIR`, a directory in which a file `NAME.armed` holds the hit at which the point NAME
kills. Out: nothing, or what the hook does. Always: without a hook a call is one test of a variable; hits in a directory
are counted by all processes together, and an armed point fires once.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from functools import partial
from pathlib import Path

Hook = Callable[[str], None]


def failpoint(name: str) -> None:
    """Let the hook of a test know that this place is reached."""
    if _hook is not None:
        _hook(name)


def hook(new: Hook | None) -> None:
    """From now on call `new` at every point of this process; only tests do so."""
    global _hook
    _hook = new


def killing(folder: str | Path) -> Hook:
    """A hook that kills this process where a file in `folder` says so."""
    return partial(_hit, Path(folder))


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


_FOLDER = os.environ.get("VIEWKEEPER_FAILPOINT_DIR")
_hook: Hook | None = killing(_FOLDER) if _FOLDER else None
