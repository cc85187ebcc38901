"""The coordinator's decisions: what to do next, given what has happened (`docs/epochs.md`, sections 1 and 2).

In: a state and a fact. Out: the next state, and actions. Always: no I/O; an epoch found in flight is run unchanged,
whoever began it; an epoch is committed only after a run with all receipts (R18a); one that cannot finish is aborted
(R8), so that it does not block every view for ever. A coordinator that dies is replaced by one in its first state.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Literal, assert_never

from viewkeeper.catalog.catalog import Catalog
from viewkeeper.coordinator.view_managers import Load, Scaling, scaled
from viewkeeper.errors import CorruptStore, EpochFailed, EpochRecordLost, EpochTooLarge, Fenced, ViewFailed
from viewkeeper.events import Aborted, Backfilling, Began, Committed, Event, Scaled, TookOver, Where
from viewkeeper.model.epochs import EpochRecord, Inflight
from viewkeeper.model.positions import BackfillProgress, Chunk, Cut, covers, with_chunks
from viewkeeper.model.work_stats import Counts, WorkStats
from viewkeeper.plan.physical import PhysicalPlan
from viewkeeper.plan.planner import aside_plan, due_aside, due_repair, physical_plan, repair_plan, unfilled
from viewkeeper.settings import EpochLimits, ManagerBounds, ScalingSettings

KEEP_MEASURED_SECONDS = 5.0
_NOTHING = PhysicalPlan((), ())


@dataclass(frozen=True, slots=True)
class State:
    """What a coordinator remembers besides the epoch record; a new coordinator can do without it."""

    owner: str
    limits: EpochLimits
    share: float = 1.0  # of the limits; smaller after an epoch that could not finish
    given_up: Inflight | None = None  # the last one
    attempts: int = 0  # at the epoch in flight
    measured: WorkStats = field(default_factory=WorkStats)
    measured_kept_at: float | None = None
    scaling: Scaling | None = None  # None: whoever runs epochs has managers of its own
    asked: ManagerBounds | None = None  # the last wish that was obeyed
    ended_at: float | None = None  # the last commit


@dataclass(frozen=True, slots=True)
class Size:
    """The size of an epoch's input: changes, rows of backfills, and the bytes of both."""

    changes: int
    rows: int
    bytes: int


# Facts: what the shell found, or did.


@dataclass(frozen=True, slots=True)
class Claimed:
    """The record is this coordinator's; views were written by epochs from `oldest` to `newest`."""

    record: EpochRecord
    oldest: int
    newest: int
    measured: WorkStats = field(default_factory=WorkStats)


@dataclass(frozen=True, slots=True)
class Found:
    """The epoch record between two actions, and the view managers that an operator last asked for."""

    record: EpochRecord
    asked: ManagerBounds | None = None


@dataclass(frozen=True, slots=True)
class Draft:
    """The next epoch as far as it is known: after `record`, of about the size of `limits`, or with all that nobody reads.

    `catalog` was read after the cut `stop`: it holds every table that has a change before the cut, and DELTA gets every
    change. The cut looked at the logs of the foreign tables in `mapped`. Since the first cut of the draft rows
    `have_moved` to other nodes: a later cut may come after rows that were planned before the move.
    """

    record: EpochRecord
    limits: EpochLimits
    is_bounded: bool = True
    stop: Cut | None = None
    catalog: Catalog = field(default_factory=Catalog)
    mapped: frozenset[int] = frozenset()
    have_moved: bool = False
    plan: PhysicalPlan = _NOTHING
    chunks: tuple[Chunk, ...] = ()  # of this plan
    late: frozenset[int] | None = None  # the backfills of this plan that lack rows of foreign tables


@dataclass(frozen=True, slots=True)
class Begun:
    record: EpochRecord


@dataclass(frozen=True, slots=True)
class Ran:
    """All receipts of the epoch in flight have arrived."""

    epoch: Inflight
    counts: Counts
    measured: WorkStats = field(default_factory=WorkStats)
    where: Where = field(default_factory=Where)


@dataclass(frozen=True, slots=True)
class RunFailed:
    """The epoch could not be run. `is_final`: nor can it ever be."""

    epoch: Inflight
    error: EpochFailed
    size: Size
    is_final: bool = False


@dataclass(frozen=True, slots=True)
class GivenUp:
    """The epoch is aborted in the record."""

    failed: RunFailed
    record: EpochRecord


@dataclass(frozen=True, slots=True)
class CommittedInRecord:
    ran: Ran
    record: EpochRecord
    seconds: float
    now: float = 0.0
    waiting: int = 0  # changes


Fact = Claimed | Found | Draft | Begun | Ran | RunFailed | GivenUp | CommittedInRecord


# Actions: what the shell has to do. An event is an action too: the shell publishes it.


@dataclass(frozen=True, slots=True)
class Ask:
    """Find out what a draft lacks: a `cut` of the log with all that is to be seen after it, the `rows` that its plan fills
    views from, or which backfills are `late`."""

    draft: Draft
    lacks: Literal["cut", "rows", "late"]


