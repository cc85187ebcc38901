"""Environments: LMDB handles, one per path and process.

In: a directory. Out: an open environment with its named databases. Always: a process opens a path once (py-lmdb refuses
a second open) and opens it anew after a fork, and LMDB's errors leave here as ours.
"""

from __future__ import annotations

import fcntl
import os
import threading
from collections import Counter
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import lmdb

from viewkeeper.errors import CorruptStore, StoreError, StoreFull, StoreInUse
from viewkeeper.stores.embedded.pages import let_go_of_pages

# Reserved, not used: a sparse map never has to be resized under an open transaction. A process has 128 TiB of addresses.
BASE_MAP_BYTES = 1 << 40
PLACE_MAP_BYTES = 1 << 38
META_MAP_BYTES = 1 << 32
_READERS_MAX = 1024
_DATABASES_MAX = 8
_PIECE_BYTES = 1 << 20
_PAGES_OF_NONE = 3  # two meta pages, and the list of databases


@dataclass
class _Registry:
    """The handles of this process, how many open stores use each directory, and the lock that says so to others.

    After a fork they are set aside, because LMDB forbids their use in a child: closing one there would free the slots of
    the parent's readers, and py-lmdb refuses a second open beside it. So the child is told to open the store itself.
    """

    pid: int = field(default_factory=os.getpid)
    handles: dict[Path, Environment] = field(default_factory=dict)
    users: Counter[Path] = field(default_factory=Counter)
    lock: threading.Lock = field(default_factory=threading.Lock)
    inherited: dict[Path, Environment] = field(default_factory=dict)
    shares: dict[Path, int] = field(default_factory=dict)  # descriptors of `store.json`, each with a shared lock
    closed: set[Path] = field(default_factory=set)  # directories whose files are being swapped

    def enter_process(self) -> None:
        if self.pid != os.getpid():
            self.inherited |= self.handles
            for share in self.shares.values():  # the parent keeps its own; ours would only outlive it
                os.close(share)
            self.shares, self.closed = {}, set()
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

    def open_snapshot(self, database: str | None = None) -> lmdb.Transaction:
        """A read transaction for the caller to hold and to end; without a database it is for `copy` and `bytes_used`."""
        with _translated(self.path):
            return self._env.begin(db=self._databases[database] if database else None)

    def copy(self, snapshot: lmdb.Transaction) -> Generator[bytes]:
        """What the snapshot sees, compacted, as the bytes of a new data file.

        LMDB writes into a pipe: its reader can count, digest and stop at any piece.
        """
        reader, writer = os.pipe()
        failures: list[Exception] = []
        thread = threading.Thread(target=self._copy_into, args=(writer, snapshot, failures), daemon=True)
        thread.start()
        try:
            while piece := os.read(reader, _PIECE_BYTES):
                yield piece
        finally:
            os.close(reader)  # a copy that nobody reads any more ends with an error
            thread.join()
        if failures and isinstance(failures[0], lmdb.Error):
            raise translate(failures[0], self.path) from failures[0]
        if failures:  # a build of LMDB without py-lmdb's own changes cannot copy what an open transaction sees
            raise StoreError(f"{self.path.name} cannot be copied: {failures[0]}", "pip install the wheel of lmdb")

    def _copy_into(self, writer: int, snapshot: lmdb.Transaction, failures: list[Exception]) -> None:
        try:
            self._env.copyfd(writer, compact=True, txn=snapshot)
        except Exception as error:  # raised again by the reader of the pipe
            failures.append(error)
        finally:
            os.close(writer)

    def bytes_used(self, snapshot: lmdb.Transaction) -> int:
        """About how large a copy of what the snapshot sees will be."""
        stats = [snapshot.stat(database) for database in self._databases.values()]
        pages = sum(stat["branch_pages"] + stat["leaf_pages"] + stat["overflow_pages"] for stat in stats)
        return (pages + _PAGES_OF_NONE) * self._env.stat()["psize"]

    def last_change(self) -> int:
        """A number that every commit of any process raises; cheaper than a read transaction."""
        return self._env.info()["last_txnid"]

    def database(self, name: str) -> object:
        return self._databases[name]

    def sync(self) -> None:
        """Everything committed so far survives a power loss from here on."""
        with _translated(self.path):
            self._env.sync(True)

    @contextmanager
    def writer_lock_held(self) -> Iterator[None]:
        """Within the block nobody writes here; nothing is written by it."""
        with _translated(self.path):
            transaction = self._env.begin(write=True)
        try:
            yield
        finally:
            transaction.abort()

    def pass_writer_lock(self) -> None:
        """Return when every write transaction that was open at the call has ended."""
        with _translated(self.path):
            self._env.begin(write=True).abort()

    def let_go_of_pages(self) -> None:
        """What was read is not held any longer; it stays in the system's cache."""
        let_go_of_pages(self.path / "data.mdb")

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
            if path.parent in _REGISTRY.closed:
                raise StoreInUse("the store is being compacted", "wait until it is done")
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
        _share(path)
        _REGISTRY.users[path] += 1
        for below in [handle for handle in _REGISTRY.handles if handle.is_relative_to(path)]:
            if not _REGISTRY.handles[below].is_on_disk():
                _REGISTRY.handles.pop(below).close()


