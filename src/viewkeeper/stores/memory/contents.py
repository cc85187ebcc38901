"""Contents: what a memory store holds, and where all that are open in this process are found by name.

In: a URL `memory:[NAME][?nodes=N&before_images=off]`. Out: the contents of that name, made when there are none. Always: they
are there for as long as a store of that name is open, and go with the last one that is closed or that nobody has any more.
A process that is forked off has none of them.
"""

from __future__ import annotations

import os
import threading
import time
import uuid
import weakref
from dataclasses import dataclass

from viewkeeper.errors import InputError, PipelineRunning, StoreError
from viewkeeper.model.epochs import EpochRecord
from viewkeeper.stores.memory.meta import Meta
from viewkeeper.stores.memory.node import Node
from viewkeeper.stores.memory.place import Place
from viewkeeper.stores.urls import require_same, split_url

_OPTIONS = ("nodes", "before_images")
_PLACES = 8


@dataclass(frozen=True, slots=True)
class Layout:
    """What was fixed when the store was made."""

    name: str
    nodes: int
    before_images: bool
    incarnation: str
    places: int = _PLACES

    @property
    def url(self) -> str:
        return f"memory:{self.name}"


class Contents:
    """The state of one store; writers hold `lock`."""

    def __init__(self, layout: Layout) -> None:
        self.layout = layout
        self.lock = threading.RLock()
        self.nodes = [Node(n, before_images=layout.before_images) for n in range(layout.nodes)]
        self.places = [Place() for _ in range(layout.places)]
        self.meta = Meta(EpochRecord.first(layout.incarnation))
        self.process = os.getpid()
        self.claim: Claim | None = None  # of the pipeline that lives
        self.users: weakref.WeakSet[object] = weakref.WeakSet()  # the stores that are open
        self._clock_base = time.time_ns() - time.monotonic_ns()

    def now(self) -> int:
        """Nanoseconds on the store's clock."""
        return self._clock_base + time.monotonic_ns()


class Claim:
    """The right to run the store's pipeline, held from construction to `release`."""

    def __init__(self, contents: Contents, *, take_over: bool) -> None:
        self._contents = contents
        self.is_held = True
        with contents.lock:
            if contents.claim is not None and not take_over:
                raise PipelineRunning(
                    f"a pipeline of this store is running, pid {contents.process}",
                    "stop it, or pass take_over=True to fence it off",
                )
            contents.claim = self

    def release(self) -> None:
        with self._contents.lock:
            self.is_held = False
            if self._contents.claim is self:
                self._contents.claim = None


def enter(url: str, user: object, *, create: bool) -> Contents:
    """The contents that a URL names, from here on used by `user`."""
    name, options = split_url(url, _OPTIONS)
    if not url.startswith("memory:"):
        raise InputError(f"{url!r} is not the URL of a store", "write memory:NAME, or memory: for a new one")
    with _ENTRANCE:
        contents = _OPEN.get(name)
        if contents is None:
            if not create:
                fact = f"there is no store {url} in this process" if name else "memory: alone is a new store each time"
                raise StoreError(fact, "connect without read_only to make one")
            contents = Contents(_new_layout(name, options))
            _OPEN[contents.layout.name] = contents
        layout = contents.layout
        require_same(options, nodes=layout.nodes, before_images=layout.before_images)
        contents.users.add(user)
    return contents


def leave(contents: Contents, user: object) -> None:
    """`user` is done with them; the last one takes the name with it."""
    with _ENTRANCE:
        contents.users.discard(user)
        if not contents.users and _OPEN.get(contents.layout.name) is contents:
            del _OPEN[contents.layout.name]


def _new_layout(name: str, options: dict[str, str]) -> Layout:
    incarnation = uuid.uuid4().hex
    images = options.get("before_images") != "off"
    return Layout(name or incarnation, int(options.get("nodes", 1)), images, incarnation)


def _forget_in_child() -> None:
    """In a forked child: what the parent has open is the parent's, and would be another store from here on."""
    _OPEN.clear()
    _ENTRANCE.release()


_OPEN: weakref.WeakValueDictionary[str, Contents] = weakref.WeakValueDictionary()
_ENTRANCE = threading.Lock()
os.register_at_fork(before=_ENTRANCE.acquire, after_in_parent=_ENTRANCE.release, after_in_child=_forget_in_child)
