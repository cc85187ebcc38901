"""The directory of a check: private, and gone with it, also after kill -9.

In: nothing. Out: a directory below TMPDIR. Always: it holds copies of rows, so whoever comes next removes those of checks
that were killed; a check that lives holds a lock in its own.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

_PREFIX, _LOCK = "viewkeeper-check-", "lock"


@contextlib.contextmanager
def check_folder() -> Iterator[Path]:
    """A new directory, for as long as the block lasts."""
    _remove_left()
    with tempfile.TemporaryDirectory(prefix=_PREFIX) as name:  # its mode is 0700
        new = Path(name, "new")
        with new.open("wb") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            new.rename(Path(name, _LOCK))  # under its name it is always held, or its check is dead
            yield Path(name)


def _remove_left() -> None:
    """Remove the directories of this user's checks that were killed; those of others, and half-made ones, stay."""
    for folder in Path(tempfile.gettempdir()).glob(f"{_PREFIX}*"):
        with contextlib.suppress(OSError):  # it lives (BlockingIOError), or somebody else removes it
            if folder.is_symlink() or folder.stat().st_uid != os.geteuid():
                continue
            with (folder / _LOCK).open("r+b") as lock:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(folder)