@dataclass(frozen=True, slots=True)
class Begin:
    """Begin an epoch; `repair`: see `epochs.begin`."""

    stop: Cut
    plan: PhysicalPlan
    views: frozenset[int]
    chunks: tuple[Chunk, ...] = ()
    repair: int = 0


@dataclass(frozen=True, slots=True)
class Run:
    epoch: Inflight


@dataclass(frozen=True, slots=True)
class GiveUp:
    failed: RunFailed


@dataclass(frozen=True, slots=True)
class Commit:
    ran: Ran


@dataclass(frozen=True, slots=True)
class ReplaceViews:
    """Replace views by their replacements that are filled, and drop twins that are compared."""

    record: EpochRecord


@dataclass(frozen=True, slots=True)
class KeepMeasured:
    """Keep in the store what epochs cost so far."""

    measured: WorkStats


@dataclass(frozen=True, slots=True)
class Scale:
    """Run the next epoch with so many view managers."""

    managers: int


Action = Ask | Begin | Run | GiveUp | Commit | ReplaceViews | KeepMeasured | Scale | Event
Decision = tuple[State, tuple[Action, ...]]


def step(fact: Fact, state: State) -> Decision:
    """The state after a fact, and the actions to take; raises where the operator or another pipeline must act."""
    match fact:
        case Claimed():
            return replace(state, measured=fact.measured), _claimed(fact, state.owner)
        case Found(record):
            if record.owner != state.owner:
                raise taken_over()
            state, scale = _asked(fact, state)
            if record.inflight is not None:
                state, actions = _run(state, record.inflight)
                return state, (*scale, *actions)
            # a commit that was late, or the store's silence after one, may have left views to replace
            asked = Ask(Draft(record, state.limits.times(state.share)), "cut")
            return state, (*scale, ReplaceViews(record), asked)
        case Draft():
            return state, _next_epoch(fact)
        case Begun(record):
            if (epoch := record.inflight) is None:
                raise taken_over()
            state, actions = _run(state, epoch)
            began = Began(epoch.epoch, dict(epoch.stop.positions))
            return state, (began, *_filling(with_chunks(record.filling, epoch.chunks)), *actions)
        case Ran():
            return state, (Commit(fact),)
        case RunFailed():
            return _failed(fact, state)
        case GivenUp():
            return _given_up(fact, state)
        case CommittedInRecord():
            state, kept = _measured(fact, replace(state, share=min(1.0, 2 * state.share)))
            state, scale = _scaled(fact, state)
            ran, record = fact.ran, fact.record
            done = Committed(ran.epoch.epoch, ran.epoch.stop.changes, fact.seconds, ran.counts, ran.where)
            return state, (ReplaceViews(record), done, *_filling(record.filling), *kept, *scale)
        case _:
            assert_never(fact)


def _claimed(fact: Claimed, owner: str) -> tuple[Action, ...]:
    record = fact.record
    whole = "restore one backup as a whole, not a part of it"
    if record.filled and fact.oldest < record.committed:
        earlier = f"some views are older than epoch {record.committed}, which is committed"
        raise CorruptStore(f"the parts of this store are of different moments: {earlier}", whole)
    if fact.newest > record.last:
        later = f"views were written by a later epoch than {record.last}, the last in the epoch record"
        raise EpochRecordLost(f"the parts of this store are of different moments: {later}", whole)
    # a coordinator that died after its commit may have left views to replace
    replaced = (ReplaceViews(record),) if record.inflight is None else ()
    return (*replaced, TookOver(owner))


def _next_epoch(draft: Draft) -> tuple[Action, ...]:
    """What is missing to plan the next epoch, or its begin, or nothing: there is nothing to do."""
    record, stop, catalog = draft.record, draft.stop, draft.catalog
    if stop is None or not catalog.foreign <= draft.mapped:  # or did not look for what is special in their logs
        return (Ask(draft, "cut"),)
    views = frozenset(view.node.table for view in catalog.kept)
    if (asked := _asked_epoch(record, catalog)) is not None:
        return (Begin(Cut(record.positions, record.stamp, 0), asked[0], views, repair=asked[1]),)
    # no fill begins after rows have moved: it would miss those (R12)
    late = unfilled(catalog, filled=record.filled, stopped=record.stopped) if draft.have_moved else frozenset()
    kept = late.difference(record.filling)
    plan = physical_plan(catalog, filling=record.filling, stopped=record.stopped, late=kept)
    if plan != draft.plan:  # the first time, or after a change between two cuts
        return (Ask(replace(draft, plan=plan, late=None), "rows"),)
    if plan.reads_log(draft.chunks) != draft.is_bounded:  # what nobody reads can be skipped at once
        return (Ask(replace(draft, is_bounded=not draft.is_bounded), "cut"),)
    has_work = bool(draft.chunks or stop.staged) or not covers(record.positions, stop.positions)
    if not has_work and record.filling:  # a view may have lacked nothing but that its tables be staged
        if draft.late is None:
            return (Ask(draft, "late"),)
        has_work = any(fill.is_done and backfill not in draft.late for backfill, fill in record.filling.items())
    return (Begin(stop, plan, views, draft.chunks),) if has_work else ()


