"""Fill progress: how far views are that cannot be read yet.

In: a store. Out: words and counts. Always: what is committed is exact; what the epoch under way has done is reported by
the process that runs it, about once a second, in a note that may be missing.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING

from viewkeeper.errors import NotReady, StoreError
from viewkeeper.events import EventSink, Working
from viewkeeper.model.positions import BackfillProgress, with_chunks

if TYPE_CHECKING:
    from viewkeeper.catalog.catalog import ViewDefinition
    from viewkeeper.model.epochs import EpochRecord
    from viewkeeper.ports.store import Store

_NOTE = "working"
_NOTE_SECONDS = 1.0


class ProgressNotes:
    """Sends events of an epoch's tasks on; of an epoch that takes long, a note to the store too."""

    def __init__(self, store: Store, tell: EventSink, clock: Callable[[], float] = time.monotonic) -> None:
        self._store = store
        self._tell = tell
        self._clock = clock
        self._epoch = 0
        self._noted = 0.0

    def __call__(self, event: Working) -> None:
        self._tell(event)
        now = self._clock()
        if event.epoch != self._epoch:
            self._epoch, self._noted = event.epoch, now
        elif now >= self._noted + _NOTE_SECONDS:
            self._noted = now
            with suppress(StoreError, OSError):  # the epoch goes on, and tells what is wrong
                self._store.keep_note(_NOTE, {"epoch": event.epoch, "done": event.done, "tasks": event.tasks})


def tasks_done(store: Store, record: EpochRecord) -> tuple[int, int] | None:
    """How many tasks of the epoch under way are done, of how many, if that is known."""
    if record.inflight is None:
        return None
    note = store.read_note(_NOTE)
    return (note["done"], note["tasks"]) if note.get("epoch") == record.inflight.epoch else None


def filling_of(record: EpochRecord, backfill: int) -> BackfillProgress | None:
    """How far a backfill is, with the size of its source from its first epoch on."""
    chunks = () if record.inflight is None else record.inflight.chunks
    return with_chunks(record.filling, chunks).get(backfill)


def not_filled(store: Store, view: ViewDefinition, record: EpochRecord) -> NotReady:
    """The error of a read that comes too early."""
    run = "run the pipeline: viewkeeper run, or pipeline.run_available()"
    pid, fill = store.claimed_by(), filling_of(record, view.node.backfill)
    if pid is None or (pid == os.getpid() and record.inflight is None):
        return NotReady(f"view {view.name} is not filled yet", run)
    wait = f"wait: process {pid} runs the pipeline, and viewkeeper status tells how far it is"
    if fill is None:
        return NotReady(f"view {view.name} is not filled yet", wait)
    done = tasks_done(store, record)
    told = f", and {done[0]} of {done[1]} tasks of epoch {record.inflight.epoch}" if done and record.inflight else ""
    return NotReady(f"view {view.name} is being filled: {fill.rows:,} of about {fill.total:,} rows{told}", wait)
