"""Held files: open files whose OS locks signal something to other processes.

In: a path. Out: a descriptor and the locks on it. Always: a lock ends with its process; a forked child releases its
copy at once, so that an idle child holds nothing for a parent that has closed or died.
"""

from __future__ import annotations

import errno
import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from viewkeeper.errors import StoreBusy
from viewkeeper.stores.embedded.newdirectory import too_many_files

BUSY_SECONDS = 60.0  # how long to wait for others, where a URL does not say
_POLL_SECONDS = 0.005


class HeldFile:
    """A file that is open, in this process alone, from construction to `close`."""

    def __init__(self, path: Path, flags: int = os.O_RDONLY) -> None:
        # close-on-exec keeps Spark's JVM and its Python workers from inheriting the lock and holding it longer than we
        # do
        try:
            self._descriptor: int | None = os.open(path, flags | os.O_CLOEXEC, 0o600)
        except OSError as error:
            if error.errno != errno.EMFILE:
                raise
            raise too_many_files(path) from error
        _HELD.add(self)

    @property
    def is_open(self) -> bool:
        return self._descriptor is not None

    @property
    def descriptor(self) -> int:
        if self._descriptor is None:
            raise ValueError("the file is closed")
        return self._descriptor

    def lock(self, *, exclusive: bool) -> bool:
        """Take the lock, or change the one held; False when others hold it, and then we hold none."""
        try:
            fcntl.flock(self.descriptor, (fcntl.LOCK_EX if exclusive else fcntl.LOCK_SH) | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True

    def unlock(self) -> None:
        fcntl.flock(self.descriptor, fcntl.LOCK_UN)

    def is_at(self, path: Path) -> bool:
        """Whether this is the file under that name."""
        try:
            return os.path.samestat(os.fstat(self.descriptor), os.stat(path))
        except OSError:
            return False

    def holders(self) -> str:
        """The other processes that hold a lock of the file, as text, as Linux lists them."""
        facts = os.fstat(self.descriptor)
        file = f"{os.major(facts.st_dev):02x}:{os.minor(facts.st_dev):02x}:{facts.st_ino}"
        try:
            lines = [line.split() for line in Path("/proc/locks").read_text().splitlines()]
        except OSError:
            lines = []
        pids = {int(line[4]) for line in lines if len(line) > 5 and line[1] == "FLOCK" and line[5] == file}
        others = sorted(pids - {os.getpid()})
        return f"process {', '.join(map(str, others))}" if others else "another process"

    def close(self) -> None:
        if self._descriptor is not None:
            try:
                self.unlock()  # a child that was just forked off has the descriptor too, until it gets as far as letting go
            finally:
                self._let_go()

    def _let_go(self) -> None:
        descriptor, self._descriptor = self.descriptor, None  # first: a child forked off now must not close it again
        _HELD.discard(self)
        os.close(descriptor)


_HELD: set[HeldFile] = set()


def _let_all_go() -> None:
    """In a forked child: the parent keeps its own descriptors and locks; ours would only outlive it."""
    for file in list(_HELD):
        file._let_go()


os.register_at_fork(after_in_child=_let_all_go)


@contextmanager
def locked(path: Path, seconds: float = BUSY_SECONDS) -> Iterator[None]:
    """A directory's lock: one process at a time makes or repairs what is in it; StoreBusy after so many seconds.

    It is held for moments, and asked for again and again: `flock` itself would wait for a stopped process without a limit.
    """
    held, until = HeldFile(path), time.monotonic() + seconds
    try:
        while not held.lock(exclusive=True):
            if time.monotonic() >= until:
                raise StoreBusy(
                    f"{held.holders()} has been opening or changing {path} for more than {seconds:g} s",
                    "if it was stopped, let it go on or end it; ?busy_timeout=SECONDS in the URL waits longer",
                )
            time.sleep(_POLL_SECONDS)
        yield
    finally:
        held.close()
