"""Moments: which state of the views a read sees, and what changed up to it.

In: a horizon and an epoch. Out: frozen values that a store reads records by. Always: a moment sees the versions at or
below its epoch that are not aborted.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from viewkeeper.model.horizon import Horizon

EPOCH_MAX = (1 << 63) - 1  # of a moment that sees the newest version of each record, committed or not


@dataclass(frozen=True, slots=True)
class Moment:
    """What a read sees: versions at or below `epoch` that are not aborted."""

    epoch: int
    aborted: tuple[int, ...]
    horizon: Horizon

    def kept_from(self, floor: int) -> Moment:
        """The same, with the floor as found once the records were held: versions below it may be gone."""
        return replace(self, horizon=replace(self.horizon, floor=floor))


@dataclass(frozen=True, slots=True)
class Step:
    """What an epoch did to one record; `before` is None if inserted, `after` if deleted."""

    epoch: int
    key: bytes
    before: bytes | None
    after: bytes | None
