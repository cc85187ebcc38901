"""The pipeline's lock: an OS lock that ends with its process, and a sign of life for those who wait for it.

In: a file. Out: a held lock, or PipelineRunning with the pid of its holder. Always: after a crash, kill -9 included,
the lock is free; no flag and no file is left that a person must remove. Who takes over renames a file of its own to the
lock's name, so that the lock of the one before is on a file without a name.
"""

from __future__ import annotations

import os
import time
from pathlib import Path

from viewkeeper.errors import Fenced, PipelineRunning
from viewkeeper.ports.meta import Holder, already_running
from viewkeeper.stores.embedded.heldfile import HeldFile, locked
from viewkeeper.stores.embedded.newdirectory import no_space_told

_FLAGS = os.O_RDWR | os.O_CREAT
_BYTES = 512


class PipelineLock:
    """Held from construction to `release`."""

    def __init__(self, file: Path, *, take_over: bool, instead_of: Holder | None = None) -> None:
        self._path = file
        found = _take(file)
        if found is None and not take_over:
            raise already_running(read_holder(file))
        self._file = _take_over(file, instead_of) if found is None else found
        try:
            self._beat()
        except BaseException:
            self.release()
            raise

    @property
    def is_held(self) -> bool:
        return self._file.is_open

    def beat(self, waits: str = "") -> None:
        if not self._file.is_at(self._path):
            raise Fenced("another pipeline took this store over", "stop this one")
        self._beat(waits)

    def release(self) -> None:
        self._file.close()

    def _beat(self, waits: str = "") -> None:
        # one write of the same size each time: a reader finds this beat or the one before, and a full disk is no trouble
        text = f"{os.getpid()} {time.monotonic_ns()} {' '.join(waits.split())}".encode()[: _BYTES - 1]
        with no_space_told(self._path.name):
            os.pwrite(self._file.descriptor, text.ljust(_BYTES - 1) + b"\n", 0)


def _take(file: Path) -> HeldFile | None:
    """The lock, if it is free."""
    while True:
        held = HeldFile(file, _FLAGS)
        if not held.lock(exclusive=True):
            held.close()
            return None
        if held.is_at(file):
            return held
        held.close()  # another took over between the two: what we hold has no name any more


def _take_over(file: Path, instead_of: Holder | None) -> HeldFile:
    """The lock, whoever has it; with `instead_of` only if that is who has it, and as of that beat."""
    with locked(file.parent):  # of several who take over at once one is the first, and the others notice
        if instead_of is not None and read_holder(file) != instead_of:
            raise PipelineRunning("a pipeline of this store is running again", "wait until it is silent")
        newer = file.with_suffix(f".{os.getpid()}")
        held = HeldFile(newer, _FLAGS)
        held.lock(exclusive=True)
        newer.rename(file)
        return held


def read_holder(file: Path) -> Holder | None:
    """Who wrote the last beat, whether or not it still has the lock."""
    try:
        words = file.read_text(errors="ignore").split(maxsplit=2)
    except FileNotFoundError:
        return None
    is_beat = len(words) > 1 and all(map(str.isdecimal, words[:2]))
    return Holder(int(words[0]), int(words[1]), "".join(words[2:]).strip()) if is_beat else None


def holder_of(file: Path) -> int | None:
    """The pid of the pipeline that holds the lock; None when none does."""
    try:
        held = HeldFile(file)
    except FileNotFoundError:
        return None
    try:
        holder = None if held.lock(exclusive=False) else read_holder(file)
        return None if holder is None else holder.pid
    finally:
        held.close()
