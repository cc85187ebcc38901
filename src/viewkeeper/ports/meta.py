"""Meta: the port to a store's few small facts, and to the right to run its pipeline.

Epoch record and catalog are replaced by test-and-set on their versions (R5). A swap whose reply was lost is looked up
by who tried it; see `coordinator/cas.py`.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from viewkeeper.errors import PipelineRunning
from viewkeeper.model.epochs import EpochRecord
from viewkeeper.model.read_frontier import Horizon


@dataclass(frozen=True, slots=True)
class Holder:
    """Who has the claim, its last beat (a number that is never used again), and what it waits for, if it does.

    `host` is the machine of the pid, where a store is used from several.
    """

    pid: int
    beat: int
    waits: str = ""
    host: str = ""


def already_running(holder: Holder | None, host: str = "") -> PipelineRunning:
    """For a store whose claim another pipeline has; `host` is the name of this machine, where holders have one."""
    where = "" if holder is None or holder.host == host else f" on {holder.host}"
    is_here = holder is not None and holder.pid == os.getpid() and not where
    return PipelineRunning(
        f"a pipeline of this store is running, pid {holder.pid if holder else 'unknown'}{where}",
        "this process has it open: close it first" if is_here else "stop it, or pass take_over=True to fence it off",
    )


class Claim(Protocol):
    """The right to run a store's pipeline, held until `release` or the end of the process."""

    @property
    def is_held(self) -> bool: ...

    def beat(self, waits: str = "") -> None:
        """Show others that the holder lives, and what it waits for; Fenced when the claim is another's by now."""
        ...

    def release(self) -> None: ...


class Meta(Protocol):
    """Epoch record, catalog, plans, and notes, on which no result depends."""

    def read_epoch_record(self) -> EpochRecord:
        """The epoch record as last swapped in."""
        ...

    def swap_epoch_record(self, expected_version: int, record: EpochRecord) -> bool:
        """Replace the record if its version is still the expected one; durable when it returns True."""
        ...

    def change_epoch_record(self, change: Callable[[EpochRecord], EpochRecord]) -> EpochRecord:
        """Swap in the record that `change` returns; repeated while others swap theirs in between."""
        ...

    def sync_epoch_record(self) -> None:
        """From here on the epoch record as read survives a power loss (R10.3)."""
        ...

    def read_horizon(self) -> Horizon:
        """What readers may see now: a small part of epoch record and catalog."""
        ...

    def read_catalog(self) -> dict:
        """The catalog's JSON; empty at first. Its lists are the caller's own; the entries in them are not to be changed."""
        ...

    def swap_catalog(self, expected_version: int, catalog: dict) -> bool:
        """Replace the catalog if its version is still the expected one; durable when it returns True."""
        ...

    def keep_plan(self, digest: str, plan: dict) -> None:
        """Store a plan, as JSON, before an epoch begins that runs it; plans of no epoch in flight may be deleted.

        Durable when this returns.
        """
        ...

    def read_plan(self, digest: str) -> dict:
        """The plan stored for the epoch in flight; CorruptStore when it is missing."""
        ...

    def keep_note(self, name: str, note: dict) -> None:
        """Replace the note of that name, as JSON. It may be lost, and readers need not see it at once."""
        ...

    def read_note(self, name: str) -> dict:
        """The note of that name; empty when there is none."""
        ...

    def claim(self, *, take_over: bool, instead_of: Holder | None = None) -> Claim:
        """The right to run the pipeline; PipelineRunning when another process has it and `take_over` is not set.

        With `instead_of` it is taken over from that holder alone, if it has not shown another sign of life.
        """
        ...

    def holder(self) -> Holder | None:
        """Who has the claim, or had it last; None when nobody had."""
        ...

    def claimed_by(self) -> int | None:
        """The pid of the process that runs the pipeline; None when none does."""
        ...
