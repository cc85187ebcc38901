"""Environments: one LMDB environment, open in this process.

In: a folder and the part of a store that it holds. Out: transactions. Always: LMDB's errors are raised as ours; a
closed environment ends with its last transaction, never during it; and nothing is committed to a file that has been
replaced under its name.
"""

from __future__ import annotations

import ctypes
import os
import threading
import time
from collections.abc import Generator, Iterator
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path

import lmdb

from viewkeeper.errors import StoreError, StoreInUse, StoreReplaced, ViewKeeperError
from viewkeeper.stores.kv.atomic_directory import translate_no_space
from viewkeeper.stores.kv.file_locks import BUSY_SECONDS, FileLock, WriterMutex, locked, open_writer_mutex
from viewkeeper.stores.kv.kernel import Kernel
from viewkeeper.stores.kv.lmdb_files import (
    DATABASES_MAX,
    IDENTITY,
    READERS_MAX,
    Part,
    readers_full,
    require_whole,
    translate,
)
from viewkeeper.stores.kv.lmdb_maps import LmdbMap, map_of

_PIECE_BYTES = 1 << 20
_PAGES_OF_NONE = 3  # two meta pages, and the list of databases
_LOOK_SECONDS = 0.1
_DATA, _LOCK = "data.mdb", "lock.mdb"
_MAPS = Path("/proc/self/maps")  # only on Linux
_DONT_NEED = 4  # MADV_DONTNEED of <sys/mman.h>


