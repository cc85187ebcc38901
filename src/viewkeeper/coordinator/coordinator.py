"""The coordinator: moves a store's views from epoch to epoch, one after the other (`docs/epochs.md`, sections 1 and 2).

In: the store, and a runner that does an epoch's work. Out: committed epochs. Always: `steps` decides, this module acts;
the store's epoch record is the truth (R5, R9), and each swap tests the copy held here; syncs happen where R10 requires.
"""

from __future__ import annotations

import time
import uuid
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Protocol

from viewkeeper.catalog.catalog import Catalog
from viewkeeper.coordinator import steps
from viewkeeper.coordinator.backfill import late_backfills, plan_chunks, stage_tables, tables_staged
from viewkeeper.coordinator.cas import StoredState
from viewkeeper.coordinator.gc import collect_garbage
from viewkeeper.coordinator.table_sizes import sizes_after, stored_tables, walked_sizes
from viewkeeper.coordinator.view_managers import Scaling, request_managers, requested_managers
from viewkeeper.errors import (
    EpochFailed,
    Fenced,
    LaterRecord,
    LogDiverged,
    PositionLost,
    RowsMoved,
    StoreError,
    ViewFailed,
)
from viewkeeper.events import Committed, EventSink
from viewkeeper.failpoints import failpoint
from viewkeeper.model import epochs
from viewkeeper.model.epochs import EpochRecord, Inflight, Repaired
from viewkeeper.model.positions import Position, Positions, Stream, covers
from viewkeeper.model.work_stats import MEASURED, Counts, WorkStats
from viewkeeper.plan.nodes import RepairNode
from viewkeeper.plan.physical import PhysicalPlan
from viewkeeper.plan.planner import asides_done_with, done_with, due_aside, due_repair, unfilled
from viewkeeper.ports.meta import Claim
from viewkeeper.ports.store import Store
from viewkeeper.settings import EpochLimits, ManagerBounds

ALL = 1 << 62
_DAMAGED = "a record is of an epoch that never was: its bytes were changed"
_FILL_ANEW = "viewkeeper rebuild URL VIEW… gives up what is lost, and fills all views anew from their tables"


class Runner(Protocol):
    """Does the work of an epoch."""

    def run(self, plan: PhysicalPlan, epoch: Inflight) -> Counts:
        """Apply the epoch to all view tables; return only with every receipt in hand, raise otherwise."""
        ...

    def scale(self, managers: int) -> None:
        """Run the next epoch with so many view managers."""
        ...


