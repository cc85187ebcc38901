"""The writer's lock: LMDB's write transactions one at a time, with a bounded wait.

In: an environment's directory. Out: the lock, or StoreBusy with the process that holds it. Always: it is taken before
LMDB's own, whose wait is unbounded: a writer that was stopped in its transaction, by SIGSTOP or a debugger, delays
others and does not hang them. One that was killed delays nobody.

It is a robust mutex in a file that all processes map, like LMDB's own: taken and released without a system call while
nobody waits, and waited for in the kernel's queue. The wait of `flock` is unbounded too, and polling would let a busy
writer starve the others.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import mmap
import os
import time
from pathlib import Path

from viewkeeper.errors import StoreBusy
from viewkeeper.stores.embedded.heldfile import locked

_FILE = "writer.lock"
_BYTES = 4096
_HOLDER = slice(256, 264)  # after the mutex, which has 40 to 64 bytes
_SHARED = _ROBUST = 1  # PTHREAD_PROCESS_SHARED, PTHREAD_MUTEX_ROBUST


class _Timespec(ctypes.Structure):
    _fields_ = (("seconds", ctypes.c_long), ("nanoseconds", ctypes.c_long))


_QUICK = ctypes.PyDLL(None)  # keeps the interpreter's lock: these calls never wait
_WAITING = ctypes.CDLL(None)  # releases it
IS_SUPPORTED = hasattr(_QUICK, "pthread_mutex_timedlock") and hasattr(_QUICK, "pthread_mutexattr_setrobust")


def open_writer_lock(folder: Path, seconds: float) -> WriterLock:
    """The lock of an environment, one process at a time; without such a mutex, one that lets everybody through to LMDB's."""
    if not IS_SUPPORTED:
        return WriterLock()
    with locked(folder, seconds):
        return RobustLock(folder)


class WriterLock:
    """A lock that excludes nobody."""

    def acquire(self, seconds: float) -> None:
        """Take the lock; StoreBusy after so many seconds."""

    def release(self) -> None:
        """Release the lock."""

    def close(self) -> None:
        """Close the lock's file."""


class RobustLock(WriterLock):
    """Opened with the first write to its environment, and closed with it."""

    def __init__(self, folder: Path) -> None:
        # its own file: closing any descriptor of `lock.mdb` would release LMDB's locks on it
        self._descriptor = os.open(folder / _FILE, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            is_first = _take(self._descriptor)
            if is_first:
                os.pwrite(self._descriptor, bytes(_BYTES), 0)  # a hole on a full file system would end us by SIGBUS
            self._map = mmap.mmap(self._descriptor, _BYTES)
            self._mutex = ctypes.addressof(ctypes.c_char.from_buffer(self._map))
            if is_first:
                _make_mutex(self._mutex)
            fcntl.flock(self._descriptor, fcntl.LOCK_SH)
        except BaseException:
            os.close(self._descriptor)
            raise
        self._mutex_at = ctypes.c_void_p(self._mutex)
        self._pid = os.getpid().to_bytes(8, "little")

    def acquire(self, seconds: float) -> None:
        found = _QUICK.pthread_mutex_trylock(self._mutex_at)
        if found == errno.EBUSY:
            until = time.time() + seconds
            moment = _Timespec(int(until), int(until % 1 * 1e9))
            found = _WAITING.pthread_mutex_timedlock(self._mutex_at, ctypes.byref(moment))
        if found == errno.EOWNERDEAD:
            _QUICK.pthread_mutex_consistent(self._mutex_at)  # LMDB undoes what the dead writer left
        elif found:
            raise self._busy(seconds)
        self._map[_HOLDER] = self._pid

    def release(self) -> None:
        self._map[_HOLDER] = bytes(8)
        _QUICK.pthread_mutex_unlock(self._mutex_at)

    def close(self) -> None:
        os.close(self._descriptor)

    def _busy(self, seconds: float) -> StoreBusy:
        holder = int.from_bytes(self._map[_HOLDER], "little")
        who = f"process {holder}" if holder else "another process"
        return StoreBusy(
            f"{who} has been writing for more than {seconds:g} s, and lets nobody else write",
            "if it was stopped, let it go on or end it; ?busy_timeout=SECONDS in the URL waits longer",
        )


def _take(descriptor: int) -> bool:
    """Whether no other process has the lock's file open: then its mutex is stale, and is made anew."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        fcntl.flock(descriptor, fcntl.LOCK_SH)  # at once: its maker, who held the folder's lock, is done
        return False
    return True


def _make_mutex(address: int) -> None:
    attributes = ctypes.create_string_buffer(64)
    _QUICK.pthread_mutexattr_init(attributes)
    _QUICK.pthread_mutexattr_setpshared(attributes, _SHARED)
    _QUICK.pthread_mutexattr_setrobust(attributes, _ROBUST)
    _QUICK.pthread_mutex_init(ctypes.c_void_p(address), attributes)
    _QUICK.pthread_mutexattr_destroy(attributes)
