"""Standby: whether the pipeline that others wait for still shows signs of life.

In: the holder of the claim as it is seen now and then, and the time of one's own clock. Out: for how long it has been silent.
Always: no I/O; only time between two looks that are close together counts, because one who was stopped itself knows nothing
of the others; clocks of two processes are never compared.
"""

from __future__ import annotations

from dataclasses import dataclass

from viewkeeper.ports.meta import Holder

LOOK_SECONDS = 0.25
_GAP_SECONDS_MAX = 1.0  # of two looks


@dataclass(frozen=True, slots=True)
class Watch:
    """The holder as last seen, when that was, and for how long it has looked the same."""

    holder: Holder | None
    looked_at: float
    silent_seconds: float = 0.0

    def looked(self, holder: Holder | None, now: float) -> Watch:
        """The watch after another look."""
        if holder != self.holder:
            return Watch(holder, now)
        return Watch(holder, now, self.silent_seconds + min(now - self.looked_at, _GAP_SECONDS_MAX))
