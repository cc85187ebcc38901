"""Standby: whether the pipeline that others wait for still shows signs of life, and gets on.

In: the holder of the claim and the epoch in flight as they are seen now and then, and the time of one's own clock. Out: for
how long it has been silent, and for how long at the same epoch. Always: no I/O; only time between two looks that are close
together counts, because one who was stopped itself knows nothing of the others; clocks of two processes are never compared.
"""

from __future__ import annotations

from dataclasses import dataclass

from viewkeeper.ports.meta import Holder

LOOK_SECONDS = 0.25
_GAP_SECONDS_MAX = 1.0  # of two looks


@dataclass(frozen=True, slots=True)
class Watch:
    """The holder as last seen, when that was, and for how long it has looked the same.

    `work` is who owns the epoch record, by generation, and the epoch in flight; None when there is none.
    """

    holder: Holder | None
    looked_at: float
    silent_seconds: float = 0.0
    work: tuple[int, int] | None = None
    work_seconds: float = 0.0

    def looked(self, holder: Holder | None, now: float, work: tuple[int, int] | None = None) -> Watch:
        """The watch after another look."""
        passed = min(now - self.looked_at, _GAP_SECONDS_MAX)
        silent = self.silent_seconds + passed if holder == self.holder else 0.0
        same = self.work_seconds + passed if work is not None and work == self.work else 0.0
        return Watch(holder, now, silent, work, same)
