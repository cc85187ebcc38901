"""Directories: what this process has open of a store, shared by all its open stores there.

In: a layout. Out: the environments of the store. Always: a process opens a part once (py-lmdb refuses a second open). A
directory refers to the store that was there when it was entered: its users get an error when another one is there.
"""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from weakref import WeakSet, finalize

from viewkeeper.errors import InputError, StoreBusy, StoreError, StoreInUse, StoreReplaced, ViewKeeperError
from viewkeeper.stores.kv.file_locks import FileLock
from viewkeeper.stores.kv.lmdb_environment import Environment
from viewkeeper.stores.kv.lmdb_files import Part, make_part
from viewkeeper.stores.local.layout import Layout

_CLOSED = InputError("the database is closed", "connect again")
_COMPACTED = StoreInUse("the store is being compacted", "try again when that has ended")
_RETIRED = StoreBusy("a node was removed in this moment", "try again")
_FORKED = StoreError(
    "the store was open when this process was forked off",
    "close it before the fork, or start processes by spawn: multiprocessing.get_context('spawn')",
)


class Directory:
    """The open parts of one store; `enter_directory` makes one."""

    def __init__(self, layout: Layout) -> None:
        self.layout = layout
        self.users = 0
        self._share = FileLock(layout.file)
        self._handles: dict[str, Environment] = {}
        self._late: list[Environment] = []  # closed, except for transactions that have not ended
        self._refusal: ViewKeeperError | None = None  # why there are no handles
        self._lock = threading.Lock()
        _ALL.add(self)

    def environment(self, part: Part, *, synced: bool) -> Environment:
        """The process's handle of a part, opened at first use."""
        handle = self._handles.get(part.name)
        return self._open(part, synced=synced) if handle is None else handle

    def _open(self, part: Part, *, synced: bool) -> Environment:
        with self._lock:
            if self._refusal is not None:
                raise type(self._refusal)(self._refusal.fact, self._refusal.hint)
            path = self.layout.path / part.name
            if any(handle.path == path and handle.is_in_place() for handle in _INHERITED):
                raise StoreError(_FORKED.fact, _FORKED.hint)
            if part.name not in self._handles:
                lockless = not self.layout.is_writable
                self._handles[part.name] = Environment(
                    path, part, synced=synced, lockless=lockless, busy_seconds=self.layout.busy_seconds
                )
            return self._handles[part.name]

    def close_idle(self, part: Part) -> bool:
        """Close the handle of a part that is hardly used any more; False while a transaction is open there."""
        with self._lock:
            handle = self._handles.get(part.name)
            if handle is not None and not handle.close_if_idle(_RETIRED):
                return False
            self._handles.pop(part.name, None)
            return True

    def is_current(self, layout: Layout) -> bool:
        """Whether this is the store that the layout was read from, and all its open files still exist."""
        same = (self.layout.facts, self.layout.is_writable) == (layout.facts, layout.is_writable)
        if not same or (self._share.is_open and not self._share.is_at(layout.file)):
            return False
        return all(handle.is_in_place() for handle in (*self._handles.values(), *self._late))

    def remake(self, part: Part) -> None:
        """Delete a part from disk and make it anew, empty; no other process may have it open."""
        with self._lock:
            known = self._handles.pop(part.name, None)
            if known is not None:
                known.close(_CLOSED)
            for file in (self.layout.path / part.name).glob("*.mdb"):
                file.unlink()
            make_part(self.layout.path / part.name, part)

    def leave(self) -> None:
        """Remove one user; after the last one everything is closed, once its transactions have ended."""
        with _ENTERING:
            self.users -= 1
            if self.users <= 0:
                self._close(_CLOSED)
                self._share.close()
                if not self._late and _OPEN.get(self.layout.path) is self:
                    del _OPEN[self.layout.path]

    def leave_when_gone(self, user: object) -> finalize:
        """Call `leave` once a user was collected as garbage; `detach` what this returns before leaving.

        A collector may hold our locks at that moment: so it is noted, and done by the next who needs the users.
        """
        leaving = finalize(user, _ABANDONED.append, self)
        leaving.atexit = False
        return leaving

    @contextmanager
    def taken(self) -> Iterator[None]:
        """Within the block one open store of this process, and no other, uses the directory."""
        with _ENTERING:
            _leave_abandoned()
            if self.users > 1:
                raise StoreInUse(
                    f"this process has the store open {self.users} times", "close the other databases first"
                )
            if not self._share.lock(exclusive=True):
                self._share.lock(exclusive=False)  # asking for more released what we had
                raise StoreInUse(f"the store is open in {self._share.holders()}", "end that first, Spark's workers too")
        try:
            yield
        finally:
            self._share.lock(exclusive=False)

    @contextmanager
    def files_closed(self) -> Iterator[None]:
        """Within the block this process has no part of the store open, and `environment` opens none."""
        self._close(_COMPACTED)
        try:
            if self._late:
                raise StoreInUse("a snapshot or scan of this process is open", "end it first")
            yield
        finally:
            self._reopen()

    def _enter(self) -> None:
        if self.users == 0:
            if not self._share.is_open:
                self._share = FileLock(self.layout.file)
            self._take_part()
            self._reopen()
        self.users += 1

    def _take_part(self) -> None:
        """Share the lock of `store.json`: a process that needs the store alone takes it exclusively.

        Where we cannot write, LMDB cannot tell writers what we read: so no process that can write may have the store open.
        """
        if self.layout.is_writable:
            if not self._share.lock(exclusive=False):
                raise StoreInUse(f"the store at {self.layout.path} is being compacted", _COMPACTED.hint)
        elif self._share.lock(exclusive=True):
            self._share.unlock()
        else:
            raise StoreInUse(
                f"{self.layout.path} cannot be written from here, and is open in {self._share.holders()}",
                "open it from a process that can write the directory, or restore a backup of it here",
            )

    def _close(self, refusal: ViewKeeperError) -> None:
        with self._lock:
            self._refusal = refusal
            handles, self._handles = self._handles, {}
            self._late = [handle for handle in (*self._late, *handles.values()) if not handle.close(refusal)]

    def _reopen(self) -> None:
        with self._lock:
            self._refusal = None
            self._handles = {handle.path.name: handle for handle in self._late if handle.reopen()}
            self._late = []


