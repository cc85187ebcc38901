"""The coordinator: begins, runs and commits epochs, one after the other (`epochs.md`, sections 1 and 2).

In: the store, and a runner that does an epoch's work. Out: committed epochs. Always: the store's epoch record is the
truth (R5, R9); whoever finds an epoch in flight runs that one, unchanged; the syncs stand where R10 puts them; an epoch is
committed only with the receipts of all its work (R18a).
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Sequence
from typing import Protocol

from viewkeeper.errors import (
    CorruptStore,
    EpochFailed,
    EpochRecordLost,
    EpochTooLarge,
    Fenced,
    InvariantBroken,
    LogDiverged,
    ViewFailed,
)
from viewkeeper.events import Began, Committed, Event, EventSink, Filling, TookOver, Voided
from viewkeeper.failpoints import failpoint
from viewkeeper.flow.filling import BYTES_PER_EPOCH_MAX, ROWS_PER_EPOCH_MAX, plan_chunks
from viewkeeper.flow.swaps import swap_catalog, swap_record
from viewkeeper.model import epochs
from viewkeeper.model.epochs import EpochRecord, Inflight
from viewkeeper.model.fills import Chunk
from viewkeeper.model.positions import Cut, Positions, covers
from viewkeeper.plan.catalog import Catalog
from viewkeeper.plan.physical import PhysicalPlan
from viewkeeper.plan.planner import physical_plan, unfilled
from viewkeeper.ports.store import Store

CHANGES_PER_EPOCH_MAX = 1_000_000
ALL = 1 << 62
ATTEMPTS_MAX = 2  # of an epoch that fails: a lost worker is worth another try, a broken plan is not
SMALLEST_WORK = 1_000  # changes and rows; an epoch that cannot do these will not do fewer, unless they are large
SMALLEST_BYTES = 1 << 20


class Runner(Protocol):
    """Does the work of an epoch."""

    def run(self, plan: PhysicalPlan, epoch: Inflight) -> None:
        """Apply the epoch to all view tables; return only with every receipt in hand, raise otherwise."""
        ...


class Coordinator:
    """The one who moves a store's views from epoch to epoch."""

    def __init__(
        self,
        store: Store,
        runner: Runner,
        *,
        changes_max: int = CHANGES_PER_EPOCH_MAX,
        rows_max: int = ROWS_PER_EPOCH_MAX,
        bytes_max: int = BYTES_PER_EPOCH_MAX,
        events: EventSink | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._store = store
        self._runner = runner
        self._changes_max = changes_max
        self._rows_max = rows_max
        self._bytes_max = bytes_max
        self._share = 1.0  # of the sizes above; smaller behind an epoch that could not finish
        self._given_up: Inflight | None = None  # the last one
        self._planned: tuple[str, PhysicalPlan] | None = None  # the newest plan, and its digest
        self._events = events or (lambda event: None)
        self._clock = clock
        self._owner = uuid.uuid4().hex
        self._take_over()

    def step(self) -> Committed | None:
        """Finish the epoch in flight, or begin, run and commit the next; None when there is nothing to do."""
        started = self._clock()
        record = self.require_ownership()
        while True:
            if record.inflight is None:
                record = self._begin(record)
                if record.inflight is None:
                    return None
            if self._run_or_void(record.inflight):
                break
            record = self._store.read_epoch_record()
        epoch = record.inflight
        record = self._commit(epoch)
        self._replace_views(record)
        done = Committed(epoch.epoch, epoch.stop.changes, self._clock() - started)
        self._events(done)
        self._tell_filling(record)
        self._share = min(1.0, 2 * self._share)
        return done

    def catch_up(self) -> list[Committed]:
        """Steps until everything written before the call is committed."""
        self._require_same_log(self.require_ownership())
        goal = self._store.ends()
        done = []
        while not self.has_reached(goal):
            step = self.step()
            if step is None:
                break
            done.append(step)
        return done

    def require_ownership(self) -> EpochRecord:
        """The epoch record, in which this coordinator is the one who moves the views; raises when another one is."""
        record = self._store.read_epoch_record()
        if record.owner != self._owner:
            raise Fenced("another pipeline took this store over", "stop this one")
        return record

    def has_reached(self, goal: Positions) -> bool:
        """Whether `goal` is committed, nothing is in flight and every view is filled."""
        record = self._store.read_epoch_record()
        catalog = Catalog.from_json(self._store.read_catalog())
        is_filled = not unfilled(catalog, filled=record.filled, stopped=record.stopped)
        return record.inflight is None and is_filled and covers(record.positions, goal)

    def tell(self, event: Event) -> None:
        """Tell those who listen."""
        self._events(event)

    def close(self) -> None:
        """After the last step: an orderly end, which no crash needs."""
        self._store.close_views(self._owner)

    def _take_over(self) -> None:
        record = swap_record(self._store, lambda record: epochs.take_over(record, self._owner))
        self._store.open_views()
        oldest, newest = self._store.written_epochs()
        if record.filled and oldest < record.committed:
            raise CorruptStore(
                f"a part of the views is older than epoch {record.committed}, which is committed",
                "restore the whole store, not a part of it",
            )
        if newest > record.last:
            raise EpochRecordLost(
                f"views were written by a later epoch than {record.last}, the last in the epoch record",
                "restore the whole store, not a part of it",
            )
        if record.inflight is None:
            self._replace_views(record)  # one that died behind its commit may have left this
        self._events(TookOver(self._owner))

    def _begin(self, record: EpochRecord) -> EpochRecord:
        self._require_same_log(record)
        stop, plan, chunks, views = self._cut(record)
        if not chunks and covers(record.positions, stop.positions):
            return record
        failpoint("begin.cut")
        digest = self._keep_plan(plan)
        begun = swap_record(self._store, lambda record: epochs.begin(record, self._owner, stop, digest, chunks, views))
        failpoint("begin.swapped")
        self._events(Began(begun.last, dict(stop.positions)))
        return begun

    def _cut(self, record: EpochRecord) -> tuple[Cut, PhysicalPlan, tuple[Chunk, ...], frozenset[int]]:
        """Where the next epoch ends, what it runs, and the tables of the views that it keeps.

        The catalog is read behind the cut: a table that has a change before it is in there, and DELTA hears of every one.
        """
        is_read, known = True, None
        while True:
            # what nobody reads may be passed over at once
            most = (self._sized(self._changes_max), self._sized(self._bytes_max)) if is_read else (ALL, ALL)
            stop = self._store.cut(record.positions, changes_max=most[0], bytes_max=most[1])
            found = self._store.read_catalog()
            if found != known:  # the first time, or because it changed between two cuts
                known, catalog = found, Catalog.from_json(found)
                plan = physical_plan(catalog, filling=record.filling, stopped=record.stopped)
                rows, size = self._sized(self._rows_max), self._sized(self._bytes_max)
                chunks = plan_chunks(self._store, plan, record, rows_max=rows, bytes_max=size)
            if plan.reads_log(chunks) == is_read:
                return stop, plan, chunks, frozenset(view.node.table for view in catalog.kept)
            is_read = not is_read

    def _run_or_void(self, epoch: Inflight) -> bool:
        """Run the epoch; one that cannot finish is given up (R8), so that it does not hold every view for ever.

        A view whose own work fails is stopped, and the next epoch goes on without it. For anything else the next epoch
        is smaller: the machine may lack memory for this one. The smallest epoch that fails is the operator's, unless it
        is known whose work is too large: that view is stopped.
        """
        for attempt in range(1, ATTEMPTS_MAX + 1):
            try:
                self._run(epoch)
                return True
            except EpochFailed as error:
                if attempt < ATTEMPTS_MAX and not isinstance(error, EpochTooLarge):
                    continue
                self._give_up(epoch, self._verdict(epoch, error))
                return False
        raise InvariantBroken(f"epoch {epoch.epoch} was not tried")

    def _verdict(self, epoch: Inflight, error: EpochFailed) -> EpochFailed:
        """What an epoch is given up for; raises where that helps nobody."""
        if isinstance(error, EpochTooLarge) and self._was_given_up(epoch):
            return ViewFailed(error.table, error.reason)
        if not isinstance(error, (ViewFailed, EpochTooLarge)) and self._is_smallest(epoch):
            raise error
        return error

    def _was_given_up(self, epoch: Inflight) -> bool:
        """Whether the same came out when a smaller one was asked for: a transaction is never cut."""
        return self._given_up is not None and _input_of(self._given_up) == _input_of(epoch)

    def _is_smallest(self, epoch: Inflight) -> bool:
        changes, rows, size = self._sizes(epoch)
        return (changes + rows <= SMALLEST_WORK and size <= SMALLEST_BYTES) or self._was_given_up(epoch)

    def _sizes(self, epoch: Inflight) -> tuple[int, int, int]:
        """Changes, rows of fills, and bytes of both."""
        size = self._store.log_bytes(epoch.start, epoch.stop.positions) + sum(chunk.bytes for chunk in epoch.chunks)
        return epoch.stop.changes, sum(chunk.rows for chunk in epoch.chunks), size

    def _give_up(self, epoch: Inflight, failure: EpochFailed) -> None:
        failpoint("void.start")
        swap_record(self._store, lambda record: _without_epoch(record, self._owner, epoch, failure))
        failpoint("void.swapped")
        self._store.sync_epoch_record()
        if not isinstance(failure, ViewFailed):  # it is as large as before without that view, and may do well
            parts = zip(self._sizes(epoch), (self._changes_max, self._rows_max, self._bytes_max), strict=True)
            self._share = min(self._share, max(size / most for size, most in parts)) / 2
            self._given_up = epoch
        self._events(Voided(epoch.epoch, failure.fact))

    def _sized(self, most: int) -> int:
        return max(1, int(most * self._share))

    def _tell_filling(self, record: EpochRecord) -> None:
        if record.filling:
            rows, total = (sum(getattr(fill, name) for fill in record.filling.values()) for name in ("rows", "total"))
            self._events(Filling(len(record.filling), rows, total))

    def _run(self, epoch: Inflight) -> None:
        self._store.sync_epoch_record()  # R10.3, also when another process began the epoch
        failpoint("run.synced")
        self._store.admit(epoch)
        failpoint("run.fenced")
        self._runner.run(self._plan_of(epoch), epoch)
        failpoint("run.receipts")

    def _keep_plan(self, plan: PhysicalPlan) -> str:
        """Store the plan, unless it is that of the epoch before; answers its digest."""
        if self._planned is None or self._planned[1] is not plan:
            self._planned = plan.digest, plan
            self._store.keep_plan(self._planned[0], plan.to_json())
            failpoint("begin.planned")
        return self._planned[0]

    def _plan_of(self, epoch: Inflight) -> PhysicalPlan:
        if self._planned is None or self._planned[0] != epoch.plan:
            self._planned = epoch.plan, PhysicalPlan.from_json(self._store.read_plan(epoch.plan))
        return self._planned[1]

    def _commit(self, epoch: Inflight) -> EpochRecord:
        self._store.sync_views()  # R10.5
        failpoint("commit.synced")
        checksums = self._store.checksums(epoch.stop.positions)
        catalog = Catalog.from_json(self._store.read_catalog())
        tables = frozenset(number for node in catalog.nodes for number in (node.table, node.backfill))
        record = swap_record(
            self._store, lambda record: epochs.commit(record, self._owner, epoch.epoch, checksums, tables)
        )
        failpoint("commit.swapped")
        self._store.sync_epoch_record()  # R10.7
        failpoint("commit.done")
        return record

    def _replace_views(self, record: EpochRecord) -> None:
        """Between two epochs: views that are filled take the place of those they replace."""
        catalog = Catalog.from_json(self._store.read_catalog())
        if catalog.with_replaced(record.filled, record.committed) is not catalog:
            failpoint("replace.ready")
            swap_catalog(self._store, lambda catalog: catalog.with_replaced(record.filled, record.committed))
            failpoint("replace.swapped")

    def _require_same_log(self, record: EpochRecord) -> None:
        """R9: the entry at a committed position must be the one that was committed."""
        now = self._store.checksums(record.positions)
        for stream, checksum in record.checksums.items():
            if now.get(stream) != checksum:  # truncation keeps this entry, so it may not be missing either
                raise LogDiverged(
                    f"the log of node {stream} is not the one that epoch {record.committed} was made from",
                    "restore the whole store, not a part of it",
                )


def _input_of(epoch: Inflight) -> tuple[object, ...]:
    return epoch.start, epoch.stop.positions, epoch.chunks


def _without_epoch(record: EpochRecord, owner: str, epoch: Inflight, failure: EpochFailed) -> EpochRecord:
    """The record with the epoch void, and its culprit stopped."""
    if record.inflight is None or record.inflight.epoch != epoch.epoch:
        raise Fenced(f"epoch {epoch.epoch} is no longer in flight")
    return epochs.void(record, owner, {failure.table: failure.reason} if isinstance(failure, ViewFailed) else {})


def require_receipts(units: Sequence[int], managers: Sequence[int], got: Sequence[tuple[int, Sequence[int]]]) -> None:
    """R18a: every manager answered once or more, and every unit's input reached someone."""
    missing_managers = set(managers) - {manager for manager, _ in got}
    missing_units = set(units) - {unit for _, reached in got for unit in reached}
    if missing_managers or missing_units:
        raise EpochFailed(
            f"receipts are missing from managers {sorted(missing_managers)} and units {sorted(missing_units)}",
            "the epoch stays in flight and is run again",
        )
