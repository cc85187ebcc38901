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
    EpochTooLarge,
    Fenced,
    LaterRecord,
    LogDiverged,
    PositionLost,
    RowsMoved,
    StoreError,
    ViewFailed,
)
from viewkeeper.events import Committed, EventSink, Where
from viewkeeper.failpoints import failpoint
from viewkeeper.model import epochs
from viewkeeper.model.epochs import EpochRecord, Inflight, Repaired
from viewkeeper.model.positions import Positions, covers
from viewkeeper.model.work_stats import MEASURED, Counts, WorkStats
from viewkeeper.plan.nodes import RepairNode
from viewkeeper.plan.physical import PhysicalPlan
from viewkeeper.plan.planner import asides_done_with, done_with, due_aside, due_repair, unfilled
from viewkeeper.ports.log import ALL
from viewkeeper.ports.meta import Claim
from viewkeeper.ports.store import Store
from viewkeeper.settings import EpochLimits, ManagerBounds

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


class _SwappedLate(Exception):
    """A swap of this coordinator that got no reply was done after it had looked: the record is another one, and its own."""


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
        owner: str | None = None,
        where: Callable[[], Where] = Where,
    ) -> None:
        self._store = store
        self._runner = runner
        self._where = where  # the runner ran the last epoch
        scaling = None if managers is None else Scaling.within(managers)
        self._state = steps.State(owner or uuid.uuid4().hex, limits or EpochLimits(), scaling=scaling)
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
        """Step until everything written before the call is committed; `gather` tells whether there is to be a first step."""
        self._require_same_log(self._owned(self._held.look()))
        goal = self._store.ends()
        chunks = set(self._store.staged() if self._held.catalog.foreign else ()).difference(self._held.record.taken)
        done: list[Committed] = []
        while (chunks or not self.has_reached(goal)) and (done or gather()):
            step = self._step(self._held.record)
            if step is None:
                break
            chunks.difference_update(self._held.record.taken)
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
            raise steps.taken_over()
        return record

    def has_reached(self, goal: Positions) -> bool:
        """Whether, as of the last step, `goal` is committed, every view is filled and in its place, and nothing is in flight
        or asked for."""
        record, catalog = self._held.record, self._held.catalog
        is_asked = due_repair(catalog, record) is not None or due_aside(catalog, record) is not None
        if is_asked or record.inflight or unfilled(catalog, filled=record.filled, stopped=record.stopped):
            return False
        if _up_to_date(catalog, record) is not catalog:
            return False
        return covers(record.positions, goal) or not self._store.describe(record.positions, goal).has_changes

    def _step(self, record: EpochRecord) -> Committed | None:
        self._started = self._clock()
        is_scaled = self._state.scaling is not None
        asked = requested_managers(self._store, record.generation) if is_scaled else None
        return self._follow(steps.Found(record, asked))

    def close(self) -> None:
        """Shut down in order after the last step; recovery from a crash does not need this."""
        if self._state.measured_kept_at is not None:
            self._keep_measured(self._state.measured)
        self._store.sync(closed_by=self._state.owner)

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
        try:
            return self._act(action)
        except (RowsMoved, _SwappedLate):
            return steps.Found(self._held.look())

    def _act(self, action: steps.Action) -> steps.Fact | None:
        match action:
            case steps.Ask(draft, "cut"):
                return self._cut(draft)
            case steps.Ask(draft, "rows"):
                return replace(draft, chunks=plan_chunks(self._store, draft.plan, draft.record, draft.limits))
            case steps.Ask(draft):
                reached = draft.record.positions, draft.record.taken
                return replace(draft, late=late_backfills(self._store, draft.catalog, draft.plan, *reached))
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
        if record.sizes is None:  # epochs of a release before did not count what they wrote
            sizes = walked_sizes(self._store, stored_tables(self._held.catalog), record)
            record = self._held.swap_record(lambda record: epochs.count(record, self._state.owner, sizes))
        measured = WorkStats.from_json(self._store.read_json("note", MEASURED))
        return steps.Claimed(record, *self._store.written_epochs(), measured)

    def _cut(self, draft: steps.Draft) -> steps.Draft:
        if draft.stop is None:
            self._require_same_log(draft.record)
            self._drop_taken(draft.record)  # who committed it may have died before
            stage_tables(self._store, self._held, rows_max=draft.limits.rows)
        most = (draft.limits.changes, draft.limits.bytes) if draft.is_bounded else (ALL, ALL)
        mapped = self._held.catalog.foreign
        stop = self._store.cut(draft.record.positions, changes_max=most[0], bytes_max=most[1])
        catalog, have_moved = self._held.look_at_catalog(), self._store.moves_after((draft.stop or stop).stamp)
        return replace(draft, stop=stop, catalog=catalog, mapped=mapped, have_moved=draft.have_moved or have_moved)

    def _begin(self, begin: steps.Begin) -> steps.Begun:
        failpoint("repair.due") if begin.repair else failpoint("begin.cut")
        owner, plan = self._state.owner, self._keep_plan(begin.plan)
        begun = self._swap_while(
            None, lambda record: epochs.begin(record, owner, begin.stop, plan, begin.chunks, begin.views, begin.repair)
        )
        failpoint("begin.swapped")
        return steps.Begun(begun)

    def _run(self, epoch: Inflight) -> steps.Fact:
        failpoint("run.synced")
        self._store.admit(epoch)
        failpoint("run.fenced")
        try:
            plan = self._plan_of(epoch)
        except EpochFailed as error:
            return steps.RunFailed(epoch, error, self._size(epoch), is_final=True)
        try:
            if (ended := self._too_often(epoch)) is not None:
                return ended
            counts = self._runner.run(plan, epoch)
        except EpochFailed as error:
            return steps.RunFailed(epoch, _with_name(error, self._held.catalog), self._size(epoch))
        except (Fenced, PositionLost) as error:
            if self.require_ownership().inflight != epoch:  # it is over, and so is what it asked for
                raise _SwappedLate from error
            if isinstance(error, PositionLost):
                raise PositionLost(f"epoch {epoch.epoch} is in flight, but {error.fact}", _FILL_ANEW) from error
            if not isinstance(error, LaterRecord) or error.table is None:
                raise
            failure = _with_name(ViewFailed(error.table, _DAMAGED), self._held.catalog)
            return steps.RunFailed(epoch, failure, self._size(epoch))
        failpoint("run.receipts")
        if epoch.chunks or epoch.repair:
            measured = WorkStats()
        else:
            if self._bases is None or self._bases[0] is not plan:
                self._bases = plan, plan.bases
            measured = WorkStats.of_epoch(counts, self._bases[1])
        return steps.Ran(epoch, counts, measured, self._where())

    def _too_often(self, epoch: Inflight) -> steps.RunFailed | None:
        """The end of an epoch that each pipeline in turn left in flight: it may take more memory than there is."""
        limits = self._state.limits
        if epoch.takeovers > limits.takeovers_max:
            size = self._size(epoch)
            if size.changes + size.rows > limits.smallest_work or size.bytes > limits.smallest_bytes:
                left = EpochFailed(f"{epoch.takeovers} pipelines left it in flight: the next one is smaller")
                return steps.RunFailed(epoch, left, size, is_final=True)
        return None

    def _give_up(self, failed: steps.RunFailed) -> steps.GivenUp:
        owner = self._state.owner
        failpoint("abort.start")
        try:
            record = self._swap_while(failed.epoch, lambda record: _without_epoch(record, owner, failed.error))
        except _SwappedLate:
            record = self._held.look()
            if failed.epoch.epoch not in self._owned(record).aborted:
                raise
        failpoint("abort.swapped")
        return steps.GivenUp(failed, record)

    def _commit(self, ran: steps.Ran) -> steps.CommittedInRecord:
        epoch = ran.epoch
        self._store.sync()  # R10.5
        failpoint("commit.synced")
        owner, checksums = self._state.owner, self._store.checksums(epoch.stop.positions)
        catalog = self._held.look_at_catalog()
        tables = frozenset(number for node in catalog.nodes for number in (node.table, node.backfill))
        plan = self._plan_of(epoch)
        repaired = _repaired(catalog, plan.repairs, epoch, ran.counts, self._store.now()) if plan.repairs else {}
        aside = plan.aside.id if plan.aside else 0
        late = late_backfills(self._store, catalog, plan, epoch.stop.positions, epoch.stop.staged)
        stored = stored_tables(catalog)

        def commit(record: EpochRecord) -> EpochRecord:
            sizes = sizes_after(record.sizes or {}, ran.counts, stored)
            return epochs.commit(record, owner, epoch.epoch, checksums, tables, repaired, aside, late, sizes)

        try:
            record = self._swap_while(epoch, commit)
        except _SwappedLate:
            record = self._held.look()
            if self._owned(record).committed != epoch.epoch:
                raise
            self._store.sync()  # R10: found done
        failpoint("commit.swapped")
        failpoint("commit.done")
        with suppress(StoreError, OSError):  # then they go before the next epoch
            self._drop_taken(record)
        now, scaling = self._clock(), self._state.scaling
        is_fixed = scaling is None or scaling.bounds.is_fixed  # else their number depends on what waits
        waiting = 0 if is_fixed else self._store.describe(record.positions).changes
        return steps.CommittedInRecord(ran, record, now - self._started, now, waiting)

    def _swap_while(self, inflight: Inflight | None, change: Callable[[EpochRecord], EpochRecord]) -> EpochRecord:
        """Swap the record while that is in flight; it may be begun, aborted or committed by a swap that was late (R5)."""

        def change_own(record: EpochRecord) -> EpochRecord:
            if self._owned(record).inflight != inflight:
                raise _SwappedLate
            return change(record)

        return self._held.swap_record(change_own)

    def scale(self, bounds: ManagerBounds) -> None:
        """Have so many view managers from the next epoch on."""
        self.require_ownership()
        request_managers(self._store, bounds)

    def _replace_views(self, record: EpochRecord) -> None:
        """Between two epochs: replace views by their replacements that are filled, drop twins and requests that are done."""

        seen = self._held.catalog
        staged = tables_staged(self._store, seen, record.positions, record.taken)
        stagings = {table.id: table.foreign.staging for table in seen.tables if table.foreign and table.id in staged}

        def change(catalog: Catalog) -> Catalog:
            return _up_to_date(catalog, record).with_all_staged(stagings)

        if change(seen) is not seen:
            self.require_ownership()  # the record may be older than a take-over
            failpoint("replace.ready")
            self._held.swap_catalog(change)
            failpoint("replace.swapped")

    def _keep_measured(self, measured: WorkStats) -> None:
        """Keep what epochs cost; a store that is full or busy loses it, and no view depends on it."""
        with suppress(StoreError, OSError):
            catalog = self._held.catalog
            tables = stored_tables(catalog).union(table.id for table in catalog.tables)
            self._store.keep_json("note", MEASURED, measured.only(tables).to_json())

    def _keep_plan(self, plan: PhysicalPlan) -> str:
        """Store the plan, unless it is that of the epoch before; returns its digest."""
        if self._planned is None or self._planned[1] is not plan:
            digest = plan.digest
            self._store.keep_json("plan", digest, plan.to_json())
            self._planned = digest, plan
            failpoint("begin.planned")
        return self._planned[0]

    def _plan_of(self, epoch: Inflight) -> PhysicalPlan:
        if self._planned is None or self._planned[0] != epoch.plan:
            self._planned = epoch.plan, PhysicalPlan.from_json(self._store.read_json("plan", epoch.plan))
        return self._planned[1]

    def _drop_taken(self, record: EpochRecord) -> None:
        if record.taken:
            self._store.drop_staged(record.taken)

    def _size(self, epoch: Inflight) -> steps.Size:
        size = self._store.describe(epoch.start, epoch.stop.positions).bytes
        rows = sum(chunk.rows for chunk in epoch.chunks)
        return steps.Size(epoch.stop.changes, rows, size + sum(chunk.bytes for chunk in epoch.chunks))

    def _require_same_log(self, record: EpochRecord) -> None:
        """R9: the entry at a committed position must be the one that was committed; looked at once for each record."""
        if record is self._followed:
            return
        now = self._store.checksums(record.positions)
        others = [stream for stream, checksum in record.checksums.items() if now.get(stream) != checksum]
        for stream, end in self._store.ends().items() if others else ():
            # truncation keeps this entry, so it may not be missing either, unless the node was removed
            if stream in others:
                try:
                    next(iter(self._store.read_log(stream, record.positions[stream], end)), None)
                except PositionLost as error:  # the log was truncated: it is short, not another one
                    fact = f"the log of node {stream} no longer holds what is committed"
                    raise PositionLost(fact, _FILL_ANEW) from error
                raise LogDiverged(
                    f"the log of node {stream} is not the one that epoch {record.committed} was made from",
                    "restore the whole store, not a part of it",
                )
        self._followed = record


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