_ENTERING = threading.RLock()
_OPEN: dict[Path, Directory] = {}  # the store at each path, as known to this process
_ALL: WeakSet[Directory] = WeakSet()
_ABANDONED: deque[Directory] = deque()  # one item for each user that is gone without `leave`
_INHERITED: list[Environment] = []


def enter_directory(layout: Layout) -> Directory:
    """The directory of the store, with one more user."""
    with _ENTERING:
        _leave_abandoned()
        known = _OPEN.get(layout.path)
        if known is not None and not known.is_current(layout):
            reason = f"the store at {layout.path} was replaced by another"
            known._close(StoreReplaced(reason, "use a database that was opened since"))
            known = None
        entered = known or Directory(layout)
        try:
            entered._enter()
        except BaseException:
            if entered.users == 0:
                entered._share.close()
            raise
        _OPEN[layout.path] = entered
        return entered


def _leave_abandoned() -> None:
    while _ABANDONED:
        _ABANDONED.popleft().leave()


def _set_inherited_aside() -> None:
    """In a forked child, because LMDB forbids using handles there.

    Closing one would free the slots of the parent's readers, and py-lmdb refuses a second open beside it. The child must
    open the store itself, forked before the parent opened it, or in a spawned process.
    """
    global _ENTERING
    _ENTERING = threading.RLock()
    _OPEN.clear()
    for directory in list(_ALL):
        directory._lock = threading.Lock()
        _INHERITED.extend((*directory._handles.values(), *directory._late))
        directory._handles, directory._late, directory._refusal = {}, [], _FORKED


os.register_at_fork(after_in_child=_set_inherited_aside)