def _asked_epoch(record: EpochRecord, catalog: Catalog) -> tuple[PhysicalPlan, int] | None:
    """An epoch without changes, which compares views with their twins, or does what was asked for rows set aside."""
    if (repair := due_repair(catalog, record)) is not None:
        return repair_plan(catalog, repair), repair.backfill
    if (aside := due_aside(catalog, record)) is not None:
        return aside_plan(catalog, record, aside), aside.id
    return None


def _failed(fact: RunFailed, state: State) -> Decision:
    """Try again, abort the epoch, or stop where neither helps.

    A view whose own work fails is stopped, and the next epoch goes on without it. After any other failure the next
    epoch is smaller: the machine may lack memory for this one. If the smallest epoch fails, the operator must act,
    unless the view whose work is too large is known: that view is stopped.
    """
    error, size, limits = fact.error, fact.size, state.limits
    if fact.is_final:
        return state, (GiveUp(fact),)
    if state.attempts < limits.attempts_max and not isinstance(error, EpochTooLarge):
        return replace(state, attempts=state.attempts + 1), (Run(fact.epoch),)
    # a smaller epoch was asked for and the same one resulted: a transaction is never cut
    was_given_up = state.given_up is not None and _input(state.given_up) == _input(fact.epoch)
    if isinstance(error, EpochTooLarge) and was_given_up:
        return state, (GiveUp(replace(fact, error=ViewFailed(error.table, error.reason, error.name))),)
    is_smallest = size.changes + size.rows <= limits.smallest_work and size.bytes <= limits.smallest_bytes
    if not isinstance(error, (ViewFailed, EpochTooLarge)) and (is_smallest or was_given_up):
        raise error
    return state, (GiveUp(fact),)


def _given_up(fact: GivenUp, state: State) -> Decision:
    epoch, error, size = fact.failed.epoch, fact.failed.error, fact.failed.size
    if not isinstance(error, ViewFailed):  # without that view an epoch of the same size may succeed
        limits = state.limits
        share = max(size.changes / limits.changes, size.rows / limits.rows, size.bytes / limits.bytes)
        state = replace(state, share=min(state.share, share) / 2, given_up=epoch)
    state, actions = step(Found(fact.record), state)
    return state, (Aborted(epoch.epoch, error.fact), *actions)


def _filling(fills: Mapping[int, BackfillProgress]) -> tuple[Action, ...]:
    rows, total = (sum(getattr(fill, name) for fill in fills.values()) for name in ("rows", "total"))
    return (Backfilling(len(fills), rows, total),) if fills else ()


def _measured(fact: CommittedInRecord, state: State) -> Decision:
    """Add what the epoch measured; every few seconds all of it is kept."""
    if not fact.ran.measured.epochs:
        return state, ()
    state = replace(state, measured=state.measured.plus(fact.ran.measured))
    if state.measured_kept_at is not None and fact.now < state.measured_kept_at + KEEP_MEASURED_SECONDS:
        return state, ()
    return replace(state, measured_kept_at=fact.now), (KeepMeasured(state.measured),)


def _asked(fact: Found, state: State) -> Decision:
    """Obey a wish that is new."""
    if state.scaling is None or fact.asked is None or fact.asked == state.asked:
        return state, ()
    before, now = state.scaling.managers, Scaling.within(fact.asked, state.scaling.managers)
    return replace(state, scaling=now, asked=fact.asked), _scale(before, now.managers, f"asked for {fact.asked}")


def _scaled(fact: CommittedInRecord, state: State) -> Decision:
    """Add or withdraw a view manager, if what waits and the pace call for it."""
    before, ended_at = state.scaling, fact.now if state.ended_at is None else state.ended_at
    state = replace(state, ended_at=fact.now)
    if before is None or before.bounds.is_fixed:
        return state, ()
    epoch, fills = fact.ran.epoch, fact.record.filling.values()
    load = Load(
        fact.waiting + sum(max(0, fill.total - fill.rows) for fill in fills),
        epoch.stop.changes + sum(chunk.rows for chunk in epoch.chunks),
        fact.seconds,
        max(0.0, fact.now - fact.seconds - ended_at),
    )
    now, reason = scaled(before, load, ScalingSettings())
    return replace(state, scaling=now), _scale(before.managers, now.managers, reason)


def _scale(before: int, managers: int, reason: str) -> tuple[Action, ...]:
    return () if before == managers else (Scale(managers), Scaled(before, managers, reason))


def _run(state: State, epoch: Inflight) -> Decision:
    return replace(state, attempts=1), (Run(epoch),)


def taken_over() -> Fenced:
    return Fenced("another pipeline took this store over", "stop this one")


def _input(epoch: Inflight) -> tuple[object, ...]:
    return epoch.start, epoch.stop.positions, epoch.stop.staged, epoch.chunks
