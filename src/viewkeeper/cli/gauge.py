"""The gauge: what a pipeline did so far, in numbers.

In: events, from any thread. Out: committed epochs to report, the epoch in flight, and changes per second. Always: safe
to read while events arrive; every committed epoch is returned exactly once.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable

from viewkeeper.events import (
    Aborted,
    Backfilling,
    Began,
    Committed,
    Event,
    Scaled,
    StandingBy,
    TookOver,
    Waiting,
    Working,
)

_WINDOW_SECONDS = 5.0


class Gauge:
    """Listens to a pipeline."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._started = clock()
        self._untold: list[Committed] = []
        self._scaled: list[Scaled] = []
        self._recent: deque[tuple[float, int]] = deque()
        self.epoch: int | None = None
        self.under_way: int | None = None
        self.changes = 0
        self.filling: tuple[int, int] | None = None  # rows in views that are being filled, of about how many
        self.tasks: tuple[int, int] | None = None  # of the epoch under way those that are done, of how many
        self.given_up: str | None = None  # the last epoch that could not finish, and why
        self.waiting: str | None = None  # the condition that must pass before it can go on
        self.standing_by: StandingBy | None = None
        self.is_running = False  # set by the caller that runs the pipeline, once it takes changes

    def take(self, event: Event) -> None:
        """An event of the pipeline."""
        with self._lock:
            self.waiting = None
            match event:
                case Waiting(reason=reason):
                    self.waiting = reason
                case Began(epoch=epoch):
                    self.under_way, self.tasks = epoch, None
                case Working(epoch=epoch, done=done, tasks=tasks):
                    self.under_way, self.tasks = epoch, (done, tasks)
                case Committed(epoch=epoch, changes=changes):
                    self.epoch, self.under_way, self.filling = epoch, None, None
                    self.changes += changes
                    self._recent.append((self._clock(), changes))
                    self._untold.append(event)
                case Backfilling(rows=rows, total=total):
                    self.filling = rows, total
                case StandingBy():
                    self.standing_by = event
                case TookOver():
                    self.standing_by = None
                case Scaled():
                    self._scaled.append(event)
                case Aborted(epoch=epoch, reason=reason):
                    self.under_way = None
                    self.given_up = f"epoch {epoch} was given up: {reason}"

    def committed(self) -> list[Committed]:
        """The epochs committed since the last call."""
        with self._lock:
            told, self._untold = self._untold, []
            return told

    def scaled(self) -> list[Scaled]:
        """Changes of the number of view managers since the last call."""
        with self._lock:
            told, self._scaled = self._scaled, []
            return told

    @property
    def seconds(self) -> float:
        """Time since the start."""
        return self._clock() - self._started

    def changes_per_second(self) -> float:
        """The rate over the last seconds; 0 when nothing was committed in them."""
        now = self._clock()
        with self._lock:
            while self._recent and self._recent[0][0] < now - _WINDOW_SECONDS:
                self._recent.popleft()
            return sum(changes for _, changes in self._recent) / min(_WINDOW_SECONDS, max(now - self._started, 0.1))