class Coordinator:
    """Moves a store's views from epoch to epoch."""

    def __init__(
        self,
        store: Store,
        runner: Runner,
        *,
        limits: EpochLimits | None = None,
        events: EventSink | None = None,
        clock: Callable[[], float] = time.monotonic,
        managers: ManagerBounds | None = None,
        claim: Claim | None = None,
        inherits: bool = False,
    ) -> None:
        self._store = store
        self._runner = runner
        scaling = None if managers is None else Scaling.within(managers)
        self._state = steps.State(uuid.uuid4().hex, limits or EpochLimits(), scaling=scaling)
        self._planned: tuple[str, PhysicalPlan] | None = None  # the newest plan, and its digest
        self._bases: tuple[PhysicalPlan, dict[int, frozenset[int]]] | None = None  # of the newest plan's nodes
        self.tell: EventSink = events or (lambda event: None)  # sends an event to all listeners
        self._clock = clock
        self._started = clock()
        self._held = StoredState(store)
        self._followed: EpochRecord | None = None  # the record whose entries the log was last seen to hold
        self._follow(self._claim(claim, inherits=inherits))

    def step(self) -> Committed | None:
        """Finish the epoch in flight, or begin, run and commit the next; None when there is nothing to do."""
        return self._step(self._held.look())

    def catch_up(self, *, gather: Callable[[], bool] = lambda: True) -> list[Committed]:
        """Step until everything written before the call is committed.

        `gather` is called ahead of the first step, and tells whether there is to be one.
        """
        self._require_same_log(self._owned(self._held.look()))
        goal = self._store.ends()
        done: list[Committed] = []
        while not self.has_reached(goal) and (done or gather()):
            step = self._step(self._held.record)
            if step is None:
                break
            done.append(step)
        return done

    def collect_garbage(self) -> None:
        """Remove what lies before the committed epoch, as of the last step."""
        collect_garbage(self._store, held=self._held)

    def require_ownership(self) -> EpochRecord:
        """The epoch record, if this coordinator owns it; raises if another one does. Any thread may ask."""
        return self._owned(self._store.read_epoch_record())

    def _owned(self, record: EpochRecord) -> EpochRecord:
        if record.owner != self._state.owner:
            raise Fenced("another pipeline took this store over", "stop this one")
        return record

    def has_reached(self, goal: Positions) -> bool:
        """Whether `goal` is committed, nothing is in flight, every view is filled and nothing that was asked for is due,
        as of the last step."""
        record, catalog = self._held.record, self._held.catalog
        is_asked = due_repair(catalog, record) is not None or due_aside(catalog, record) is not None
        if is_asked or record.inflight or unfilled(catalog, filled=record.filled, stopped=record.stopped):
            return False
        return covers(record.positions, goal) or not self._store.has_changes(record.positions, goal)

    def _step(self, record: EpochRecord) -> Committed | None:
        self._started = self._clock()
        return self._follow(steps.Found(record, self._asked(record)))

    def close(self) -> None:
        """Shut down in order after the last step; recovery from a crash does not need this."""
        if self._state.measured_kept_at is not None:
            self._keep_measured(self._state.measured)
        self._store.close_views(self._state.owner)

    def _follow(self, fact: steps.Fact) -> Committed | None:
        """Do what the fact leads to, and what follows from that, until nothing is left to do."""
        done = None
        self._state, actions = steps.step(fact, self._state)
        waiting = deque(actions)
        while waiting:
            action = waiting.popleft()
            done = action if isinstance(action, Committed) else done
            if (happened := self._do(action)) is not None:
                self._state, actions = steps.step(happened, self._state)
                waiting.extend(actions)
        return done

    def _do(self, action: steps.Action) -> steps.Fact | None:
        match action:
            case steps.Ask(draft, "cut"):
                return self._cut(draft)
            case steps.Ask(draft, "rows"):
                return replace(draft, chunks=plan_chunks(self._store, draft.plan, draft.record, draft.limits))
            case steps.Ask(draft):
                late = late_backfills(self._store, draft.catalog, draft.plan, draft.record.positions)
                return replace(draft, late=late)
            case steps.Begin():
                return self._begin(action)
            case steps.Run(epoch):
                return self._run(epoch)
            case steps.GiveUp(failed):
                return self._give_up(failed)
            case steps.Commit(ran):
                return self._commit(ran)
            case steps.ReplaceViews(record):
                self._replace_views(record)
            case steps.KeepMeasured(measured):
                self._keep_measured(measured)
            case steps.Scale(managers):
                self._runner.scale(managers)
            case event:
                self.tell(event)
        return None

    def _claim(self, claim: Claim | None, *, inherits: bool) -> steps.Claimed:
        """Own the record. `inherits`: go on with the managers that the one before was asked for."""

        def take_over(record: EpochRecord) -> EpochRecord:
            if claim is not None:  # after the read: who gets the claim from here on swaps after us
                claim.beat()
            return epochs.take_over(record, self._state.owner)

        record = self._held.swap_record(take_over)
        if inherits and (asked := requested_managers(self._store, record.generation - 1)):
            request_managers(self._store, asked)
        self._store.open_views()
        if record.sizes is None:  # epochs of a release before did not count what they wrote
            sizes = walked_sizes(self._store, stored_tables(self._held.catalog), record)
            record = self._held.swap_record(lambda record: epochs.count(record, self._state.owner, sizes))
        measured = WorkStats.from_json(self._store.read_note(MEASURED))
        return steps.Claimed(record, *self._store.written_epochs(), measured)

    def _cut(self, draft: steps.Draft) -> steps.Draft:
        if draft.stop is None:
            self._require_same_log(draft.record)
            stage_tables(self._store, self._held, rows_max=draft.limits.rows)
        most = (draft.limits.changes, draft.limits.bytes) if draft.is_bounded else (ALL, ALL)
        mapped = self._held.catalog.foreign
        stop = self._store.cut(draft.record.positions, changes_max=most[0], bytes_max=most[1])
        catalog, have_moved = self._held.look_at_catalog(), self._store.moves_after(stop.stamp)
        return replace(draft, stop=stop, catalog=catalog, mapped=mapped, have_moved=have_moved)

    def _begin(self, begin: steps.Begin) -> steps.Fact:
        failpoint("repair.due") if begin.repair else failpoint("begin.cut")
        owner, plan = self._state.owner, self._keep_plan(begin.plan)
        try:
            begun = self._held.swap_record(
                lambda record: epochs.begin(record, owner, begin.stop, plan, begin.chunks, begin.views, begin.repair)
            )
        except RowsMoved:
            return steps.Found(self._held.look())
        failpoint("begin.swapped")
        return steps.Begun(begun)

    def _run(self, epoch: Inflight) -> steps.Fact:
        self._store.sync_epoch_record()  # R10.3, also when another process began the epoch
        failpoint("run.synced")
        self._store.admit(epoch)
        failpoint("run.fenced")
        plan = self._plan_of(epoch)
        try:
            counts = self._runner.run(plan, epoch)
        except EpochFailed as error:
            return steps.RunFailed(epoch, error, self._size(epoch))
        except LaterRecord as error:
            if error.table is None or self.require_ownership().inflight != epoch:
                raise
            return steps.RunFailed(epoch, ViewFailed(error.table, _DAMAGED), self._size(epoch))
        except PositionLost as error:
            if self.require_ownership().inflight == epoch:  # otherwise it is over, and so is what it asked for
                raise PositionLost(f"epoch {epoch.epoch} is in flight, but {error.fact}", _FILL_ANEW) from error
            raise
        failpoint("run.receipts")
        is_usual = not epoch.chunks and not epoch.repair
        return steps.Ran(epoch, counts, self._measure(plan, counts) if is_usual else WorkStats())

    def _give_up(self, failed: steps.RunFailed) -> steps.GivenUp:
        owner = self._state.owner
        failpoint("abort.start")
        record = self._held.swap_record(lambda record: _without_epoch(record, owner, failed.epoch, failed.error))
        failpoint("abort.swapped")
        self._store.sync_epoch_record()
        return steps.GivenUp(failed, record)

    def _commit(self, ran: steps.Ran) -> steps.CommittedInRecord:
        epoch = ran.epoch
        self._store.sync_views()  # R10.5
        failpoint("commit.synced")
        owner, checksums = self._state.owner, self._store.checksums(epoch.stop.positions)
        catalog = self._held.look_at_catalog()
        tables = frozenset(number for node in catalog.nodes for number in (node.table, node.backfill))
        plan = self._plan_of(epoch)
        repaired = _repaired(catalog, plan.repairs, epoch, ran.counts, self._store.now()) if plan.repairs else {}
        aside = plan.aside.id if plan.aside else 0
        late = late_backfills(self._store, catalog, plan, epoch.stop.positions)
        stored = stored_tables(catalog)

        def commit(record: EpochRecord) -> EpochRecord:
            sizes = sizes_after(record.sizes or {}, ran.counts, stored)
            return epochs.commit(record, owner, epoch.epoch, checksums, tables, repaired, aside, late, sizes)

        record = self._held.swap_record(commit)
        failpoint("commit.swapped")
        self._store.sync_epoch_record()  # R10.7
        failpoint("commit.done")
        now = self._clock()
        return steps.CommittedInRecord(ran, record, now - self._started, now, self._waiting(record))

    def scale(self, bounds: ManagerBounds) -> None:
        """Have so many view managers from the next epoch on."""
        self.require_ownership()
        request_managers(self._store, bounds)

    def _asked(self, record: EpochRecord) -> ManagerBounds | None:
        return None if self._state.scaling is None else requested_managers(self._store, record.generation)

    def _waiting(self, record: EpochRecord) -> int:
        """How many changes wait, where the number of managers depends on it."""
        scaling = self._state.scaling
        return 0 if scaling is None or scaling.bounds.is_fixed else self._store.waiting(record.positions).changes

    def _replace_views(self, record: EpochRecord) -> None:
        """Between two epochs: replace views by their replacements that are filled, drop twins and requests that are done."""

        def change(catalog: Catalog) -> Catalog:
            changed = catalog.with_replaced(record.filled, record.committed)
            changed = changed.without_shadow_views(done_with(changed, record), record.committed)
            changed = changed.without_asides(asides_done_with(changed, record))
            return changed.with_all_staged(staged)

        staged = tables_staged(self._store, self._held.catalog, record.positions)
        if change(self._held.catalog) is not self._held.catalog:
            failpoint("replace.ready")
            self._held.swap_catalog(change)
            failpoint("replace.swapped")

    def _measure(self, plan: PhysicalPlan, counts: Counts) -> WorkStats:
        if self._bases is None or self._bases[0] is not plan:
            self._bases = plan, plan.bases
        return WorkStats.of_epoch(counts, self._bases[1])

    def _keep_measured(self, measured: WorkStats) -> None:
        """Keep what epochs cost; a store that is full or busy loses it, and no view depends on it."""
        with suppress(StoreError, OSError):
            catalog = self._held.catalog
            tables = stored_tables(catalog).union(table.id for table in catalog.tables)
            self._store.keep_note(MEASURED, measured.only(tables).to_json())

    def _keep_plan(self, plan: PhysicalPlan) -> str:
        """Store the plan, unless it is that of the epoch before; returns its digest."""
        if self._planned is None or self._planned[1] is not plan:
            self._planned = plan.digest, plan
            self._store.keep_plan(self._planned[0], plan.to_json())
            failpoint("begin.planned")
        return self._planned[0]

    def _plan_of(self, epoch: Inflight) -> PhysicalPlan:
        if self._planned is None or self._planned[0] != epoch.plan:
            self._planned = epoch.plan, PhysicalPlan.from_json(self._store.read_plan(epoch.plan))
        return self._planned[1]

    def _size(self, epoch: Inflight) -> steps.Size:
        size = self._store.log_bytes(epoch.start, epoch.stop.positions) + sum(chunk.bytes for chunk in epoch.chunks)
        rows = sum(chunk.rows for chunk in epoch.chunks)
        return steps.Size(epoch.stop.changes, rows, size)

    def _require_same_log(self, record: EpochRecord) -> None:
        """R9: the entry at a committed position must be the one that was committed; looked at once for each record."""
        if record is self._followed:
            return
        now = self._store.checksums(record.positions)
        others = [stream for stream, checksum in record.checksums.items() if now.get(stream) != checksum]
        for stream, end in self._store.ends().items() if others else ():
            # truncation keeps this entry, so it may not be missing either, unless the node was removed
            if stream in others:
                self._require_log_after(stream, record.positions[stream], end)
                raise LogDiverged(
                    f"the log of node {stream} is not the one that epoch {record.committed} was made from",
                    "restore the whole store, not a part of it",
                )
        self._followed = record

    def _require_log_after(self, stream: Stream, start: Position, end: Position) -> None:
        """Raise PositionLost where the log was truncated behind a committed position: then it is short, not another one."""
        try:
            next(iter(self._store.read_log(stream, start, end)), None)
        except PositionLost as error:
            raise PositionLost(f"the log of node {stream} no longer holds what is committed", _FILL_ANEW) from error


