"""Progress notes: how far views are that cannot be read yet, and where epochs run.

In: a store. Out: words and counts. Always: what is committed is exact; what the epoch under way has done, and where the
last ones ran, is reported by the process that runs them, in notes that may be missing.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict

from viewkeeper.catalog.catalog import ViewDefinition
from viewkeeper.errors import NotReady, StoreError
from viewkeeper.events import Committed, Event, EventSink, Where, Working
from viewkeeper.model.epochs import EpochRecord
from viewkeeper.model.positions import BackfillProgress, with_chunks
from viewkeeper.ports.meta import live_holder
from viewkeeper.ports.store import Store

_NOTE, _WHERE = "working", "where"
_NOTE_SECONDS = 1.0


class ProgressNotes:
    """Sends events on; of an epoch that takes long, and of where epochs run when that changes, a note to the store too."""

    def __init__(self, store: Store, tell: EventSink, clock: Callable[[], float] = time.monotonic) -> None:
        self._store = store
        self._tell = tell
        self._clock = clock
        self._epoch = 0
        self._noted = 0.0
        self._where: Where | None = None

    def __call__(self, event: Event) -> None:
        if isinstance(event, Committed) and event.where != self._where:
            self._where = event.where
            self._keep(_WHERE, asdict(event.where))
        self._tell(event)
        if not isinstance(event, Working):
            return
        now = self._clock()
        if event.epoch != self._epoch:
            self._epoch, self._noted = event.epoch, now
        elif now >= self._noted + _NOTE_SECONDS:
            self._noted = now
            self._keep(_NOTE, {"epoch": event.epoch, "done": event.done, "tasks": event.tasks})

    def _keep(self, name: str, note: dict) -> None:
        with suppress(StoreError, OSError):  # the epoch goes on, and tells what is wrong
            self._store.keep_json("note", name, note)


def where_epochs_ran(store: Store) -> Where | None:
    """Where the last epochs ran, and why there, if that is known."""
    note = store.read_json("note", _WHERE)
    return Where(**note) if note else None


def tasks_done(store: Store, record: EpochRecord) -> tuple[int, int] | None:
    """How many tasks of the epoch under way are done, of how many, if that is known."""
    if record.inflight is None:
        return None
    note = store.read_json("note", _NOTE)
    return (note["done"], note["tasks"]) if note.get("epoch") == record.inflight.epoch else None


def filling_of(record: EpochRecord, backfill: int) -> BackfillProgress | None:
    """How far a backfill is, with the size of its source from its first epoch on."""
    chunks = () if record.inflight is None else record.inflight.chunks
    return with_chunks(record.filling, chunks).get(backfill)


def not_filled(store: Store, view: ViewDefinition, record: EpochRecord) -> NotReady:
    """The error of a read that comes too early."""
    run = "run the pipeline: viewkeeper run, or pipeline.run_available()"
    holder, fill = live_holder(store), filling_of(record, view.node.backfill)
    if holder is None or (holder.pid == os.getpid() and record.inflight is None):
        return NotReady(f"view {view.name} is not filled yet", run)
    wait = f"wait: process {holder.pid} runs the pipeline, and viewkeeper status tells how far it is"
    if fill is None:
        return NotReady(f"view {view.name} is not filled yet", wait)
    done = tasks_done(store, record)
    told = f", and {done[0]} of {done[1]} tasks of epoch {record.inflight.epoch}" if done and record.inflight else ""
    return NotReady(f"view {view.name} is being filled: {fill.rows:,} of about {fill.total:,} rows{told}", wait)