class Environment(Kernel):
    """A kernel on LMDB; `lockless` where the folder cannot be written: LMDB has no readers' table, so nobody may write it."""

    def __init__(
        self, path: Path, part: Part, *, synced: bool, lockless: bool = False, busy_seconds: float = BUSY_SECONDS
    ) -> None:
        self.path = path
        self.synced = synced
        self._writer: WriterMutex | None = None  # opened with the first write
        self._busy_seconds = busy_seconds
        self._running: list[None] = []  # an item for each transaction
        self._refusal: ViewKeeperError | None = None  # why no new ones are begun
        self._is_shut = False
        self._settling = threading.Lock()
        require_whole(path / _DATA)
        self._file = FileLock(path / _DATA)
        try:
            with self.translated(), nullcontext() if lockless else _lock_shared(path, self._file, busy_seconds):
                self._env = self._open(part, lockless=lockless)
            self._databases = self._open_databases(part)
        except BaseException:
            self._file.close()
            raise
        self._last_written = self.last_change() if lockless else None
        self._folder, self._seen, self._look_at = os.fspath(path), (0, 0, 0), 0.0
        self._files = _files_of(path)
        if not self._file.is_at(path / _DATA):
            self.close(self._replaced())
            raise self._replaced()

    def _open(self, part: Part, *, lockless: bool) -> lmdb.Environment:
        try:
            return lmdb.open(
                str(self.path),
                map_size=part.map_bytes,
                max_dbs=DATABASES_MAX,
                max_readers=READERS_MAX,
                sync=self.synced,
                metasync=self.synced,
                mode=0o600,
                readahead=False,
                max_spare_txns=4,
                readonly=lockless,
                lock=not lockless,
            )
        except lmdb.Error as error:
            raise translate(error, self.path, map_bytes=part.map_bytes) from error

    def _open_databases(self, part: Part) -> dict[str, object]:
        try:
            with self.translated():
                self._env.reader_check()  # frees the slots of readers that were killed
                with self._env.begin() as transaction:
                    part.require_identity(self.path, transaction.get(IDENTITY))
                return {name: self._env.open_db(name.encode(), create=False) for name in part.databases}
        except BaseException:
            self._env.close()
            raise

    @contextmanager
    def read(self, name: str, *, buffers: bool = False) -> Iterator[LmdbMap]:
        self._begin()
        try:
            with self._begin_reading(buffers=buffers) as transaction:
                yield map_of(transaction, self._databases, name)
        except lmdb.Error as error:
            raise translate(error, self.path) from error
        finally:
            self._end()

    @contextmanager
    def write(self, name: str, *, buffers: bool = False) -> Iterator[LmdbMap]:
        self._begin()
        try:
            lock = self._acquire()
            try:
                with self._env.begin(write=True, buffers=buffers) as transaction:
                    yield map_of(transaction, self._databases, name)
                    self.require_in_place()
            finally:
                lock.release()
        except lmdb.Error as error:
            raise translate(error, self.path) from error
        finally:
            self._end()

    def _begin_reading(self, *, buffers: bool = False) -> lmdb.Transaction:
        try:
            return self._env.begin(buffers=buffers)
        except lmdb.ReadersFullError:
            self._env.reader_check()  # some may belong to killed processes
        try:
            return self._env.begin(buffers=buffers)
        except lmdb.ReadersFullError as error:
            raise readers_full(self.path.name, self._env.readers()) from error

    def _acquire(self) -> WriterMutex:
        if self._writer is None:
            with self._settling, translate_no_space(str(self.path)):
                self._writer = self._writer or open_writer_mutex(self.path, self._busy_seconds)
        self._writer.acquire(self._busy_seconds)
        return self._writer

    def clear_stale_readers(self) -> None:
        """Free what killed readers held: the pages they saw can be reused."""
        with self._used():
            if self._last_written is None:
                self._env.reader_check()

    @contextmanager
    def held(self, name: str) -> Iterator[LmdbMap]:
        with self.snapshot() as transaction:
            yield self.map_in(transaction, name)

    @contextmanager
    def snapshot(self) -> Iterator[lmdb.Transaction]:
        """A read transaction that may outlive many others, for `copy`, `bytes_used` and `map_in`."""
        with self._used():
            transaction = self._begin_reading()
            try:
                yield transaction
            finally:
                transaction.abort()

    def map_in(self, snapshot: lmdb.Transaction, name: str) -> LmdbMap:
        return map_of(snapshot, self._databases, name)

    def copy(self, snapshot: lmdb.Transaction) -> Generator[bytes]:
        """The bytes of a new data file, compacted, of what the snapshot sees; through a pipe, so its reader may stop."""
        reader, writer = os.pipe()
        failures: list[Exception] = []

        def copy() -> None:
            try:
                self._env.copyfd(writer, compact=True, txn=snapshot)
            except Exception as error:  # raised again by the reader of the pipe
                failures.append(error)
            finally:
                os.close(writer)

        thread = threading.Thread(target=copy, daemon=True)
        thread.start()
        try:
            while piece := os.read(reader, _PIECE_BYTES):
                yield piece
        finally:
            os.close(reader)  # a copy without a reader ends with an error
            thread.join()
        if failures and isinstance(failures[0], lmdb.Error):
            raise translate(failures[0], self.path) from failures[0]
        if failures:  # a build of LMDB without py-lmdb's own changes cannot copy what an open transaction sees
            raise StoreError(f"{self.path.name} cannot be copied: {failures[0]}", "pip install the wheel of lmdb")

    def bytes_used(self, snapshot: lmdb.Transaction) -> int:
        """The approximate size of a copy of what the snapshot sees."""
        stats = [snapshot.stat(database) for database in self._databases.values()]
        pages = sum(stat["branch_pages"] + stat["leaf_pages"] + stat["overflow_pages"] for stat in stats)
        return (pages + _PAGES_OF_NONE) * self._env.stat()["psize"]

    def last_change(self) -> int:
        """A number that every commit of any process raises; cheaper than a read transaction."""
        try:
            return self._env.info()["last_txnid"]
        except lmdb.Error as error:
            raise translate(error, self.path) from error

    @contextmanager
    def translated(self) -> Iterator[None]:
        try:
            yield
        except lmdb.Error as error:
            raise translate(error, self.path) from error

    def sync(self) -> None:
        """What it promises is true of the file under our name."""
        with self._used():
            self._env.sync(True)
            self.require_in_place()

    @contextmanager
    def writer_lock_held(self) -> Iterator[None]:
        """Within the block there are no writers here; it writes nothing itself."""
        with self._used():
            if self._last_written is not None:  # where we cannot lock, there are no writers
                yield
                return
            lock = self._acquire()
            try:
                transaction = self._env.begin(write=True)
                try:
                    yield
                finally:
                    transaction.abort()
            finally:
                lock.release()

    def pass_writer_lock(self) -> None:
        with self.writer_lock_held():
            pass

    def let_go_of_pages(self) -> None:
        """Remove the pages of the data file from this process's resident memory; they stay in the system's cache.

        A process that reads a long log would otherwise seem to hold all of it, and be killed first when memory is short.
        """
        advise = getattr(ctypes.CDLL(None), "madvise", None)
        if advise is None or not _MAPS.exists():
            return
        mapped = os.fsencode(self.path / _DATA)
        for line in _MAPS.read_bytes().splitlines():
            if line.endswith(b" " + mapped):
                start, end = (int(address, 16) for address in line.split(b" ", 1)[0].split(b"-"))
                advise(ctypes.c_void_p(start), ctypes.c_size_t(end - start), _DONT_NEED)

    def require_in_place(self) -> None:
        """A folder with the same identity and time of change holds the same files as at the last check."""
        try:
            facts = os.stat(self._folder)
            seen = facts.st_dev, facts.st_ino, facts.st_mtime_ns
        except OSError:
            seen = (0, 0, 0)
        if seen != self._seen or not seen[0]:
            data, lock = _files_of(self.path)
            is_our_lock = lock in (None, self._files[1]) or self._last_written is not None
            if data != self._files[0] or not is_our_lock:
                raise self._replaced()
            self._seen = seen

    def _replaced(self) -> StoreReplaced:
        return StoreReplaced(
            f"the store at {self.path.parent} was removed or replaced while it was open ({self.path.name})",
            "connect again; nothing was written to the one that is there now",
        )

    def look(self) -> None:
        """At most ten times a second."""
        now = time.monotonic()
        if now >= self._look_at:
            self._look_at = now + _LOOK_SECONDS
            self.require_in_place()

    def is_in_place(self) -> bool:
        with suppress(StoreReplaced):
            self.require_in_place()
            return True
        return False

    def close(self, refusal: ViewKeeperError) -> bool:
        """Begin no more transactions, and close when the last one has ended; returns whether it has."""
        self._refusal = refusal
        self._settle()
        return self._is_shut

    def close_if_idle(self, refusal: ViewKeeperError) -> bool:
        """Close unless a transaction is open; returns whether it is closed."""
        return not self._running and (self.close(refusal) or not self.reopen())

    def reopen(self) -> bool:
        """Undo `close`; False when it is too late."""
        with self._settling:
            if not self._is_shut:
                self._refusal = None
            return not self._is_shut

    def _begin(self) -> None:
        self._running.append(None)  # before the check: `close` does it in reverse order, so one sees the other
        if self._refusal is not None:
            refusal = self._refusal
            self._end()
            raise type(refusal)(refusal.fact, refusal.hint)
        if self._last_written is not None and self.last_change() != self._last_written:
            self._end()
            raise StoreInUse(
                f"{self.path} is being written, and cannot be locked from here",
                "open it from a process that can write the directory",
            )

    def _end(self) -> None:
        self._running.pop()
        if self._refusal is not None:
            self._settle()

    @contextmanager
    def _used(self) -> Iterator[None]:
        self._begin()
        try:
            with self.translated():
                yield
        finally:
            self._end()

    def _settle(self) -> None:
        if self._refusal is None:
            return
        with self._settling:
            if self._refusal is not None and not self._is_shut and not self._running:
                self._is_shut = True
                self._env.close()
                self._file.close()
                if self._writer is not None:
                    self._writer.close()


def _files_of(path: Path) -> list[tuple[int, int] | None]:
    """Which files are under the names of the data file and of LMDB's lock file."""
    found: list[tuple[int, int] | None] = []
    for name in (_DATA, _LOCK):
        try:
            facts = os.stat(path / name)
            found.append((facts.st_dev, facts.st_ino))
        except OSError:
            found.append(None)
    return found


@contextmanager
def _lock_shared(path: Path, file: FileLock, seconds: float) -> Iterator[None]:
    """After the block this process shares the lock of the data file: the environment is in use.

    LMDB would make a missing lock file anew, and two would write at once if others still have the old one open: so the
    process that makes it must be the only one.
    """
    with locked(path, seconds):
        if not (path / _LOCK).exists() and not file.lock(exclusive=True):
            raise StoreInUse(
                f"{path / _LOCK} was removed while {file.holders()} has the store open",
                "end that process, then open the store again; writing beside it would lose writes",
            )
        yield
        file.lock(exclusive=False)
