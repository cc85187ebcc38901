"""Environments: LMDB handles, one per path and process.

In: a directory. Out: an open environment with its named databases. Always: a process opens a path once (py-lmdb refuses
a second open) and opens it anew after a fork, and LMDB's errors leave here as ours.
"""

from __future__ import annotations

import os
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import lmdb

from viewkeeper.errors import CorruptStore, StoreError, StoreFull

# Reserved, not used: a sparse map never has to be resized under an open transaction. A process has 128 TiB of addresses.
BASE_MAP_BYTES = 1 << 40
PLACE_MAP_BYTES = 1 << 38
META_MAP_BYTES = 1 << 32
_READERS_MAX = 1024
_DATABASES_MAX = 8


@dataclass
class _Registry:
    """The handles of this process, and how many open stores use each directory.

    After a fork they are set aside, because LMDB forbids their use in a child: closing one there would free the slots of
    the parent's readers, and py-lmdb refuses a second open beside it. So the child is told to open the store itself.
    """

    pid: int = field(default_factory=os.getpid)
    handles: dict[Path, Environment] = field(default_factory=dict)
    users: Counter[Path] = field(default_factory=Counter)
    lock: threading.Lock = field(default_factory=threading.Lock)
    inherited: dict[Path, Environment] = field(default_factory=dict)

    def enter_process(self) -> None:
        if self.pid != os.getpid():
            self.inherited |= self.handles
            self.handles, self.users, self.lock, self.pid = {}, Counter(), threading.Lock(), os.getpid()


class Environment:
    """One LMDB environment and its databases."""

    def __init__(self, path: Path, databases: tuple[str, ...], *, synced: bool, map_bytes: int) -> None:
        self.path = path
        self.synced = synced
        try:
            self._env = lmdb.open(
                str(path),
                map_size=map_bytes,
                max_dbs=_DATABASES_MAX,
                max_readers=_READERS_MAX,
                sync=synced,
                metasync=synced,
                mode=0o600,
                readahead=False,
                max_spare_txns=4,
            )
            self._env.reader_check()  # frees the slots of readers that were killed
            self._databases = {name: self._env.open_db(name.encode()) for name in databases}
        except lmdb.Error as error:
            raise translate(error, path) from error
        self._file = _file_of(path)

    @contextmanager
    def read(self, database: str) -> Iterator[lmdb.Transaction]:
        """A read transaction: one consistent state of this environment."""
        with _translated(self.path), self._env.begin(db=self._databases[database]) as transaction:
            yield transaction

    @contextmanager
    def write(self, database: str) -> Iterator[lmdb.Transaction]:
        """The write transaction: commits at the end, aborts on any error."""
        with _translated(self.path), self._env.begin(db=self._databases[database], write=True) as transaction:
            yield transaction

    def open_snapshot(self, database: str) -> lmdb.Transaction:
        """A read transaction for the caller to hold and to end."""
        with _translated(self.path):
            return self._env.begin(db=self._databases[database])

    def last_change(self) -> int:
        """A number that every commit of any process raises; cheaper than a read transaction."""
        return self._env.info()["last_txnid"]

    def database(self, name: str) -> object:
        return self._databases[name]

    def sync(self) -> None:
        """Everything committed so far survives a power loss from here on."""
        with _translated(self.path):
            self._env.sync(True)

    def pass_writer_lock(self) -> None:
        """Return when every write transaction that was open at the call has ended."""
        with _translated(self.path):
            self._env.begin(write=True).abort()

    def is_on_disk(self) -> bool:
        """Whether the file that is open is still the one under its name."""
        return _file_of(self.path) == self._file

    def close(self) -> None:
        self._env.close()


def _file_of(path: Path) -> tuple[int, int] | None:
    try:
        facts = (path / "data.mdb").stat()
    except OSError:
        return None
    return facts.st_dev, facts.st_ino


_REGISTRY = _Registry()


def open_environment(path: Path, databases: tuple[str, ...], *, synced: bool, map_bytes: int) -> Environment:
    """The process's handle of `path`, which is absolute; opened at first use."""
    _REGISTRY.enter_process()
    known = _REGISTRY.handles.get(path)
    if known is None:
        with _REGISTRY.lock:
            known = _REGISTRY.handles.get(path)
            if path in _REGISTRY.inherited:
                raise StoreError(
                    "the store was open when this process was forked off",
                    "close it before the fork, or start processes by spawn: multiprocessing.get_context('spawn')",
                )
            if known is None:
                known = _REGISTRY.handles[path] = Environment(path, databases, synced=synced, map_bytes=map_bytes)
    return known


def enter_directory(path: Path) -> None:
    """Count one more open store in a directory; handles of a store that was removed from there are closed."""
    _REGISTRY.enter_process()
    with _REGISTRY.lock:
        _REGISTRY.users[path] += 1
        for below in [handle for handle in _REGISTRY.handles if handle.is_relative_to(path)]:
            if not _REGISTRY.handles[below].is_on_disk():
                _REGISTRY.handles.pop(below).close()


def leave_directory(path: Path) -> None:
    """Count one less; with the last one gone the environments below the directory are closed."""
    _REGISTRY.enter_process()
    with _REGISTRY.lock:
        _REGISTRY.users[path] -= 1
        if _REGISTRY.users[path] <= 0:
            for below in [handle for handle in _REGISTRY.handles if handle.is_relative_to(path)]:
                _REGISTRY.handles.pop(below).close()


def remove_environment(path: Path) -> None:
    """Delete an environment from disk; nobody else may have it open."""
    with _REGISTRY.lock:
        known = _REGISTRY.handles.pop(path, None)
        if known is not None:
            known.close()
    for file in path.glob("*.mdb"):
        file.unlink()


def translate(error: lmdb.Error, path: Path) -> StoreError:
    """Our error for one of LMDB's."""
    if isinstance(error, lmdb.MapFullError | lmdb.DiskError) and "space" in str(error).lower():
        return StoreFull(f"no space left for {path.name}", "free space on the disk; what was acknowledged is safe")
    if isinstance(error, lmdb.MapFullError):
        return StoreFull(f"the map of {path.name} is full", "what was acknowledged is safe")
    if isinstance(error, lmdb.CorruptedError | lmdb.InvalidError | lmdb.VersionMismatchError | lmdb.PanicError):
        return CorruptStore(f"{path.name} is not a readable LMDB environment", "restore the store from a backup")
    return StoreError(f"{path.name}: {error}")


@contextmanager
def _translated(path: Path) -> Iterator[None]:
    try:
        yield
    except lmdb.Error as error:
        raise translate(error, path) from error
