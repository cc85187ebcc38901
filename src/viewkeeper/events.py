"""Events: one stream of what the pipeline did.

In: facts. Out: the listeners: the live line, benchmarks, later metrics and the dashboard. Always: an event is a frozen
value of a class of its own, made after the fact.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from viewkeeper.model.positions import Positions
from viewkeeper.model.work_stats import Counts


@dataclass(frozen=True, slots=True)
class TookOver:
    """A pipeline took the store over."""

    owner: str


@dataclass(frozen=True, slots=True)
class Began:
    """An epoch was begun, up to these positions."""

    epoch: int
    stop: Positions


@dataclass(frozen=True, slots=True)
class Where:
    """Where an epoch ran: on the "driver", that is, in the pipeline's own process, or on "spark", as a job; and why there."""

    engine: str = "driver"
    reason: str = ""

    def __str__(self) -> str:
        return f"on {'Spark' if self.engine == 'spark' else 'the driver'}{self.reason and f' ({self.reason})'}"


@dataclass(frozen=True, slots=True)
class Committed:
    """An epoch was committed, with so many changes, in so many seconds; `counts` is what its tasks did."""

    epoch: int
    changes: int
    seconds: float
    counts: Counts
    where: Where = Where()


@dataclass(frozen=True, slots=True)
class Aborted:
    """An epoch could not finish and was aborted."""

    epoch: int
    reason: str


@dataclass(frozen=True, slots=True)
class Backfilling:
    """So many backfills are under way, with so many rows done of about `total`."""

    backfills: int
    rows: int
    total: int


@dataclass(frozen=True, slots=True)
class Working:
    """Of the epoch under way so many tasks are done, of so many."""

    epoch: int
    done: int
    tasks: int


@dataclass(frozen=True, slots=True)
class Waiting:
    """The pipeline waits for a condition to pass: a full disk, a writer that holds its lock."""

    reason: str


@dataclass(frozen=True, slots=True)
class Scaled:
    """From the next epoch on there are so many view managers, where there were `before`."""

    before: int
    view_managers: int
    reason: str


@dataclass(frozen=True, slots=True)
class StandingBy:
    """Another process runs the pipeline; this one looked, and found no sign of life for so long."""

    pid: int | None
    silent_seconds: float


Event = TookOver | Began | Committed | Aborted | Backfilling | Working | Waiting | Scaled | StandingBy
EventSink = Callable[[Event], None]
