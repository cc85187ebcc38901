"""Defects of the protocol over cells, each as a patch: what the hostile schedules must find.

In: nothing. Out: a context in which the defect is there. Always: one rule of `docs/epochs.md` is
broken, and nothing else.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any
from unittest import mock

from viewkeeper.coordinator import coordinator
from viewkeeper.errors import StoreError
from viewkeeper.model.epochs import EpochRecord, Inflight
from viewkeeper.operators.apply import Applier
from viewkeeper.settings import WorkSettings
from viewkeeper.stores.memory import cells, cellstore
from viewkeeper.stores.memory.cellstore import CellStore


@contextmanager
def reads_what_the_epoch_wrote() -> Iterator[None]:
    """V7: tasks read as of their own epoch."""
    with (
        mock.patch.object(cells, "epoch_read", lambda epoch: epoch.epoch),
        mock.patch.object(cellstore, "epoch_read", lambda epoch: epoch.epoch),
    ):
        yield


@contextmanager
def no_validate() -> Iterator[None]:
    """V1: nobody asks what is in flight."""
    with mock.patch.object(CellStore, "validate", lambda self, epoch: None):
        yield


@contextmanager
def validate_before_the_reads() -> Iterator[None]:
    """V1: a task asks when it starts, and not again."""
    validate, start = CellStore.validate, Applier.__init__

    def ask_first(self: Applier, store: Any, owned: frozenset[int], epoch: Inflight, settings: WorkSettings) -> None:
        validate(store, epoch.epoch)
        start(self, store, owned, epoch, settings)

    with mock.patch.object(Applier, "__init__", ask_first), no_validate():
        yield


@contextmanager
def purge_by_committed() -> Iterator[None]:
    """V4: what the newest committed epoch does not need goes, though readers of the one before are promised theirs."""
    purge = CellStore.purge

    def early(self: CellStore, record: EpochRecord, *, records_max: int) -> int:
        return purge(self, replace(record, floor=record.committed), records_max=records_max)

    with mock.patch.object(CellStore, "purge", early):
        yield


@contextmanager
def tombstones_do_not_wait() -> Iterator[None]:
    """V3: a tombstone goes with the floor, while puts of earlier epochs may be under way."""
    with mock.patch.object(CellStore, "_settled", lambda self, last: last + 1):
        yield


@contextmanager
def a_lost_answer_is_a_no() -> Iterator[None]:
    """R5: a swap that failed is tried again on what is there."""

    def careless(store: Any, change: Callable[[EpochRecord], EpochRecord]) -> EpochRecord:
        while True:
            record = store.read_epoch_record()
            tried = change(record)
            try:
                if store.swap_epoch_record(record.version, tried):
                    return tried
            except StoreError:
                continue

    with mock.patch.object(coordinator, "swap_record", careless):
        yield


DEFECTS = (
    reads_what_the_epoch_wrote,
    no_validate,
    validate_before_the_reads,
    purge_by_committed,
    tombstones_do_not_wait,
    a_lost_answer_is_a_no,
)
