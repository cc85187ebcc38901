"""The pipeline's lock: an OS lock that ends with its process.

In: a file. Out: a held lock, or PipelineRunning with the pid of its holder. Always: after a crash, kill -9 included,
the lock is free; no flag and no file is left that a person must remove.
"""

from __future__ import annotations

import os
from pathlib import Path

from viewkeeper.errors import PipelineRunning
from viewkeeper.stores.embedded.heldfile import HeldFile

_FLAGS = os.O_RDWR | os.O_CREAT


class PipelineLock:
    """Held from construction to `release`."""

    def __init__(self, file: Path, *, take_over: bool) -> None:
        self._file = HeldFile(file, _FLAGS)
        if not self._file.lock(exclusive=True):
            holder = os.read(self._file.descriptor, 32).decode().strip() or "unknown"
            self._file.close()
            if not take_over:
                raise PipelineRunning(
                    f"a pipeline of this store is running, pid {holder}",
                    "stop it, or pass take_over=True to fence it off",
                )
            # The epoch record fences the holder off. From here on its lock is on a file without a name.
            newer = file.with_suffix(f".{os.getpid()}")
            self._file = HeldFile(newer, _FLAGS)
            self._file.lock(exclusive=True)
            newer.rename(file)
        os.ftruncate(self._file.descriptor, 0)
        os.write(self._file.descriptor, f"{os.getpid()}\n".encode())

    @property
    def is_held(self) -> bool:
        return self._file.is_open

    def release(self) -> None:
        self._file.close()


def holder_of(file: Path) -> int | None:
    """The pid of the pipeline that holds the lock; None when none does."""
    try:
        held = HeldFile(file)
    except FileNotFoundError:
        return None
    try:
        if held.lock(exclusive=False):
            return None
        text = os.read(held.descriptor, 32).decode().strip()
        return int(text) if text.isdecimal() else None
    finally:
        held.close()
