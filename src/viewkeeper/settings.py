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
