"""Settings: every threshold that decides how much is done at once, where, and when.

In: what an operator sets. Out: frozen values with the defaults. Always: no setting changes an answer, only its price.
"""

from __future__ import annotations

from dataclasses import dataclass, replace


@dataclass(frozen=True, slots=True)
class EpochLimits:
    """How large an epoch may be, and when one is given up."""

    changes: int = 1_000_000
    rows: int = 1_000_000  # of backfills
    bytes: int = 512 << 20
    attempts_max: int = 2  # at an epoch that fails: a lost worker is worth another try, a broken plan is not
    smallest_work: int = (
        1_000  # changes and rows; an epoch that cannot do these will not do fewer, unless they are large
    )
    smallest_bytes: int = 1 << 20

    def times(self, share: float) -> EpochLimits:
        """A share of the sizes, of each one at least."""
        changes, rows, size = (max(1, int(most * share)) for most in (self.changes, self.rows, self.bytes))
        return replace(self, changes=changes, rows=rows, bytes=size)


@dataclass(frozen=True, slots=True)
class WorkSettings:
    """Pieces in which a task does its work: large enough to be worth a query, small enough for its memory."""

    decoded_rows: int = 65_536  # of changes that are decoded at once: what that takes is several times what it gives
    rolled_up_rows: int = (
        32_768  # from so many rows on, views of one grain may share a grouping; the first ones tell whether
    )
    side_rows: int = 50_000  # of a join's side that are read before they meet the other
    pairs: int = 500_000  # in one piece of what a join gives
    rows_handed_on: int = 500_000  # what a stage gives is handed on in pieces of about this many


@dataclass(frozen=True, slots=True)
class EngineSettings:
    """When an epoch is worth a Spark job, and when Spark is worth its start. Work is changes times nodes."""

    # One process does about a million in a second, and a job costs about half a second before it does any.
    small_work: int = 100_000
    # One process has done this much, of one epoch or of many, in about the time and at the price of a start of Spark: what
    # is less is not worth it, and beside a JVM that starts it would only take longer.
    meanwhile_work: int = 10_000_000
    work: WorkSettings = WorkSettings()


@dataclass(frozen=True, slots=True)
class GcSettings:
    """How long the log is kept, and how much is removed at once."""

    log_kept_seconds: float = 300.0  # a check compares with the base as of a committed epoch, and needs the log since
    seconds_max: float = 1.0
    entries_max: int = 5_000  # in one transaction
