"""Read modes: how fresh, and how consistent with other reads, a result must be.

`"snapshot"` (the default): the last committed epoch, the same for all records of one read. `"latest"`: the newest
version of each record, committed or not. `Bounded(seconds=…)`: a snapshot at most that old. A session: a snapshot that
holds the session's own writes and never goes back.
"""

from __future__ import annotations

from dataclasses import dataclass

from viewkeeper.errors import InputError

SNAPSHOT = "snapshot"
LATEST = "latest"


@dataclass(frozen=True, slots=True)
class Bounded:
    """A snapshot that misses no change older than `seconds`."""

    seconds: float

    def __post_init__(self) -> None:
        is_number = isinstance(self.seconds, int | float) and not isinstance(self.seconds, bool)
        if not is_number or not self.seconds >= 0:
            raise InputError(f"Bounded(seconds={self.seconds!r}) is not a bound", "use 0 or more seconds")
