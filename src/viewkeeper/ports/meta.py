"""Meta: the port to a store's few small facts, and to the right to run its pipeline.

Epoch record and catalog are replaced by test-and-set on their versions (R5). A swap whose reply was lost is looked up
by who tried it; see `coordinator/cas.py`.
"""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Literal, Protocol

from viewkeeper.errors import PipelineRunning, StoreUnavailable
from viewkeeper.model.epochs import EpochRecord
from viewkeeper.model.read_frontier import ReadFrontier


@dataclass(frozen=True, slots=True)
class Holder:
    """Who has the claim: its process and machine, its last beat (never the same again), and what it waits for."""

    pid: int
    beat: int
    waits: str = ""
    host: str = ""
    is_live: bool = field(default=True, compare=False)  # it runs the pipeline, or did


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


Kind = Literal["plan", "note"]  # of stored JSON; no result depends on a note


class Meta(ABC):
    """Epoch record, catalog, plans, and notes."""

    @abstractmethod
    def read_epoch_record(self) -> EpochRecord:
        """The epoch record as last swapped in, by any process: after a lost reply a look here tells what was done."""

    @abstractmethod
    def swap_epoch_record(self, expected_version: int, record: EpochRecord) -> bool:
        """Replace the record if its version is still the expected one; durable when it returns True.

        The read frontier is replaced in the same atomic step, as in `swap_catalog`.
        """

    @abstractmethod
    def read_frontier(self) -> ReadFrontier:
        """What readers may see now: a small part of epoch record and catalog, as of the last swap of either."""

    @abstractmethod
    def read_catalog(self) -> dict:
        """The catalog's JSON as last swapped in; empty at first. Its lists are the caller's, the entries in them are not."""

    @abstractmethod
    def swap_catalog(self, expected_version: int, catalog: dict) -> bool:
        """Replace the catalog if its version is still the expected one; durable when it returns True."""

    @abstractmethod
    def keep_json(self, kind: Kind, name: str, value: dict) -> None:
        """Store JSON under a name; a note replaces that of the same name, and may be lost or seen late.

        A plan, whose name is its digest, is stored before an epoch begins that runs it, and is durable when this returns;
        the swap that begins an epoch may delete all others.
        """

    @abstractmethod
    def read_json(self, kind: Kind, name: str) -> dict:
        """The plan of the epoch in flight, CorruptStore when it is missing; or a note, empty when there is none."""

    @abstractmethod
    def claim(self, *, take_over: bool, instead_of: Holder | None = None) -> Claim:
        """The right to run the pipeline; PipelineRunning when another process has it and `take_over` is not set.

        With `instead_of` it is taken over from that holder alone, if it has not shown another sign of life.
        """

    @abstractmethod
    def holder(self) -> Holder | None:
        """Who has the claim, or had it last; None when nobody had."""


def live_holder(store: Meta) -> Holder | None:
    """Who runs the pipeline; None when nobody does."""
    holder = store.holder()
    return holder if holder is not None and holder.is_live else None


@contextmanager
def claimed(store: Meta) -> Iterator[None]:
    """Within the block no pipeline runs; PipelineRunning if one does."""
    try:
        claim = store.claim(take_over=False)
    except PipelineRunning as error:
        raise PipelineRunning(error.fact, "stop it first") from None
    try:
        yield
    finally:
        claim.release()


def change_epoch_record(store: Meta, change: Callable[[EpochRecord], EpochRecord]) -> EpochRecord:
    """Swap in the record that `change` returns; repeated while others swap theirs in between."""
    while True:
        record = store.read_epoch_record()
        changed = change(record)
        try:
            if store.swap_epoch_record(record.version, changed):
                return changed
        except StoreUnavailable:
            if store.read_epoch_record() != changed:
                raise
            return changed
