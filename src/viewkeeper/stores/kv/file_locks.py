"""File locks: locks between processes that end with the process that holds them.

In: a file or a directory. Out: a held lock, or an error that names its holder. Always: after a crash, kill -9 included, a
lock is free; a forked child releases its copies at once.

`FileLock` is an open file with the lock of the system. `WriterMutex` lets one process at a time write to an
environment: a robust mutex in a file that all processes map. It is taken before LMDB's own, whose wait is unbounded, as
is that of `flock`; polling would let a busy writer starve the others. `PipelineLock` is held by the running pipeline,
which writes its heartbeat to it; who takes over renames a file of its own to the lock's name.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import mmap
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path

from viewkeeper.errors import Fenced, PipelineRunning, StoreBusy
from viewkeeper.ports.meta import Holder, already_running
from viewkeeper.stores.kv.atomic_directory import too_many_files, translate_no_space

BUSY_SECONDS = 60.0  # how long to wait for others, where a URL does not say
_POLL_SECONDS = 0.005
_HINT = "if it was stopped, let it go on or end it; ?busy_timeout=SECONDS in the URL waits longer"


class FileLock:
    """A file that is open, in this process alone, from construction to `close`."""

    def __init__(self, path: Path, flags: int = os.O_RDONLY) -> None:
        # close-on-exec: else Spark's JVM and its Python workers would inherit the lock and hold it longer than we do
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
        with suppress(OSError):
            return os.path.samestat(os.fstat(self.descriptor), os.stat(path))
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


_HELD: set[FileLock] = set()


def _let_all_go() -> None:
    """In a forked child: the parent keeps its own descriptors and locks; ours would only outlive it."""
    for file in list(_HELD):
        file._let_go()


os.register_at_fork(after_in_child=_let_all_go)


@contextmanager
def locked(path: Path, seconds: float = BUSY_SECONDS) -> Iterator[None]:
    """A directory's lock, for one process at a time to make or repair what is in it; StoreBusy after so many seconds.

    It is held for moments, and polled: `flock` itself would wait for a stopped process without a limit.
    """
    held, until = FileLock(path), time.monotonic() + seconds
    try:
        while not held.lock(exclusive=True):
            if time.monotonic() >= until:
                raise StoreBusy(
                    f"{held.holders()} has been opening or changing {path} for more than {seconds:g} s", _HINT
                )
            time.sleep(_POLL_SECONDS)
        yield
    finally:
        held.close()


_MUTEX_FILE = "writer.lock"
_MUTEX_BYTES = 4096
_HOLDER = slice(256, 264)  # after the mutex, which has 40 to 64 bytes
_SHARED = _ROBUST = 1  # PTHREAD_PROCESS_SHARED, PTHREAD_MUTEX_ROBUST


class _Timespec(ctypes.Structure):
    _fields_ = (("seconds", ctypes.c_long), ("nanoseconds", ctypes.c_long))


_QUICK = ctypes.PyDLL(None)  # keeps the interpreter's lock: these calls never wait
_WAITING = ctypes.CDLL(None)  # releases it
IS_SUPPORTED = hasattr(_QUICK, "pthread_mutex_timedlock") and hasattr(_QUICK, "pthread_mutexattr_setrobust")


def open_writer_mutex(folder: Path, seconds: float) -> WriterMutex:
    """The lock of an environment, one process at a time; without such a mutex, one that lets everybody through to LMDB's."""
    if not IS_SUPPORTED:
        return WriterMutex()
    with locked(folder, seconds):
        return RobustMutex(folder)


class WriterMutex:
    """A lock that excludes nobody."""

    def acquire(self, seconds: float) -> None:
        """Take the lock; StoreBusy after so many seconds."""

    def release(self) -> None:
        """Release the lock."""

    def close(self) -> None:
        """Close the lock's file."""


