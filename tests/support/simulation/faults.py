"""Faults: what befalls whoever is at work when it reaches a chosen place.

In: the places that pipelines and clients reach: failpoints, reads of records and, over HBase, requests. Out: `Crash`, a task
that is lost, or other actors that go on meanwhile. Always: at most one fault is armed; it fires once; within a write
transaction nobody else can go on, so that such a fault waits for the next place.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from tests.support.simulation.world import World
from viewkeeper import failpoints

WITHIN = (
    "partition.write.fenced",
    "partition.write.before_commit",
    "partition.purge.before_commit",
    "node.write.before_commit",
    "node.write.committed",  # and the model of the base does not know of it yet
    "move.intent",
    "move.left",
)
_TASKS = ("apply.", "split.", "task.", "stage.", "partition.write.")
_POINTS = (
    *("begin.cut", "begin.planned", "begin.swapped", "run.synced", "run.fenced", "run.receipts"),
    *("commit.synced", "commit.swapped", "commit.done", "replace.ready", "replace.swapped"),
    *("apply.start", "apply.read", "apply.computed", "apply.written", "split.read", "task.read", "task.applied"),
    *("stage.applied", "partition.fence.raised", "partition.write.before_commit", "partition.write.committed"),
    *("gc.start", "gc.truncated", "gc.dropped", "abort.start", "abort.swapped"),
)


class Crash(BaseException):
    """The process is gone, at this place."""


class TaskLost(Exception):
    """A task's worker is gone; its coordinator lives."""


class Faults:
    """Listens at all places of a world, and does there what was armed."""

    def __init__(self, world: World, meanwhile: Callable[[str], None]) -> None:
        self._world, self._meanwhile = world, meanwhile
        self.hits: Counter[str] = Counter()  # of failpoints
        self._effect, self._place, self._left = "", "", 0
        self.running = 0  # runs of an epoch that are under way

    @contextmanager
    def listening(self) -> Iterator[None]:
        world = self._world
        self._listen_to_reads()
        if world.hbase is not None:
            world.hbase.between = lambda: self.reached("request")
        failpoints.hook(self._passed)
        try:
            yield
        finally:
            failpoints.hook(None)

    def _listen_to_reads(self) -> None:
        world = self._world
        if world.hbase is not None:
            world.listen_to_reads(lambda: self.reached("read"))
            return
        read = world.store.read_versions

        def counted_read(*args: object) -> object:
            self.reached("read")
            return read(*args)

        world.store.read_versions = counted_read

    def arm(self, effect: str, *, sharp: bool = False, at: Sequence[str] = ()) -> None:
        """Something will befall whoever reaches a place that is drawn here, or drawn from those given."""
        draw = self._world.random
        self._effect = effect
        if at:
            self._place, self._left = draw.choice(at), draw.choice((1, 1, 1, 2))
            return
        kinds = (
            ("read",) * 8 + ("request", "point") if sharp else ("read", "request", "request", "point", "named", "named")
        )
        match draw.choice(tuple(k for k in kinds if k != "request") if self._world.answers_always else kinds):
            case "read":
                self._place, self._left = "read", draw.choice((1, 1, 2, 3))
            case "request":
                self._place, self._left = "request", draw.randint(1, 40)
            case "point":
                self._place, self._left = "", draw.randint(1, 40)
            case _:
                self._place, self._left = draw.choice(_POINTS), draw.choice((1, 1, 2, 5))

    def disarm(self) -> None:
        self._effect = ""

    @contextmanager
    def put_off(self) -> Iterator[None]:
        """Nothing befalls anybody until this ends."""
        effect, self._effect = self._effect, ""
        yield
        self._effect = effect

    def _passed(self, point: str) -> None:
        self.hits[point] += 1
        self.reached(point)

    def reached(self, place: str) -> None:
        if not self._effect or self._place not in ("", place) or (self._place == "" and place in ("read", "request")):
            return
        self._left -= 1
        if self._left <= 0:
            self._befall(place)

    def _befall(self, place: str) -> None:
        effect = self._effect
        if effect == "lost task" and not (self.running and place.startswith(_TASKS)):
            effect = "crash"
        if effect not in ("crash", "lost task") and place in WITHIN:
            self._place = ""
            return
        self._effect = ""
        self._world.note(_TOLD[effect], place)
        if effect == "crash":
            raise Crash(place)
        if effect == "lost task":
            raise TaskLost(place)
        self._meanwhile(effect)


_TOLD = {"crash": "crashes", "lost task": "tasks lost", "zombie": "zombies", "copy": "copies", "rival": "rivals"}