def _repaired(
    catalog: Catalog, repairs: Sequence[RepairNode], epoch: Inflight, counts: Counts, now: int
) -> dict[int, Repaired]:
    """What an epoch put right in each view, by its own table: the same, also where an earlier run wrote a part."""
    compared = {node.table for node in repairs}
    differed = {table: work.inputs for table, work in counts.tables.items() if table in compared}
    found = {}
    for view in [view for view in catalog.views if view.node.table in compared]:
        own, tables = view.node.table, {table for node in catalog.stored(view) for table in node.tables}
        auxiliary = sum(differed.get(table, 0) for table in tables if table != own)
        found[int(own)] = Repaired(epoch.repair, epoch.epoch, now, differed.get(own, 0), auxiliary)
    return found


def _without_epoch(record: EpochRecord, owner: str, epoch: Inflight, failure: EpochFailed) -> EpochRecord:
    """The record with the epoch aborted, and its culprit stopped."""
    if record.inflight is None or record.inflight.epoch != epoch.epoch:
        raise Fenced(f"epoch {epoch.epoch} is no longer in flight")
    if not isinstance(failure, ViewFailed):
        return epochs.abort(record, owner, {})
    if failure.table in record.stopped:  # what every epoch needs, as DELTA, cannot be left out: the next one fails too
        raise EpochFailed(f"no epoch can do without table {failure.table}: {failure.reason}", "see viewkeeper status")
    return epochs.abort(record, owner, {failure.table: failure.reason})
