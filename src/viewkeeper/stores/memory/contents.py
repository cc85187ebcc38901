"""Contents: what a memory store holds, and where all open stores of this process are found by name.

In: a URL `memory:[NAME][?nodes=N&before_images=off&cells=on&seed=N]`. Out: the contents of that name, made when there
are none. Always: they exist for as long as a store of that name is open, and end with the last one that is closed or
garbage collected. A forked process has none of them.
"""

from __future__ import annotations

import os
import threading
import time
import uuid
import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from viewkeeper.errors import Fenced, InputError, StoreError
from viewkeeper.model.epochs import EpochRecord
from viewkeeper.ports.meta import Holder, already_running
from viewkeeper.stores.memory.cells import CellPlace
from viewkeeper.stores.memory.meta import Meta
from viewkeeper.stores.memory.network import HostileNetwork, Network
from viewkeeper.stores.memory.node import Node
from viewkeeper.stores.memory.partition import Partition
from viewkeeper.stores.nodestore import StoreLayout
from viewkeeper.stores.placement import first_slots
from viewkeeper.stores.urls import require_same, split_url

_OPTIONS = ("nodes", "before_images", "cells", "seed")
_PARTITIONS = 8
_User = TypeVar("_User")


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout(StoreLayout):
    """What was fixed when the store was made."""

    name: str
    cells: bool  # views are cells without transactions
    seed: int | None  # of the faults of their requests


class Contents:
    """The state of one store; writers hold `lock`."""

    def __init__(self, layout: Layout) -> None:
        self.layout = layout
        self.lock = threading.RLock()
        self.nodes = {number: self.new_node(number) for number in range(layout.nodes)}
        self.cells = [CellPlace(self.lock) for _ in range(layout.partitions if layout.cells else 0)]
        self.partitions: Sequence[Partition] = self.cells or [Partition(self.lock) for _ in range(layout.partitions)]
        self.network = Network() if layout.seed is None else HostileNetwork(layout.seed)
        self.meta = Meta(EpochRecord.first(layout.incarnation), self.lock, layout.nodes)
        self.altering = threading.Lock()  # held by one who adds or removes a node
        self.admitted = 0  # the newest epoch admitted to write cells
        self.process = os.getpid()
        self.claim: Claim | None = None  # of the living pipeline
        self.users: weakref.WeakSet[object] = weakref.WeakSet()  # the open stores
        self._clock_base = time.time_ns() - time.monotonic_ns()

    def new_node(self, number: int) -> Node:
        first = first_slots(number, self.layout.nodes)
        return Node(number, self.lock, before_images=self.layout.before_images, first_slots=first)

    def now(self) -> int:
        """Nanoseconds on the store's clock."""
        return self._clock_base + time.monotonic_ns()


class Claim:
    """The right to run the store's pipeline, held from construction to `release`."""

    def __init__(self, contents: Contents, *, take_over: bool, instead_of: Holder | None) -> None:
        self._contents = contents
        self.is_held = True
        self.holder = Holder(contents.process, time.monotonic_ns())
        with contents.lock:
            has_moved = contents.claim is not None and instead_of not in (None, contents.claim.holder)
            if contents.claim is not None and (has_moved or not take_over):
                raise already_running(contents.claim.holder)
            contents.claim = self

    def beat(self, waits: str = "") -> None:
        with self._contents.lock:
            if self._contents.claim is not self:
                raise Fenced("another pipeline took this store over", "stop this one")
            self.holder = Holder(self._contents.process, time.monotonic_ns(), waits)

    def release(self) -> None:
        with self._contents.lock:
            self.is_held = False
            if self._contents.claim is self:
                self._contents.claim = None


def enter(url: str, use: Callable[[Contents], _User], *, create: bool) -> _User:
    """The user that `use` makes for the contents that a URL names."""
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
        _require_same(options, contents.layout)
        user = use(contents)
        contents.users.add(user)
    return user


def leave(contents: Contents, user: object) -> None:
    """`user` is done with them; the last one removes the name."""
    with _ENTRANCE:
        contents.users.discard(user)
        if not contents.users and _OPEN.get(contents.layout.name) is contents:
            del _OPEN[contents.layout.name]


def _new_layout(name: str, options: dict[str, str]) -> Layout:
    incarnation = uuid.uuid4().hex
    images, cells = options.get("before_images") != "off", options.get("cells") == "on"
    seed = int(options["seed"]) if "seed" in options else None
    if seed is not None and not cells:
        raise InputError("a seed is for a store of cells", "write memory:?cells=on&seed=N, or leave the seed out")
    return Layout(
        name=name or incarnation,
        nodes=int(options.get("nodes", 1)),
        partitions=_PARTITIONS,
        incarnation=incarnation,
        before_images=images,
        cells=cells,
        seed=seed,
    )


def _require_same(options: dict[str, str], layout: Layout) -> None:
    """Raise where options differ from what was fixed when the store was made."""
    require_same(options, nodes=layout.nodes, before_images=layout.before_images)
    made = {"cells": "on" if layout.cells else "off", "seed": "none" if layout.seed is None else str(layout.seed)}
    for name, value in made.items():
        if options.get(name, value) != value:
            raise InputError(
                f"the store was made with {name}={value}, not {options[name]}",
                f"that is fixed when the store is made: leave ?{name} out",
            )


def _forget_in_child() -> None:
    """In a forked child: the parent's open stores stay the parent's; here they would be other stores."""
    _OPEN.clear()
    _ENTRANCE.release()


_OPEN: weakref.WeakValueDictionary[str, Contents] = weakref.WeakValueDictionary()
_ENTRANCE = threading.Lock()
os.register_at_fork(before=_ENTRANCE.acquire, after_in_parent=_ENTRANCE.release, after_in_child=_forget_in_child)
