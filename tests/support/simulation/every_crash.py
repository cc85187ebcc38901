"""Every crash of a short program: each place where it may end, and each place where those may end that take over.

In: a view. Out: how many schedules of crashes there are, and the runs that covered them; `Wrong` if one leaves anything
but what the run without a crash leaves, byte for byte. Always: a crash leaves what the store holds at that moment, and a
coordinator that takes over knows nothing else; so schedules that leave equal stores have equal futures, which one run shows.
Stores are equal but for generation, owner and the numbers of swaps.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass

import viewkeeper as vk
from tests.support.oracle import bag_of
from tests.support.running import HereRunner, keep_up
from tests.support.simulation.faults import Crash
from tests.support.simulation.kinds import COLUMNS, KINDS, TABLES, Kind, with_their_sources
from tests.support.simulation.recomputed import Base, Change
from tests.support.simulation.world import Wrong
from tests.support.sizes import require_right_sizes
from viewkeeper import failpoints
from viewkeeper.coordinator.coordinator import Coordinator
from viewkeeper.coordinator.gc import collect_garbage
from viewkeeper.settings import EpochLimits, GcSettings
from viewkeeper.stores.kv.memory_kernel import MemoryKernel
from viewkeeper.stores.local.log_format import position_of

LIMITS = EpochLimits(rows=6)
GC = GcSettings(log_kept_seconds=0, seconds_max=math.inf)
FIRST: list[list[Change]] = [
    [("l", "a", ("a", 1, 0.1, 1)), ("l", "b", ("a", 3, 1e16, 4))],
    [("l", "c", ("b", None, None, 16)), ("l", "d", (None, 2, 2.5, 64)), ("r", "a", ("a", 2))],
    [("r", "b", ("b", 4)), ("r", "c", ("a", None))],
]
LATER: list[list[Change]] = [
    [("l", "a", ("b", 4, 0.7, 257)), ("r", "d", ("a", 0))],  # a row moves to another group
    [("l", "b", None)],
    [("r", "a", None), ("l", "e", ("a", 2, -1e16, 1024))],
    [("l", "b", ("a", 0, 0.1, 4096))],  # one that was deleted comes back
]


@dataclass(frozen=True, slots=True)
class Covered:
    """How many schedules of one and of two crashes there are, and the runs, each from another store, that they come to."""

    one: int
    two: int
    runs: int


class Program:
    """A store with changes that wait, a view to replace and one to remove; and what a pipeline does with it."""

    def __init__(self, kind: Kind, *, before_images: bool) -> None:
        self.kind, self._time = kind, 1_700_000_000_000_000_000
        self.db = vk.connect(f"memory:?nodes=2&before_images={'on' if before_images else 'off'}")
        contents = self.db.store._contents
        contents.now = lambda: self._time
        self._kernels: dict[str, MemoryKernel] = contents.kernels
        self._seen: dict[str, tuple[dict, bytes]] = {}  # of each part, as last looked at
        self._base = Base()
        for ddl in TABLES.values():
            self.db.execute(ddl)
        self._write(FIRST)
        for one in with_their_sources([kind.name]):
            self.db.execute(one.create)
        self.db.execute("CREATE MATERIALIZED VIEW gone AS SELECT k FROM r")
        keep_up(self.db)
        self.db.execute("DROP MATERIALIZED VIEW gone")
        if not kind.index:
            self.db.execute(kind.replace)
        self._write(LATER)
        self.start = self.captured()

    def _write(self, transactions: list[list[Change]]) -> None:
        for changes in transactions:
            for change in changes:
                self._time += 1_000
                table, key, row = change
                if row is None:
                    self.db.table(table).delete(key)
                else:
                    self.db.table(table).put(key, dict(zip(list(COLUMNS[table])[1:], row, strict=True)))
                self._base.write([change], self.db.store.ends())
        self._time += 1_000

    # what a store holds

    def captured(self) -> dict[str, dict]:
        """All of it, to be put back: maps that never change."""
        return {part: kernel.maps for part, kernel in self._kernels.items()}

    def put_back(self, captured: dict[str, dict]) -> None:
        for part, maps in captured.items():
            self._kernels[part].maps = maps

    def ending(self) -> list:
        """What a run leaves for good: that a table was dropped is forgotten two epochs after the last time it was."""
        parts = [(part, dict(_seen_of(kernel))) for part, kernel in self._kernels.items()]
        for _, maps in parts:
            maps["info"] = [pair for pair in maps.get("info", ()) if not pair[0].startswith(b"dropped-")]
        return parts

    def digest(self) -> str:
        """What a coordinator that takes over can see."""
        told = hashlib.blake2b(digest_size=16)
        for part, kernel in self._kernels.items():
            maps, text = self._seen.get(part, ({}, b""))
            if maps is not kernel.maps:
                text = repr(list(_seen_of(kernel))).encode()
                self._seen[part] = kernel.maps, text
            told.update(text)
        return told.hexdigest()

    # what a pipeline does

    def run(self, reached: Callable[[], None]) -> None:
        """Take over, and go on until all is done; `reached` is called at every place where it might end."""
        store = self.db.store
        failpoints.hook(lambda name: reached())
        try:
            coordinator, goal = Coordinator(store, HereRunner(store), limits=LIMITS, clock=lambda: 0.0), store.ends()
            while not coordinator.has_reached(goal):
                coordinator.step()
                collect_garbage(store, GC)
            collect_garbage(store, GC)
        finally:
            failpoints.hook(None)

    def run_through(self, known: Collection[str], new: dict[str, dict]) -> list[str]:
        """Run to the end; returns the stores that there were at each place, and adds those that are not known."""
        passed: list[str] = []

        def reached() -> None:
            passed.append(now := self.digest())
            if now not in known and now not in new:
                new[now] = self.captured()

        self.run(reached)
        return passed

    def require_right(self) -> None:
        """The view is its recomputation, and each record of it and of its auxiliary tables was counted once."""
        name = self.kind.name
        found = bag_of(row.values() for row in self.db.view(name).scan())
        expected = self._base.bag(name, self.db.store.ends())
        if found != expected:
            raise Wrong(f"{name} holds {found}, not {expected}")
        require_right_sizes(self.db.store)


def cover(name: str, *, before_images: bool, crashes: int = 2) -> Covered:
    """Every schedule of so many crashes, of the program of one view."""
    program = Program(KINDS[name], before_images=before_images)
    first, futures, end = program.digest(), dict[str, list[str]](), list[tuple]()
    now: dict[str, dict] = {first: program.start}
    for _ in range(crashes + 1):  # stores that so many crashes leave
        left: dict[str, dict] = {}
        for state, captured in now.items():
            program.put_back(captured)
            futures[state] = program.run_through(futures.keys() | now.keys(), left)
            program.require_right()
            end = end or program.ending()
            if program.ending() != end:
                raise Wrong(f"{name}: a crash leaves another store than the run without one")
        now = left
    program.db.close()
    return Covered(len(futures[first]), sum(len(futures[state]) for state in futures[first]), len(futures))


def crash_everywhere(name: str, *, before_images: bool) -> int:
    """Raise at every place once: what is left is what the store held there, and the end is the same; how many places."""
    program = Program(KINDS[name], before_images=before_images)
    states: list[str] = []
    program.run(lambda: states.append(program.digest()))
    end = program.ending()
    for number, state in enumerate(states):
        program.put_back(program.start)
        _crash_at(program, number)
        if program.digest() != state:
            raise Wrong(f"{name}: the crash at place {number} left another store than there was")
        program.run(lambda: None)
        program.require_right()
        if program.ending() != end:
            raise Wrong(f"{name}: the crash at place {number} leaves another store than the run without one")
    program.db.close()
    return len(states)


def _crash_at(program: Program, number: int) -> None:
    left = number

    def reached() -> None:
        nonlocal left
        if left == 0:
            raise Crash
        left -= 1

    try:
        program.run(reached)
    except Crash:
        return
    raise Wrong(f"place {number} was not reached")


def _seen_of(kernel: MemoryKernel) -> Iterator[tuple]:
    """What a part holds; of its log the positions, of meta neither who wrote it nor how often."""
    for name, pairs in sorted(kernel.maps.items()):
        found = list(pairs.walk(b"", None))
        match name:
            case "log":
                yield name, [position_of(key) for key, _ in found]
            case "meta":
                yield name, [(key, _lasting(value)) for key, value in found if key in (b"epoch", b"catalog")]
                yield "plans", [key for key, _ in found if key.startswith(b"plan ")]
            case "rows":
                pass
            case _:
                yield name, found


def _lasting(value: bytes) -> list:
    passing = ("version", "generation", "owner", "swaps")
    return [(name, repr(one)) for name, one in sorted(json.loads(value).items()) if name not in passing]