class RobustMutex(WriterMutex):
    """Opened with the first write to its environment, and closed with it."""

    def __init__(self, folder: Path) -> None:
        # its own file: closing any descriptor of `lock.mdb` would release LMDB's locks on it
        self._descriptor = os.open(folder / _MUTEX_FILE, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            is_first = _is_first_user(self._descriptor)
            if is_first:
                os.pwrite(self._descriptor, bytes(_MUTEX_BYTES), 0)  # a hole on a full disk would end us by SIGBUS
            self._map = mmap.mmap(self._descriptor, _MUTEX_BYTES)
            self._mutex = ctypes.c_void_p(ctypes.addressof(ctypes.c_char.from_buffer(self._map)))
            if is_first:
                attributes = ctypes.create_string_buffer(64)
                _QUICK.pthread_mutexattr_init(attributes)
                _QUICK.pthread_mutexattr_setpshared(attributes, _SHARED)
                _QUICK.pthread_mutexattr_setrobust(attributes, _ROBUST)
                _QUICK.pthread_mutex_init(self._mutex, attributes)
                _QUICK.pthread_mutexattr_destroy(attributes)
            fcntl.flock(self._descriptor, fcntl.LOCK_SH)
        except BaseException:
            os.close(self._descriptor)
            raise
        self._pid = os.getpid().to_bytes(8, "little")

    def acquire(self, seconds: float) -> None:
        found = _QUICK.pthread_mutex_trylock(self._mutex)
        if found == errno.EBUSY:
            until = time.time() + seconds
            moment = _Timespec(int(until), int(until % 1 * 1e9))
            found = _WAITING.pthread_mutex_timedlock(self._mutex, ctypes.byref(moment))
        if found == errno.EOWNERDEAD:
            _QUICK.pthread_mutex_consistent(self._mutex)  # LMDB undoes what the dead writer left
        elif found:
            holder = int.from_bytes(self._map[_HOLDER], "little")
            who = f"process {holder}" if holder else "another process"
            raise StoreBusy(f"{who} holds the writer's lock, and this process waited {seconds:g} s in vain", _HINT)
        self._map[_HOLDER] = self._pid

    def release(self) -> None:
        self._map[_HOLDER] = bytes(8)
        _QUICK.pthread_mutex_unlock(self._mutex)

    def close(self) -> None:
        os.close(self._descriptor)


def _is_first_user(descriptor: int) -> bool:
    """Whether no other process has the lock's file open: then its mutex is stale, and is made anew."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        fcntl.flock(descriptor, fcntl.LOCK_SH)  # at once: its maker, who held the folder's lock, is done
        return False
    return True


_FLAGS = os.O_RDWR | os.O_CREAT
_HEARTBEAT_BYTES = 512


class PipelineLock:
    """Held from construction to `release`."""

    def __init__(self, file: Path, *, take_over: bool, instead_of: Holder | None = None) -> None:
        self._path = file
        found = _take_if_free(file)
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
        text = f"{os.getpid()} {time.monotonic_ns()} {' '.join(waits.split())}".encode()[: _HEARTBEAT_BYTES - 1]
        with translate_no_space(self._path.name):
            os.pwrite(self._file.descriptor, text.ljust(_HEARTBEAT_BYTES - 1) + b"\n", 0)


def _take_if_free(file: Path) -> FileLock | None:
    """The lock, if it is free."""
    while True:
        held = FileLock(file, _FLAGS)
        if not held.lock(exclusive=True):
            time.sleep(_POLL_SECONDS)  # of one who only looks whether it is held, for a moment
            if not held.lock(exclusive=True):
                held.close()
                return None
        if held.is_at(file):
            return held
        held.close()  # another took over between the two: what we hold has no name any more


def _take_over(file: Path, instead_of: Holder | None) -> FileLock:
    """The lock, whoever has it; with `instead_of` only if that is who has it, and as of that beat."""
    with locked(file.parent):  # of several who take over at once one is the first, and the others notice
        if instead_of is not None and read_holder(file) != instead_of:
            raise PipelineRunning("the other pipeline of this store runs again", "stop it, or wait until it ends")
        newer = file.with_suffix(f".{os.getpid()}")
        held = FileLock(newer, _FLAGS)
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


def holder_of(file: Path) -> Holder | None:
    """Who wrote the last beat, and whether it still has the lock."""
    try:
        held = FileLock(file)
    except FileNotFoundError:
        return None
    try:
        is_live = not held.lock(exclusive=False)
        holder = read_holder(file)
        return None if holder is None else replace(holder, is_live=is_live)
    finally:
        held.close()
