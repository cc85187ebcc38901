"""The pipeline's lock: an OS lock that dies with its process.

In: a file. Out: a held lock, or PipelineRunning with the pid of the one who holds it. Always: after a crash, kill -9
included, the lock is free; no flag and no file is left that a person must remove.
"""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

from viewkeeper.errors import PipelineRunning


class PipelineLock:
    """Held from construction to `release`."""

    def __init__(self, file: Path, *, take_over: bool) -> None:
        # close-on-exec keeps Spark's JVM and its Python workers from inheriting the lock and holding it after us
        self._descriptor: int | None = os.open(file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.read(self._descriptor, 32).decode().strip() or "unknown"
            os.close(self._descriptor)
            self._descriptor = None
            if not take_over:
                raise PipelineRunning(
                    f"a pipeline of this store is running, pid {holder}",
                    "stop it, or pass take_over=True to fence it off",
                ) from None
            # The epoch record fences the holder off. Its lock is on a file that has no name from here on.
            newer = file.with_suffix(f".{os.getpid()}")
            self._descriptor = os.open(newer, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            fcntl.flock(self._descriptor, fcntl.LOCK_EX)
            newer.rename(file)
        os.ftruncate(self._descriptor, 0)
        os.write(self._descriptor, f"{os.getpid()}\n".encode())

    @property
    def is_held(self) -> bool:
        return self._descriptor is not None

    def release(self) -> None:
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None


def holder_of(file: Path) -> int | None:
    """The pid of the pipeline that holds the lock; None when nobody does."""
    try:
        descriptor = os.open(file, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
        return None
    except BlockingIOError:
        text = os.read(descriptor, 32).decode().strip()
        return int(text) if text.isdecimal() else None
    finally:
        os.close(descriptor)
