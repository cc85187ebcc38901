"""The coordinator: moves a store's views from epoch to epoch, one after the other (`docs/epochs.md`, sections 1 and 2).

In: the store, and a runner that does an epoch's work. Out: committed epochs. Always: `steps` decides, this module acts;
the store's epoch record is the truth (R5, R9); syncs happen where R10 requires them.
"""

from __future__ import annotations

import time
import uuid
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Protocol

from viewkeeper.catalog.catalog import Catalog
from viewkeeper.coordinator import steps
from viewkeeper.coordinator.backfill import plan_chunks
from viewkeeper.coordinator.scaling import Scaling
from viewkeeper.coordinator.sizes import sizes_after, stored_tables, walked_sizes
from viewkeeper.coordinator.staging import late_backfills, stage_tables, tables_staged
from viewkeeper.coordinator.swaps import swap_catalog, swap_record
from viewkeeper.coordinator.wishes import ask_for_managers, asked_managers
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
from viewkeeper.model.counts import Counts
from viewkeeper.model.epochs import EpochRecord, Inflight
from viewkeeper.model.managers import ManagerBounds
from viewkeeper.model.measured import MEASURED, Measured
from viewkeeper.model.positions import Cut, Position, Positions, Stream, covers
from viewkeeper.model.verdicts import Repaired
from viewkeeper.plan.nodes import RepairNode
from viewkeeper.plan.physical import PhysicalPlan
from viewkeeper.plan.planner import physical_plan, unfilled
from viewkeeper.plan.repairs import aside_plan, asides_done_with, done_with, due_aside, due_repair, repair_plan
from viewkeeper.ports.meta import Claim
from viewkeeper.ports.store import Store
from viewkeeper.settings import EpochLimits

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
        self._follow(self._claim(claim, inherits=inherits))

    def step(self) -> Committed | None:
        """Finish the epoch in flight, or begin, run and commit the next; None when there is nothing to do."""
        self._started = self._clock()
        record = self._store.read_epoch_record()
        return self._follow(steps.Found(record, self._asked(record)))

    def catch_up(self, *, gather: Callable[[], bool] = lambda: True) -> list[Committed]:
        """Step until everything written before the call is committed.

        `gather` is called ahead of the first step, and tells whether there is to be one.
        """
        self._require_same_log(self.require_ownership())
        goal = self._store.ends()
        done: list[Committed] = []
        while not self.has_reached(goal) and (done or gather()):
            step = self.step()
            if step is None:
                break
            done.append(step)
        return done

    def require_ownership(self) -> EpochRecord:
        """The epoch record, if this coordinator owns it; raises if another one does."""
        record = self._store.read_epoch_record()
        if record.owner != self._state.owner:
            raise Fenced("another pipeline took this store over", "stop this one")
        return record

    def has_reached(self, goal: Positions) -> bool:
        """Whether `goal` is committed, nothing is in flight, every view is filled and nothing that was asked for is due."""
        record = self._store.read_epoch_record()
        catalog = Catalog.from_json(self._store.read_catalog())
        is_filled = not unfilled(catalog, filled=record.filled, stopped=record.stopped)
        is_asked = due_repair(catalog, record) is not None or due_aside(catalog, record) is not None
        is_done = record.inflight is None and not is_asked
        return is_done and is_filled and not self._store.has_changes(record.positions, goal)

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
            case steps.Plan(record, limits):
                return self._plan(record, limits)
            case steps.Begin(planned):
                return self._begin(planned)
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

        record = swap_record(self._store, take_over)
        if inherits and (asked := asked_managers(self._store, record.generation - 1)):
            ask_for_managers(self._store, asked)
        self._store.open_views()
        if record.sizes is None:
            record = self._count(record)
        measured = Measured.from_json(self._store.read_note(MEASURED))
        return steps.Claimed(record, *self._store.written_epochs(), measured)

    def _count(self, record: EpochRecord) -> EpochRecord:
        """Count what epochs of a release before have written."""
        tables = stored_tables(Catalog.from_json(self._store.read_catalog()))
        owner, sizes = self._state.owner, walked_sizes(self._store, tables, record)
        return swap_record(self._store, lambda record: epochs.count(record, owner, sizes))

    def _plan(self, record: EpochRecord, limits: EpochLimits) -> steps.Planned:
        """Where the next epoch ends, what it runs, and the tables of the views that it maintains.

        The catalog is read after the cut: it holds every table that has a change before the cut, and DELTA gets every
        change.
        """
        self._require_same_log(record)
        if (asked := self._plan_repair(record)) is not None:
            return asked
        catalog = Catalog.from_json(self._store.read_catalog())
        stage_tables(self._store, catalog, rows_max=limits.rows)
        is_read, known, mapped = True, None, catalog.foreign
        while True:
            # what nobody reads can be skipped at once
            most = (limits.changes, limits.bytes) if is_read else (ALL, ALL)
            stop = self._store.cut(record.positions, changes_max=most[0], bytes_max=most[1])
            found = self._store.read_catalog()
            has_moved = self._store.moves_after(stop.stamp)  # then no fill begins: it would miss those rows (R12)
            if (found, has_moved) != known:  # the first time, or after a change between two cuts
                known, catalog = (found, has_moved), Catalog.from_json(found)
                if not catalog.foreign <= mapped:  # the cut did not look for what is special in their logs
                    mapped, known = catalog.foreign, None
                    continue
                late = unfilled(catalog, filled=record.filled, stopped=record.stopped) if has_moved else frozenset()
                kept = late.difference(record.filling)
                plan = physical_plan(catalog, filling=record.filling, stopped=record.stopped, late=kept)
                chunks = plan_chunks(self._store, plan, record, limits)
            if plan.reads_log(chunks) == is_read:
                break
            is_read = not is_read
        has_work = bool(chunks) or not covers(record.positions, stop.positions)
        if not has_work and record.filling:  # a view may have lacked nothing but that its tables be staged
            late = late_backfills(self._store, catalog, plan, record.positions)
            has_work = any(fill.is_done and backfill not in late for backfill, fill in record.filling.items())
        if has_work:
            failpoint("begin.cut")
            self._keep_plan(plan)
        views = frozenset(view.node.table for view in catalog.kept)
        return steps.Planned(stop, self._planned[0] if self._planned else "", chunks, views, has_work)

    def _plan_repair(self, record: EpochRecord) -> steps.Planned | None:
        """An epoch without changes, which compares views with their twins, or does what was asked for rows set aside."""
        catalog = Catalog.from_json(self._store.read_catalog())
        repair, aside = due_repair(catalog, record), due_aside(catalog, record)
        if repair is not None:
            plan, number = repair_plan(catalog, repair), repair.backfill
        elif aside is not None:
            plan, number = aside_plan(catalog, record, aside), aside.id
        else:
            return None
        failpoint("repair.due")
        self._keep_plan(plan)
        views = frozenset(view.node.table for view in catalog.kept)
        stop = Cut(record.positions, record.stamp, 0)
        return steps.Planned(stop, self._planned[0] if self._planned else "", (), views, True, number)

    def _begin(self, planned: steps.Planned) -> steps.Fact:
        owner = self._state.owner
        try:
            begun = swap_record(
                self._store,
                lambda record: epochs.begin(
                    record, owner, planned.stop, planned.plan, planned.chunks, planned.views, planned.repair
                ),
            )
        except RowsMoved:
            return steps.Found(self._store.read_epoch_record())
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
        return steps.Ran(epoch, counts, self._measure(plan, counts) if is_usual else Measured())

    def _give_up(self, failed: steps.RunFailed) -> steps.GivenUp:
        owner = self._state.owner
        failpoint("abort.start")
        record = swap_record(self._store, lambda record: _without_epoch(record, owner, failed.epoch, failed.error))
        failpoint("abort.swapped")
        self._store.sync_epoch_record()
        return steps.GivenUp(failed, record)

    def _commit(self, ran: steps.Ran) -> steps.CommittedInRecord:
        epoch = ran.epoch
        self._store.sync_views()  # R10.5
        failpoint("commit.synced")
        owner, checksums = self._state.owner, self._store.checksums(epoch.stop.positions)
        catalog = Catalog.from_json(self._store.read_catalog())
        tables = frozenset(number for node in catalog.nodes for number in (node.table, node.backfill))
        plan = self._plan_of(epoch)
        repaired = _repaired(catalog, plan.repairs, epoch, ran.counts, self._store.now()) if plan.repairs else {}
        aside = plan.aside.id if plan.aside else 0
        late = late_backfills(self._store, catalog, plan, epoch.stop.positions)
        stored = stored_tables(catalog)

        def commit(record: EpochRecord) -> EpochRecord:
            sizes = sizes_after(record.sizes or {}, ran.counts, stored)
            return epochs.commit(record, owner, epoch.epoch, checksums, tables, repaired, aside, late, sizes)

        record = swap_record(self._store, commit)
        failpoint("commit.swapped")
        self._store.sync_epoch_record()  # R10.7
        failpoint("commit.done")
        now = self._clock()
        return steps.CommittedInRecord(ran, record, now - self._started, now, self._waiting(record))

    def scale(self, bounds: ManagerBounds) -> None:
        """Have so many view managers from the next epoch on."""
        self.require_ownership()
        ask_for_managers(self._store, bounds)

    def _asked(self, record: EpochRecord) -> ManagerBounds | None:
        return None if self._state.scaling is None else asked_managers(self._store, record.generation)

    def _waiting(self, record: EpochRecord) -> int:
        """How many changes wait, where the number of managers depends on it."""
        scaling = self._state.scaling
        return 0 if scaling is None or scaling.bounds.is_fixed else self._store.waiting(record.positions).changes

    def _replace_views(self, record: EpochRecord) -> None:
        """Between two epochs: replace views by their replacements that are filled, drop twins and requests that are done."""

        def change(catalog: Catalog) -> Catalog:
            changed = catalog.with_replaced(record.filled, record.committed)
            changed = changed.without_twins(done_with(changed, record), record.committed)
            changed = changed.without_asides(asides_done_with(changed, record))
            return changed.with_all_staged(staged)

        catalog = Catalog.from_json(self._store.read_catalog())
        staged = tables_staged(self._store, catalog, record.positions)
        if change(catalog) is not catalog:
            failpoint("replace.ready")
            swap_catalog(self._store, change)
            failpoint("replace.swapped")

    def _measure(self, plan: PhysicalPlan, counts: Counts) -> Measured:
        if self._bases is None or self._bases[0] is not plan:
            self._bases = plan, plan.bases
        return Measured.of_epoch(counts, self._bases[1])

    def _keep_measured(self, measured: Measured) -> None:
        """Keep what epochs cost; a store that is full or busy loses it, and no view depends on it."""
        with suppress(StoreError, OSError):
            catalog = Catalog.from_json(self._store.read_catalog())
            tables = stored_tables(catalog).union(table.id for table in catalog.tables)
            self._store.keep_note(MEASURED, measured.only(tables).to_json())

    def _keep_plan(self, plan: PhysicalPlan) -> None:
        """Store the plan, unless it is that of the epoch before."""
        if self._planned is None or self._planned[1] is not plan:
            self._planned = plan.digest, plan
            self._store.keep_plan(self._planned[0], plan.to_json())
            failpoint("begin.planned")

    def _plan_of(self, epoch: Inflight) -> PhysicalPlan:
        if self._planned is None or self._planned[0] != epoch.plan:
            self._planned = epoch.plan, PhysicalPlan.from_json(self._store.read_plan(epoch.plan))
        return self._planned[1]

    def _size(self, epoch: Inflight) -> steps.Size:
        size = self._store.log_bytes(epoch.start, epoch.stop.positions) + sum(chunk.bytes for chunk in epoch.chunks)
        rows = sum(chunk.rows for chunk in epoch.chunks)
        return steps.Size(epoch.stop.changes, rows, size)

    def _require_same_log(self, record: EpochRecord) -> None:
        """R9: the entry at a committed position must be the one that was committed."""
        now, ends = self._store.checksums(record.positions), self._store.ends()
        for stream, checksum in record.checksums.items():
            # truncation keeps this entry, so it may not be missing either, unless the node was removed
            if stream in ends and now.get(stream) != checksum:
                self._require_log_after(stream, record.positions[stream], ends[stream])
                raise LogDiverged(
                    f"the log of node {stream} is not the one that epoch {record.committed} was made from",
                    "restore the whole store, not a part of it",
                )

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
