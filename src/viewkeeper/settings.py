"""Settings: every threshold that decides how much is done at once, where, and when, and by how many view managers.

In: what an operator sets. Out: frozen values with the defaults. Always: no setting changes a result, only its cost;
there is at least one view manager, and the least number is not above the most.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum

from viewkeeper.errors import InputError

VERSION = "0.1.0"  # the same as the package's, which no module below it may import


@dataclass(frozen=True, slots=True)
class EpochLimits:
    """How large an epoch may be, and when one is aborted."""

    changes: int = 1_000_000
    rows: int = 1_000_000  # of backfills
    bytes: int = 512 << 20
    attempts_max: int = 2  # at an epoch that fails: a lost worker is worth another try, a broken plan is not
    takeovers_max: int = (
        5  # of an epoch in flight: one that ends its process, for lack of memory, would end each that follows
    )
    # changes and rows; an epoch that fails with these will fail with fewer, unless they are large
    smallest_work: int = 1_000
    smallest_bytes: int = 1 << 20

    def times(self, share: float) -> EpochLimits:
        """A share of the sizes, each at least one."""
        changes, rows, size = (max(1, int(most * share)) for most in (self.changes, self.rows, self.bytes))
        return replace(self, changes=changes, rows=rows, bytes=size)


@dataclass(frozen=True, slots=True)
class WorkSettings:
    """Pieces in which a task does its work: large enough to be worth a query, small enough for its memory."""

    decoded_rows: int = 65_536  # changes decoded at once: decoding needs several times the memory of its result
    side_rows: int = 50_000  # of a join's side, read before they meet the other
    pairs: int = 500_000  # in one piece of a join's output
    rows_handed_on: int = 500_000  # a stage's output is handed on in pieces of about this many


class Engine(StrEnum):
    """Where epochs run: `AUTO` makes a job of a large one and runs the others on the driver, in the pipeline's process."""

    AUTO = "auto"
    SPARK = "spark"
    DRIVER = "driver"

    @staticmethod
    def of(value: object) -> Engine:
        """The engine that a caller names."""
        if isinstance(value, str) and value in list(Engine):
            return Engine(value)
        raise InputError(f"engine={value!r} is no engine", f"use one of {', '.join(Engine)}")


@dataclass(frozen=True, slots=True)
class EngineSettings:
    """When an epoch is worth a Spark job (for `auto`), and when Spark is worth its start. Work is changes times nodes."""

    # Up to this much the driver does sooner than a job would, as measured (`engine.runner`): its memory is small.
    small_work_max: int = 1_000_000
    # One process does this much in about the time and at the cost of starting Spark: less would only take longer.
    meanwhile_work: int = 10_000_000
    # Of a store's own work, more than this takes the driver longer than a job takes to begin and end (half a second on a
    # busy machine): rows of users' tables to be copied to the log, and bytes of logs to be looked through.
    spread_above_rows: int = 100_000
    spread_above_log_bytes: int = 256 << 20
    work: WorkSettings = WorkSettings()


@dataclass(frozen=True, slots=True)
class ScalingSettings:
    """When view managers are added and withdrawn, between the bounds that an operator sets."""

    behind_seconds: float = 4.0  # a backlog that takes longer calls for one more
    behind_epochs: int = 2  # in a row
    idle_seconds: float = 0.5  # a backlog that takes at most this long, and
    idle_share: float = 0.5  # epochs for at most this share of the time, call for one less
    idle_epochs: int = 5
    gain_min: float = 1.1  # by how much the last one must have raised the pace for another to be added


@dataclass(frozen=True, slots=True)
class GcSettings:
    """How long the log is kept, and how much is removed at once."""

    log_kept_seconds: float = 300.0  # a check reads the base as of a committed epoch, and needs the log since then
    seconds_max: float = 1.0
    entries_max: int = 5_000  # in one transaction


@dataclass(frozen=True, slots=True)
class ManagerBounds:
    """As many as `least` to `most`; a fixed number is both."""

    least: int
    most: int

    @staticmethod
    def of(value: object) -> ManagerBounds:
        """The bounds that a caller gives: `2`, or `(1, 4)`."""
        both = value if isinstance(value, tuple | list) and len(value) == 2 else (value, value)
        counts = [one for one in both if isinstance(one, int) and not isinstance(one, bool) and one >= 1]
        if len(counts) < 2 or counts[0] > counts[1]:
            raise InputError(
                f"view_managers must be 1 or more, or a range of such numbers, not {value!r}",
                "write a number, or (least, most) as in (1, 4)",
            )
        return ManagerBounds(*counts)

    @property
    def is_fixed(self) -> bool:
        return self.least == self.most

    def nearest(self, managers: int) -> int:
        """The number within the bounds that is next to this one."""
        return min(max(managers, self.least), self.most)

    def __str__(self) -> str:
        return str(self.most) if self.is_fixed else f"{self.least} to {self.most}"
