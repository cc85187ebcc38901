"""The memory store: a local store in this process's memory, for tests; and where open ones are found by name.

In: a URL `memory:[NAME][?nodes=N&before_images=off]`. Out: a store of that name, made when there is none. Always: what a
name has exists for as long as a store of that name is open in this process; a forked process has none of it.
"""

from __future__ import annotations

import os
import threading
import time
import uuid
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from viewkeeper.errors import Fenced, InputError, StoreBusy, StoreError, StoreInUse
from viewkeeper.model.epochs import EpochRecord
from viewkeeper.ports.admin import Progress
from viewkeeper.ports.meta import Holder, already_running, claimed
from viewkeeper.stores.kv.memory_kernel import MemoryKernel
from viewkeeper.stores.local.local_store import LocalStore
from viewkeeper.stores.local.meta import StoreLayout
from viewkeeper.stores.open import require_same, split_url

_OPTIONS = ("nodes", "before_images")
_PARTITIONS = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout(StoreLayout):
    """What was fixed when the store was made."""

    name: str


class Contents:
    """What all open stores of one name share."""

    def __init__(self, name: str, options: dict[str, str]) -> None:
        incarnation = uuid.uuid4().hex
        self.layout = layout = Layout(
            name=name or incarnation,
            nodes=int(options.get("nodes", 1)),
            partitions=_PARTITIONS,
            incarnation=incarnation,
            before_images=options.get("before_images") != "off",
        )
        nodes, partitions = range(layout.nodes), range(layout.partitions)
        parts = ("meta", *(f"node-{number}" for number in nodes), *(f"partition-{number}" for number in partitions))
        self.kernels = {part: MemoryKernel() for part in parts}
        self.altering = threading.Lock()  # held by one who adds or removes a node
        self.process = os.getpid()
        self.claiming = threading.Lock()
        self.claim: Claim | None = None  # of the living pipeline
        self.users: weakref.WeakSet[MemoryStore] = weakref.WeakSet()  # the open stores
        self._clock_base = time.time_ns() - time.monotonic_ns()

    def now(self) -> int:
        """Nanoseconds on the store's clock."""
        return self._clock_base + time.monotonic_ns()


class Claim:
    """The right to run the store's pipeline, held from construction to `release`."""

    def __init__(self, contents: Contents, *, take_over: bool, instead_of: Holder | None) -> None:
        self._contents = contents
        self.is_held = True
        self.holder = Holder(contents.process, time.monotonic_ns())
        with contents.claiming:
            has_moved = contents.claim is not None and instead_of not in (None, contents.claim.holder)
            if contents.claim is not None and (has_moved or not take_over):
                raise already_running(contents.claim.holder)
            contents.claim = self

    def beat(self, waits: str = "") -> None:
        with self._contents.claiming:
            if self._contents.claim is not self:
                raise Fenced("another pipeline took this store over", "stop this one")
            self.holder = Holder(self._contents.process, time.monotonic_ns(), waits)

    def release(self) -> None:
        with self._contents.claiming:
            self.is_held = False
            if self._contents.claim is self:
                self._contents.claim = None


class MemoryStore(LocalStore):
    """An open store; several of one name are one store."""

    many_processes = False
    layout: Layout

    def __init__(self, url: str, *, create: bool = True, read_only: bool = False) -> None:
        name, options = split_url(url, _OPTIONS)
        if not url.startswith("memory:"):
            raise InputError(f"{url!r} is not the URL of a store", "write memory:NAME, or memory: for a new one")
        with _ENTRANCE:
            contents = _OPEN.get(name)
            if contents is None:
                if not create:
                    none = f"there is no store {url} in this process"
                    fact = none if name else "memory: alone is a new store each time"
                    raise StoreError(fact, "connect without read_only to make one")
                contents = Contents(name, options)
            require_same(options, nodes=contents.layout.nodes, before_images=contents.layout.before_images)
            self._opened: Contents | None = contents
            super().__init__(contents.layout)
            self.meta.create_epoch_record(EpochRecord.first(contents.layout.incarnation))
            contents.users.add(self)
            _OPEN[contents.layout.name] = contents

    @property
    def url(self) -> str:
        return f"memory:{self.layout.name}"

    @property
    def _contents(self) -> Contents:
        contents = self._opened
        if contents is None:
            raise InputError("the database is closed", "connect again")
        if contents.process != os.getpid():
            raise InputError(
                f"{self.url} was opened before this process was forked off",
                "a memory store is of one process: connect here",
            )
        return contents

    def close(self) -> None:
        """Close; with the last open store of a name its rows and views are gone."""
        contents, self._opened = self._opened, None
        if contents is not None:
            with _ENTRANCE:
                contents.users.discard(self)
                if not contents.users and _OPEN.get(contents.layout.name) is contents:
                    del _OPEN[contents.layout.name]

    def now(self) -> int:
        return self._contents.now()

    # its parts

    def _handle(self, part: str) -> Callable[[], MemoryKernel]:
        return lambda: self._contents.kernels[part]

    def make_part(self, part: str) -> None:
        self._contents.kernels[part] = MemoryKernel()

    def _close_idle(self, part: str) -> bool:
        return True  # what is left of it is small

    @contextmanager
    def altering(self) -> Iterator[None]:
        lock = self._contents.altering
        if not lock.acquire(blocking=False):
            raise StoreBusy("another thread is adding or removing a node", "wait until it has ended")
        try:
            yield
        finally:
            lock.release()

    # the store as a whole

    def claim(self, *, take_over: bool, instead_of: Holder | None = None) -> Claim:
        return Claim(self._contents, take_over=take_over, instead_of=instead_of)

    def holder(self) -> Holder | None:
        claim = self._contents.claim
        return None if claim is None else claim.holder

    @contextmanager
    def alone(self) -> Iterator[Callable[[Progress | None], None]]:
        """Within the block no pipeline runs; StoreInUse if the store is open more than once. Python reuses free memory."""
        with claimed(self):
            if (users := len(self._contents.users)) > 1:
                raise StoreInUse(f"this process has the store open {users} times", "close the other databases first")
            yield lambda progress: None

    def _bytes_used(self) -> int:
        """The bytes of keys, rows, versions and log entries; Python needs some more for each."""
        return sum(kernel.size() for part, kernel in self._contents.kernels.items() if part != "meta")


def _forget_in_child() -> None:
    """In a forked child: the parent's open stores stay the parent's; here they would be other stores."""
    _OPEN.clear()
    _ENTRANCE.release()


_OPEN: weakref.WeakValueDictionary[str, Contents] = weakref.WeakValueDictionary()
_ENTRANCE = threading.Lock()
os.register_at_fork(before=_ENTRANCE.acquire, after_in_parent=_ENTRANCE.release, after_in_child=_forget_in_child)