def _with_name(error: EpochFailed, catalog: Catalog) -> EpochFailed:
    """The error with the names of the views, or of the base table, in place of the number of the stored table."""
    if not isinstance(error, ViewFailed | EpochTooLarge):
        return error
    named = type(error)(error.table, error.reason, _name_of(error.table, catalog))
    named.__cause__ = error.__cause__
    return named


def _name_of(table: int, catalog: Catalog) -> str:
    for base in catalog.tables:
        if table in base.tables:
            return f"DELTA({base.name})" if table == base.delta else f"table {base.name}"
    names = [view.name for view in catalog.views if table in view.needs]
    return f"view{'s' * (len(names) > 1)} {', '.join(names)}" if names else ""


def _up_to_date(catalog: Catalog, record: EpochRecord) -> Catalog:
    """The catalog with views replaced by their replacements that are filled, without twins and requests that are done."""
    changed = catalog.with_replaced(record.filled, record.committed)
    changed = changed.without_shadow_views(done_with(changed, record), record.committed)
    return changed.without_asides(asides_done_with(changed, record))


def _without_epoch(record: EpochRecord, owner: str, failure: EpochFailed) -> EpochRecord:
    """The record with its epoch aborted, and the culprit stopped."""
    if not isinstance(failure, ViewFailed):
        return epochs.abort(record, owner, {})
    if failure.table in record.stopped:  # what every epoch needs, as DELTA, cannot be left out: the next one fails too
        raise EpochFailed(
            f"{failure.name or f'table {failure.table}'}, which every epoch needs, failed again: {failure.reason}",
            "put right what the reason names, or restore a backup",
        )
    return epochs.abort(record, owner, {failure.table: failure.reason})