def _share(path: Path) -> None:
    """Take part in the directory's shared lock; one who needs the store alone takes it exclusively.

    It is an OS lock on `store.json`: a killed process lets go of it. A store that was made anew has another file.
    """
    known = _REGISTRY.shares.get(path)
    descriptor = os.open(path / "store.json", os.O_RDONLY | os.O_CLOEXEC)
    if known is not None and os.path.sameopenfile(known, descriptor):
        os.close(descriptor)
        return
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        raise StoreInUse(f"the store at {path} is being compacted", "try again when that has ended") from None
    if known is not None:
        os.close(known)
    _REGISTRY.shares[path] = descriptor


def leave_directory(path: Path) -> None:
    """Count one less; with the last one gone the environments below the directory are closed."""
    _REGISTRY.enter_process()
    with _REGISTRY.lock:
        _REGISTRY.users[path] -= 1
        if _REGISTRY.users[path] <= 0:
            _close_below(path)
            if (share := _REGISTRY.shares.pop(path, None)) is not None:
                os.close(share)


@contextmanager
def directory_taken(path: Path) -> Iterator[None]:
    """Within the block one open store of this process, and nobody else, uses the directory."""
    with _REGISTRY.lock:
        users, share = _REGISTRY.users[path], _REGISTRY.shares[path]
        if users > 1:
            raise StoreInUse(f"this process has the store open {users} times", "close the other databases first")
        try:
            fcntl.flock(share, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            fcntl.flock(share, fcntl.LOCK_SH)  # asking for more gave up what we had
            raise StoreInUse(f"the store is open in {_holders(share)}", "end that first, Spark's workers too") from None
    try:
        yield
    finally:
        fcntl.flock(share, fcntl.LOCK_SH)


def _holders(share: int) -> str:
    """The processes that share a file's lock, as Linux lists them."""
    facts = os.fstat(share)
    file = f"{os.major(facts.st_dev):02x}:{os.minor(facts.st_dev):02x}:{facts.st_ino}"
    try:
        lines = [line.split() for line in Path("/proc/locks").read_text().splitlines()]
    except OSError:
        lines = []
    pids = {int(line[4]) for line in lines if len(line) > 5 and line[1] == "FLOCK" and line[5] == file} - {os.getpid()}
    return f"process {', '.join(map(str, sorted(pids)))}" if pids else "another process"


@contextmanager
def directory_closed(path: Path) -> Iterator[None]:
    """Within the block this process has no environment of the directory open, and opens none by `open_environment`."""
    with _REGISTRY.lock:
        _REGISTRY.closed.add(path)
        _close_below(path)
    try:
        yield
    finally:
        _REGISTRY.closed.discard(path)


def close_environments(path: Path) -> None:
    """Close the handles of the environments below a directory that no open store uses."""
    with _REGISTRY.lock:
        _close_below(path)


def _close_below(path: Path) -> None:
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
