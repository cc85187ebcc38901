"""The coordinator's decisions: what to do next, given what has happened (`docs/epochs.md`, sections 1 and 2).

In: a state and a fact. Out: the next state, and actions. Always: no I/O; an epoch found in flight is run unchanged,
whoever began it; an epoch is committed only after a run with all receipts (R18a); one that cannot finish is aborted
(R8), so that it does not block every view for ever. A coordinator that dies is replaced by one in its first state.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import singledispatch

from viewkeeper.errors import (
    CorruptStore,
    EpochFailed,
    EpochRecordLost,
    EpochTooLarge,
    Fenced,
    ViewFailed,
    ViewKeeperError,
)
from viewkeeper.events import Aborted, Backfilling, Began, Committed, Event, TookOver
from viewkeeper.model.counts import Counts
from viewkeeper.model.epochs import EpochRecord, Inflight
from viewkeeper.model.fills import Chunk
from viewkeeper.model.positions import Cut
from viewkeeper.settings import EpochLimits


@dataclass(frozen=True, slots=True)
class State:
    """What a coordinator remembers besides the epoch record; a new coordinator can do without it."""

    owner: str
    limits: EpochLimits
    share: float = 1.0  # of the limits; smaller after an epoch that could not finish
    given_up: Inflight | None = None  # the last one
    attempts: int = 0  # at the epoch in flight


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


@dataclass(frozen=True, slots=True)
class Found:
    """The epoch record between two actions."""

    record: EpochRecord


@dataclass(frozen=True, slots=True)
class Planned:
    """Where the next epoch would end, and what it would run."""

    stop: Cut
    plan: str
    chunks: tuple[Chunk, ...]
    views: frozenset[int]
    has_work: bool


@dataclass(frozen=True, slots=True)
class Begun:
    record: EpochRecord


@dataclass(frozen=True, slots=True)
class Ran:
    """All receipts of the epoch in flight have arrived."""

    epoch: Inflight
    counts: Counts


@dataclass(frozen=True, slots=True)
class RunFailed:
    epoch: Inflight
    error: EpochFailed
    size: Size


@dataclass(frozen=True, slots=True)
class GivenUp:
    """The epoch is aborted in the record."""

    epoch: Inflight
    failure: EpochFailed
    size: Size
    record: EpochRecord


@dataclass(frozen=True, slots=True)
class CommittedInRecord:
    epoch: Inflight
    record: EpochRecord
    counts: Counts
    seconds: float


Fact = Claimed | Found | Planned | Begun | Ran | RunFailed | GivenUp | CommittedInRecord


# Actions: what the shell has to do.


@dataclass(frozen=True, slots=True)
class Plan:
    """Cut the log and plan the next epoch, of about this size."""

    record: EpochRecord
    limits: EpochLimits


@dataclass(frozen=True, slots=True)
class Begin:
    planned: Planned


@dataclass(frozen=True, slots=True)
class Run:
    epoch: Inflight


@dataclass(frozen=True, slots=True)
class GiveUp:
    epoch: Inflight
    failure: EpochFailed
    size: Size


@dataclass(frozen=True, slots=True)
class Commit:
    epoch: Inflight
    counts: Counts


@dataclass(frozen=True, slots=True)
class ReplaceViews:
    """Replace views by their replacements that are filled."""

    record: EpochRecord


@dataclass(frozen=True, slots=True)
class Publish:
    event: Event


@dataclass(frozen=True, slots=True)
class Stop:
    """Stop: the operator or another pipeline must act."""

    error: ViewKeeperError


Action = Plan | Begin | Run | GiveUp | Commit | ReplaceViews | Publish | Stop
Decision = tuple[State, tuple[Action, ...]]


@singledispatch
def step(fact: Fact, state: State) -> Decision:
    """The state after a fact, and the actions to take; without actions the step is over."""
    raise NotImplementedError(type(fact).__name__)


@step.register
def _(fact: Claimed, state: State) -> Decision:
    record = fact.record
    if record.filled and fact.oldest < record.committed:
        return _stop(
            state,
            CorruptStore(f"a part of the views is older than epoch {record.committed}, which is committed", _WHOLE),
        )
    if fact.newest > record.last:
        return _stop(
            state,
            EpochRecordLost(
                f"views were written by a later epoch than {record.last}, the last in the epoch record", _WHOLE
            ),
        )
    # a coordinator that died after its commit may have left views to replace
    replaced: tuple[Action, ...] = (ReplaceViews(record),) if record.inflight is None else ()
    return state, (*replaced, Publish(TookOver(state.owner)))


@step.register
def _(fact: Found, state: State) -> Decision:
    if fact.record.owner != state.owner:
        return _stop(state, Fenced("another pipeline took this store over", "stop this one"))
    if fact.record.inflight is not None:
        return _run(state, fact.record.inflight)
    return state, (Plan(fact.record, state.limits.times(state.share)),)


@step.register
def _(fact: Planned, state: State) -> Decision:
    return state, (Begin(fact),) if fact.has_work else ()


@step.register
def _(fact: Begun, state: State) -> Decision:
    epoch = fact.record.inflight
    if epoch is None:
        return _stop(state, Fenced("another pipeline took this store over", "stop this one"))
    state, actions = _run(state, epoch)
    return state, (Publish(Began(epoch.epoch, dict(epoch.stop.positions))), *actions)


@step.register
def _(fact: Ran, state: State) -> Decision:
    return state, (Commit(fact.epoch, fact.counts),)


@step.register
def _(fact: RunFailed, state: State) -> Decision:
    """Try again, abort the epoch, or stop where neither helps.

    A view whose own work fails is stopped, and the next epoch goes on without it. After any other failure the next
    epoch is smaller: the machine may lack memory for this one. If the smallest epoch fails, the operator must act,
    unless the view whose work is too large is known: that view is stopped.
    """
    error, epoch, limits = fact.error, fact.epoch, state.limits
    if state.attempts < limits.attempts_max and not isinstance(error, EpochTooLarge):
        return replace(state, attempts=state.attempts + 1), (Run(epoch),)
    if isinstance(error, EpochTooLarge) and _was_given_up(state, epoch):
        return state, (GiveUp(epoch, ViewFailed(error.table, error.reason), fact.size),)
    is_smallest = (
        fact.size.changes + fact.size.rows <= limits.smallest_work and fact.size.bytes <= limits.smallest_bytes
    )
    if not isinstance(error, (ViewFailed, EpochTooLarge)) and (is_smallest or _was_given_up(state, epoch)):
        return _stop(state, error)
    return state, (GiveUp(epoch, error, fact.size),)


@step.register
def _(fact: GivenUp, state: State) -> Decision:
    if not isinstance(fact.failure, ViewFailed):  # without that view an epoch of the same size may succeed
        share = max(
            fact.size.changes / state.limits.changes,
            fact.size.rows / state.limits.rows,
            fact.size.bytes / state.limits.bytes,
        )
        state = replace(state, share=min(state.share, share) / 2, given_up=fact.epoch)
    state, actions = step(Found(fact.record), state)
    return state, (Publish(Aborted(fact.epoch.epoch, fact.failure.fact)), *actions)


@step.register
def _(fact: CommittedInRecord, state: State) -> Decision:
    done = Committed(fact.epoch.epoch, fact.epoch.stop.changes, fact.seconds, fact.counts)
    actions: list[Action] = [ReplaceViews(fact.record), Publish(done)]
    if fills := fact.record.filling.values():
        rows, total = sum(fill.rows for fill in fills), sum(fill.total for fill in fills)
        actions.append(Publish(Backfilling(len(fills), rows, total)))
    return replace(state, share=min(1.0, 2 * state.share)), tuple(actions)


_WHOLE = "restore the whole store, not a part of it"


def _run(state: State, epoch: Inflight) -> Decision:
    return replace(state, attempts=1), (Run(epoch),)


def _stop(state: State, error: ViewKeeperError) -> Decision:
    return state, (Stop(error),)


def _was_given_up(state: State, epoch: Inflight) -> bool:
    """Whether a smaller epoch was asked for and the same one resulted: a transaction is never cut."""
    return state.given_up is not None and _input(state.given_up) == _input(epoch)


def _input(epoch: Inflight) -> tuple[object, ...]:
    return epoch.start, epoch.stop.positions, epoch.chunks
