"""The coordinator's decisions, without a store: seeded schedules of facts, crashes and take-overs, by the thousand."""

from __future__ import annotations

import os
import random
from collections import deque
from dataclasses import dataclass, field, replace

import pytest

from viewkeeper.catalog.catalog import Catalog
from viewkeeper.coordinator import steps
from viewkeeper.errors import CorruptStore, EpochFailed, EpochRecordLost, EpochTooLarge, Fenced, ViewFailed
from viewkeeper.model import epochs
from viewkeeper.model.epochs import EpochRecord, Inflight
from viewkeeper.model.positions import Cut, Position, Stream
from viewkeeper.model.schema import Column, TableId, TableSchema
from viewkeeper.model.types import parse_type
from viewkeeper.model.work_stats import Counts
from viewkeeper.settings import EpochLimits

SCHEDULES = 10_000 if os.environ.get("VIEWKEEPER_DEEP") else 2_000
STREAM = Stream("0")
KEY = Column("k", parse_type("INT"))
CATALOG = Catalog().with_table(TableSchema(TableId(1), "t", (KEY,), ("k",), delta=TableId(2)))  # whose log is read
LIMITS = EpochLimits(changes=40, rows=40, bytes=4_000, smallest_work=2, smallest_bytes=200)


@dataclass
class World:
    """A store in miniature: one log, the epoch record, and what was run and committed."""

    log: int = 0
    record: EpochRecord = field(default_factory=lambda: EpochRecord.first("world"))
    ran: set[int] = field(default_factory=set)  # epochs that some run finished
    committed: list[Inflight] = field(default_factory=list)

    @property
    def position(self) -> int:
        return self.record.positions.get(STREAM, 0)


class Shell:
    """A coordinator over a world: its actions are done one by one, so that it can die, or sleep, between any two."""

    def __init__(self, world: World, owner: str) -> None:
        self.world = world
        self.state = steps.State(owner, LIMITS)
        self.waiting: deque[steps.Action] = deque()
        world.record = epochs.take_over(world.record, owner)
        self.tell(steps.Claimed(world.record, world.record.committed, world.record.last))

    def tell(self, fact: steps.Fact) -> None:
        self.state, actions = steps.step(fact, self.state)
        self.waiting.extend(actions)
        assert 0 < self.state.share <= 1

    def advance(self, error: EpochFailed | None) -> None:
        """Do the next action, or look at the record; `error`: what a run would fail of."""
        if not self.waiting:
            self.tell(steps.Found(self.world.record))
            return
        fact = self._do(self.waiting.popleft(), error)
        if fact is not None:
            self.tell(fact)

    def _do(self, action: steps.Action, error: EpochFailed | None) -> steps.Fact | None:
        world, owner = self.world, self.state.owner
        match action:
            case steps.Ask(draft, "cut"):
                start = draft.record.positions.get(STREAM, 0)
                stop = min(world.log, start + draft.limits.changes)
                cut = Cut({STREAM: Position(stop)}, world.log, stop - start)
                return replace(draft, stop=cut, catalog=CATALOG)
            case steps.Ask(draft):
                return draft
            case steps.Begin(stop):
                world.record = epochs.begin(world.record, owner, stop, "plan")
                return steps.Begun(world.record)
            case steps.Run(epoch):
                if error is not None:
                    return steps.RunFailed(epoch, error, size_of(epoch))
                world.ran.add(epoch.epoch)
                return steps.Ran(epoch, Counts())
            case steps.GiveUp(failed):
                if world.record.inflight is None or world.record.inflight.epoch != failed.epoch.epoch:
                    raise Fenced("no longer in flight")
                world.record = epochs.abort(world.record, owner)
                return steps.GivenUp(failed, world.record)
            case steps.Commit(ran):
                world.record = epochs.commit(world.record, owner, ran.epoch.epoch, {}, frozenset())
                world.committed.append(ran.epoch)
                return steps.CommittedInRecord(ran, world.record, 0.0)
        return None


def size_of(epoch: Inflight) -> steps.Size:
    changes = epoch.stop.positions[STREAM] - epoch.start.get(STREAM, 0)
    return steps.Size(changes, 0, 100 * changes)


