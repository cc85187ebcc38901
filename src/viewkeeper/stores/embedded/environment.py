"""Environments: LMDB handles, one per path and process.

In: a directory. Out: an open environment with its named databases. Always: a process opens a path once (py-lmdb refuses
a second open) and opens it anew after a fork, and LMDB's errors leave here as ours.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import lmdb

from viewkeeper.errors import CorruptStore, StoreError, StoreFull

MAP_SIZE = 1 << 40  # reserved, not used: a sparse map never has to be resized under an open transaction
_READERS_MAX = 1024
_DATABASES_MAX = 8


@dataclass
class _Registry:
    """The handles of this process; forgotten after a fork, because LMDB forbids their use in a child."""

    pid: int = 0
    handles: dict[Path, Environment] = field(default_factory=dict)
    lock: threading.Lock = field(default_factory=threading.Lock)


class Environment:
    """One LMDB environment and its databases."""

    def __init__(self, path: Path, databases: tuple[str, ...], *, synced: bool) -> None:
        self.path = path
        try:
            self._env = lmdb.open(
                str(path),
                map_size=MAP_SIZE,
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

    def close(self) -> None:
        self._env.close()


_REGISTRY = _Registry()


def open_environment(path: Path, databases: tuple[str, ...], *, synced: bool) -> Environment:
    """The process's handle of `path`, opened at first use."""
    path = path.resolve()
    if _REGISTRY.pid != os.getpid():
        _REGISTRY.handles, _REGISTRY.lock, _REGISTRY.pid = {}, threading.Lock(), os.getpid()
    with _REGISTRY.lock:
        known = _REGISTRY.handles.get(path)
        if known is None or not path.exists():
            known = _REGISTRY.handles[path] = Environment(path, databases, synced=synced)
        return known


def remove_environment(path: Path) -> None:
    """Delete an environment from disk; nobody else may have it open."""
    with _REGISTRY.lock:
        known = _REGISTRY.handles.pop(path.resolve(), None)
        if known is not None and _REGISTRY.pid == os.getpid():
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
