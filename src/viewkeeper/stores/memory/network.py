"""Network: how requests reach cells, reliably or with faults drawn from a seed.

In: requests, as functions that do their work where they land. Out: what a driver returns: done, or StoreUnavailable.
Always: time is counted in requests, so one seed and one sequence of calls give one history; a put is issued within T of
its VALIDATE and lands less than T + R after it, or never; what was acknowledged has landed.
"""

from __future__ import annotations

import heapq
import itertools
import random
from collections import Counter
from collections.abc import Callable

from viewkeeper.errors import StoreUnavailable

PUT_TICKS = 80  # T: how long after a VALIDATE puts are issued
LATE_TICKS = 80  # R: a request that is older is no longer run
ATTEMPTS_MAX = 4
Land = Callable[[], object]


class Network:
    """Every request lands at once, and once."""

    is_calm = True

    def __init__(self) -> None:
        self.now = 0
        self.counts: Counter[str] = Counter()

    def tick(self) -> None:
        """Count one more request."""
        self.now += 1

    def put(self, land: Land, validate: Callable[[], int]) -> None:
        """A request that may be repeated, until it is acknowledged; `validate` returns when it was last allowed."""
        self.tick()
        validate()
        land()

    def cast(self, land: Land) -> None:
        """A request that may be repeated and may get lost; its outcome is not checked."""
        self.tick()
        land()

    def swap(self, land: Callable[[], bool]) -> bool:
        """A test-and-set, never repeated without a read."""
        self.tick()
        return land()


class HostileNetwork(Network):
    """Requests get lost, are repeated and land late; replies get lost; time jumps."""

    is_calm = False

    def __init__(self, seed: int) -> None:
        super().__init__()
        self._random = random.Random(seed)
        self._order = itertools.count()
        self._late: list[tuple[int, int, Land]] = []  # when it lands, in which order, what

    def tick(self) -> None:
        self.now += self._random.randint(1, PUT_TICKS // 2) if self._random.random() < 0.02 else 1
        while self._late and self._late[0][0] <= self.now:
            heapq.heappop(self._late)[2]()

    def put(self, land: Land, validate: Callable[[], int]) -> None:
        for _ in range(ATTEMPTS_MAX):
            self.tick()
            if self._land(land, validate() + PUT_TICKS + LATE_TICKS):
                return
        raise StoreUnavailable("the store does not answer", "run the pipeline again")

    def cast(self, land: Land) -> None:
        self.tick()
        self._land(land, self.now + PUT_TICKS + LATE_TICKS)

    def swap(self, land: Callable[[], bool]) -> bool:
        self.tick()
        fate = self._draw(lost=2, late=2, silent=5, doubled=3)
        if fate in ("", "silent", "doubled"):
            swapped = land()
            if fate == "doubled":  # the driver repeated it by itself, and returns the second outcome
                return False
            if fate == "":
                return swapped
        elif fate == "late":
            self._postpone(land, self.now + LATE_TICKS)
        raise StoreUnavailable("the store did not answer a swap", "look what is there, and try again")

    def _land(self, land: Land, limit: int) -> bool:
        """Whether the request landed in time for a reply."""
        fate = self._draw(lost=4, late=14, twice=18)
        if fate in ("late", "twice"):
            self._postpone(land, limit)
        if fate in ("", "twice"):
            land()
            return True
        return False

    def _postpone(self, land: Land, limit: int) -> None:
        """Let it land before `limit`: soon, at some time, or as late as possible."""
        left = limit - self.now
        delay = self._random.choice((self._random.randint(1, 8), self._random.randint(1, left), left - 1))
        heapq.heappush(self._late, (self.now + max(0, min(delay, left - 1)), next(self._order), land))

    def _draw(self, **percent: int) -> str:
        """One of the outcomes, or none."""
        at = self._random.random() * 100
        for fate, share in percent.items():
            at -= share
            if at < 0:
                self.counts[fate] += 1
                return fate
        return ""
