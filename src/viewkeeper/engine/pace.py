"""Pace: how long epochs take on the driver and as Spark jobs, as measured.

In: the work of epochs, and the seconds that they took. Out: where the next one takes less time. Always: a guess until the
first measurement. Of a job's seconds, those are its own that the same work on the driver, divided among the managers, would
not take.
"""

from __future__ import annotations

from collections import deque

_ENOUGH = 10_000  # an epoch of less work takes mostly what any epoch takes
_MEASURED = 8  # the newest that count
_JOB_SECONDS_MAX = 0.5  # the first jobs of a session take longer, which says nothing of the next


class Pace:
    def __init__(self) -> None:
        self._units: deque[float] = deque([1e-6], _MEASURED)  # seconds for one unit of work
        self._jobs: deque[float] = deque([0.05], _MEASURED)  # seconds that a job takes besides its work

    def was_here(self, work: int, seconds: float) -> None:
        if work >= _ENOUGH:
            self._units.append(seconds / work)

    def was_job(self, work: int, managers: int, seconds: float) -> None:
        own = seconds - work * self._unit / managers
        self._jobs.append(min(max(own, 0.0), _JOB_SECONDS_MAX))

    def is_better_here(self, work: int, managers: int) -> bool:
        """Whether the driver alone would be done with the work before a job is."""
        alone = work * self._unit
        return alone <= min(self._jobs) + alone / managers

    @property
    def _unit(self) -> float:
        return sorted(self._units)[len(self._units) // 2]
