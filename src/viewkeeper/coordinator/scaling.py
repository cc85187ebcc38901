"""Scaling: how many view managers the next epoch has (paper 1, section 3.3: assign and withdraw).

In: bounds, and what each epoch did and left to do. Out: a number within the bounds, and why it changed. Always: no I/O; one
manager more or fewer at a time. Backlog counts in seconds, at the pace that was measured with the present number. Between
"behind" and "idle" lies a wide range in which nothing changes, and both must hold for some epochs in a row.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from viewkeeper.model.managers import ManagerBounds
from viewkeeper.settings import ScalingSettings


@dataclass(frozen=True, slots=True)
class Load:
    """What an epoch did, and what waits after it: changes, and rows to fill views with."""

    waiting: int
    done: int
    seconds: float
    paused_seconds: float = 0.0  # between the epoch before and this one


@dataclass(frozen=True, slots=True)
class Scaling:
    """The number of managers, and what was measured since it is that: sums in which the last epoch counts most."""

    bounds: ManagerBounds
    managers: int
    done: float = 0.0
    seconds: float = 0.0
    paused_seconds: float = 0.0
    behind: int = 0  # epochs in a row that left much to do
    idle: int = 0  # epochs in a row after long pauses that left little
    pace_before: float = 0.0  # with one manager less, when that was found too few

    @staticmethod
    def within(bounds: ManagerBounds, managers: int = 1) -> Scaling:
        return Scaling(bounds, bounds.nearest(managers))

    @property
    def pace(self) -> float:
        """Changes and rows in a second."""
        return self.done / self.seconds if self.seconds else 0.0

    @property
    def busy_share(self) -> float:
        """The share of time in which epochs ran."""
        total = self.seconds + self.paused_seconds
        return self.seconds / total if total else 0.0


def scaled(scaling: Scaling, load: Load, settings: ScalingSettings) -> tuple[Scaling, str]:
    """The scaling after an epoch, and the reason if the number of managers changed.

    A manager that did not raise the pace is the last one that is added. One is withdrawn only if epochs ran for at most
    half of the time: those that stay have at most twice as much to do.
    """
    now = _measured(scaling, load)
    wait = load.waiting / now.pace if now.pace else 0.0
    is_idle = wait <= settings.idle_seconds and now.busy_share <= settings.idle_share
    is_behind = wait >= settings.behind_seconds
    now = replace(now, behind=now.behind + 1 if is_behind else 0, idle=now.idle + 1 if is_idle else 0)
    has_helped = now.pace >= settings.gain_min * now.pace_before
    if now.behind >= settings.behind_epochs and now.managers < now.bounds.most and has_helped:
        return _changed(now, now.managers + 1, pace_before=now.pace), f"{load.waiting:,} wait, {wait:.0f} s of work"
    if now.idle >= settings.idle_epochs and now.managers > now.bounds.least:
        return _changed(now, now.managers - 1), f"idle for {1 - now.busy_share:.0%} of the time"
    return now, ""


def _measured(scaling: Scaling, load: Load) -> Scaling:
    return replace(
        scaling,
        done=scaling.done / 2 + load.done,
        seconds=scaling.seconds / 2 + load.seconds,
        paused_seconds=scaling.paused_seconds / 2 + load.paused_seconds,
    )


def _changed(scaling: Scaling, managers: int, *, pace_before: float = 0.0) -> Scaling:
    return Scaling(scaling.bounds, managers, pace_before=pace_before)