def play(seed: int) -> World:
    """Writes, steps, failing runs, deaths and take-overs by up to three coordinators, of which older ones are zombies."""
    choose, world = random.Random(seed), World()
    shells = [Shell(world, "0")]
    for turn in range(60):
        world.log += choose.choice([0, 0, 1, 30])
        if choose.random() < 0.1:
            shells.append(Shell(world, str(turn + 1)))
        shell = choose.choice(shells[-3:])
        failing = choose.random() < 0.25
        error = choose.choice([EpochFailed("lost"), ViewFailed(7, "sums"), EpochTooLarge(7, "2 GiB")])
        try:
            shell.advance(error if failing else None)
        except (Fenced, EpochFailed):  # it ends; another one takes over
            shells.remove(shell)
            shells = shells or [Shell(world, f"{turn} again")]
        world.record.check_invariants()
    last = Shell(world, "the last")
    for _ in range(500):
        if world.position == world.log and world.record.inflight is None and not last.waiting:
            break
        last.advance(None)
    return world


@pytest.mark.parametrize("tenth", range(10))
def test_every_change_is_committed_once_in_order_and_only_after_a_whole_run(tenth: int) -> None:
    aborted = 0
    for seed in range(tenth, SCHEDULES, 10):
        world = play(seed)
        starts = [epoch.start.get(STREAM, 0) for epoch in world.committed]
        stops = [epoch.stop.positions[STREAM] for epoch in world.committed]
        numbers = [epoch.epoch for epoch in world.committed]

        assert starts == [0, *stops[:-1]][: len(starts)] and world.position == world.log, seed
        assert numbers == sorted(set(numbers)) and not set(numbers) & set(world.record.aborted), seed
        assert set(numbers) <= world.ran, seed
        aborted += len(world.record.aborted)
    assert aborted > 20  # the schedules are not all calm


INFLIGHT = Inflight(1, {}, Cut({STREAM: Position(40)}, 0, 40), "plan", 0, (), ())
STATE = steps.State("me", LIMITS, attempts=1)


def failed(error: EpochFailed, state: steps.State = STATE, changes: int = 40) -> steps.Decision:
    return steps.step(steps.RunFailed(INFLIGHT, error, steps.Size(changes, 0, 100 * changes)), state)


def test_a_lost_worker_is_worth_another_try_and_then_a_smaller_epoch() -> None:
    error = EpochFailed("a worker was lost")
    state, actions = failed(error)
    assert actions == (steps.Run(INFLIGHT),)
    state, (given_up,) = failed(error, state)
    assert given_up == steps.GiveUp(steps.RunFailed(INFLIGHT, error, steps.Size(40, 0, 4_000)))
    record = epochs.take_over(EpochRecord.first("w"), "me")
    state, actions = steps.step(steps.GivenUp(given_up.failed, record), state)

    assert state.share == 0.5
    assert actions[1:] == (steps.ReplaceViews(record), steps.Ask(steps.Draft(record, LIMITS.times(0.5)), "cut"))


def test_the_smallest_epoch_that_fails_is_the_operators() -> None:
    error = EpochFailed("no disk")
    state, _ = failed(error, changes=2)

    with pytest.raises(EpochFailed) as stopped:
        failed(error, state, changes=2)
    assert stopped.value is error


def test_a_view_that_is_too_large_twice_is_stopped() -> None:
    state = steps.State("me", LIMITS, given_up=INFLIGHT, attempts=1)
    (action,) = failed(EpochTooLarge(7, "2 GiB"), state)[1]

    assert isinstance(action, steps.GiveUp) and isinstance(action.failed.error, ViewFailed)


def test_one_that_is_not_the_owner_stops() -> None:
    record = epochs.take_over(EpochRecord.first("w"), "another")

    with pytest.raises(Fenced):
        steps.step(steps.Found(record), STATE)


@pytest.mark.parametrize(("oldest", "newest", "error"), [(2, 4, CorruptStore), (3, 5, EpochRecordLost)])
def test_views_that_do_not_fit_the_record_stop_a_take_over(oldest: int, newest: int, error: type) -> None:
    record = replace(EpochRecord.first("w"), committed=3, last=4, recent=(3,), filled={9: 1})

    with pytest.raises(error):
        steps.step(steps.Claimed(record, oldest, newest), STATE)
