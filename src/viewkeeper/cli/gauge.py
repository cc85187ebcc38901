"""The gauge: what a pipeline did so far, in numbers.

In: events, from whichever thread. Out: committed epochs to tell, the epoch under way, and changes per second. Always:
safe to ask while events come in; every committed epoch is given out exactly once.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable

from viewkeeper.events import Event

_WINDOW_SECONDS = 5.0


class Gauge:
    """Listens to a pipeline."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._started = clock()
        self._untold: list[Event] = []
        self._recent: deque[tuple[float, int]] = deque()
        self.epoch: int | None = None
        self.under_way: int | None = None
        self.changes = 0
        self.filling: tuple[int, int] | None = None  # rows in views that are being filled, of about how many
        self.given_up: str | None = None  # the last epoch that could not finish, and why
        self.waiting: str | None = None  # for what has to pass before it can go on
        self.is_running = False  # set by whoever runs the pipeline, once it takes changes

    def take(self, event: Event) -> None:
        """An event of the pipeline."""
        with self._lock:
            self.waiting = str(event.facts["reason"]) if event.name == "waiting" else None
            if event.name == "began":
                self.under_way = int(str(event.facts["epoch"]))
            elif event.name == "committed":
                changes = int(str(event.facts["changes"]))
                self.epoch, self.under_way = int(str(event.facts["epoch"])), None
                self.changes += changes
                self._recent.append((self._clock(), changes))
                self._untold.append(event)
                self.filling = None
            elif event.name == "filling":
                self.filling = (int(str(event.facts["rows"])), int(str(event.facts["total"])))
            elif event.name == "voided":
                self.under_way = None
                self.given_up = f"epoch {event.facts['epoch']} was given up: {event.facts['reason']}"

    def committed(self) -> list[Event]:
        """The epochs committed since the last time this was asked."""
        with self._lock:
            told, self._untold = self._untold, []
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
