"""Contents: what a memory store holds, meta among it, and where all open stores of this process are found by name.

In: a URL `memory:[NAME][?nodes=N&before_images=off&cells=on&seed=N]`. Out: the contents of that name, made when there
are none. Always: they exist for as long as a store of that name is open, and end with the last one that is closed or
garbage collected; a forked process has none of them. Meta keeps JSON as text, so no caller changes what another one
reads; epoch record and catalog are each replaced by test-and-set on their version (R5), the horizon with them.
"""

from __future__ import annotations

import json
import os
import threading
import time
import uuid
import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from threading import RLock
from typing import TypeVar

from viewkeeper.errors import CorruptStore, Fenced, InputError, StoreError
from viewkeeper.model.epochs import EpochRecord, record_from_json, record_to_json
from viewkeeper.model.read_frontier import Horizon, horizon_bytes, parse_horizon
from viewkeeper.ports.meta import Holder, already_running
from viewkeeper.stores.catalog_json import CatalogText
from viewkeeper.stores.local_store import StoreLayout
from viewkeeper.stores.memory.node import Node
from viewkeeper.stores.memory.partition import Partition
from viewkeeper.stores.memory.simulated_cells import CellPartition, HostileNetwork, Network
from viewkeeper.stores.open import require_same, split_url
from viewkeeper.stores.placement import Placement, fills_from, first_slots


class Meta:
    """The small facts of a store."""

    def __init__(self, record: EpochRecord, lock: RLock, nodes: int) -> None:
        self._lock = lock
        self._placement = Placement.first(nodes)
        self._record = json.dumps(record_to_json(record))
        self._text = CatalogText()
        self._catalog = b"{}"
        self._horizon = horizon_bytes(record_to_json(record), 0)
        self._plans: dict[str, str] = {}
        self._notes: dict[str, str] = {}

    def read_epoch_record(self) -> EpochRecord:
        return record_from_json(json.loads(self._record))

    def read_catalog(self) -> dict:
        return self._text.read(self._catalog)

    def read_horizon(self) -> Horizon:
        return parse_horizon(self._horizon)

    def swap_epoch_record(self, expected_version: int, record: EpochRecord) -> bool:
        with self._lock:
            is_expected = json.loads(self._record)["version"] == expected_version
            instant = fills_from(record)
            if instant is not None and self._placement.may_have_moved(instant):
                return False
            if is_expected:
                self._replace(json.dumps(record_to_json(record)), self._catalog)
            return is_expected

    def keep_plan(self, digest: str, plan: dict) -> None:
        """Store a plan; of the others only that of the epoch in flight is kept."""
        with self._lock:
            inflight = self.read_epoch_record().inflight
            kept = (digest, inflight.plan) if inflight else (digest,)
            plans = self._plans | {digest: json.dumps(plan)}
            self._plans = {name: text for name, text in plans.items() if name in kept}

    def read_plan(self, digest: str) -> dict:
        if digest not in self._plans:
            raise CorruptStore(f"the plan {digest} of an epoch is not there", "make a new store")
        return json.loads(self._plans[digest])

    def keep_note(self, name: str, note: dict) -> None:
        self._notes = {**self._notes, name: json.dumps(note)}

    def read_note(self, name: str) -> dict:
        return json.loads(self._notes.get(name, "{}"))

    def read_placement(self) -> Placement:
        return self._placement

    def change_placement(self, change: Callable[[Placement, EpochRecord], Placement]) -> Placement:
        with self._lock:
            self._placement = change(self._placement, self.read_epoch_record())
            return self._placement

    def swap_catalog(self, expected_version: int, catalog: dict) -> bool:
        with self._lock:
            is_expected = self.read_catalog().get("version", 0) == expected_version
            if is_expected:
                self._replace(self._record, self._text.write(catalog))
            return is_expected

    def _replace(self, record: str, catalog: bytes) -> None:
        horizon = horizon_bytes(json.loads(record), self._text.read(catalog).get("version", 0))
        # in this order: a reader without the lock finds a catalog at least as new as the horizon read before it
        self._record, self._catalog, self._horizon = record, catalog, horizon


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
        self.cells = [CellPartition(self.lock) for _ in range(layout.partitions if layout.cells else 0)]
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
