"""How many view managers there are: decided from a list of facts, without a store, a clock or Spark."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from viewkeeper.coordinator import steps
from viewkeeper.coordinator.view_managers import Load, Scaling, scaled
from viewkeeper.events import Scaled
from viewkeeper.model.epochs import EpochRecord, Inflight
from viewkeeper.model.positions import Cut
from viewkeeper.model.work_stats import Counts
from viewkeeper.settings import EpochLimits, ManagerBounds, ScalingSettings

SETTINGS = ScalingSettings()
BOUNDS = ManagerBounds(1, 4)


def play(loads: list[Load], scaling: Scaling) -> list[int]:
    """The number of managers after each epoch."""
    found = []
    for load in loads:
        scaling, _ = scaled(scaling, load, SETTINGS)
        found.append(scaling.managers)
    return found


def behind(pace: int) -> Load:
    """Ten seconds of work wait, in epochs of two seconds."""
    return Load(10 * pace, 2 * pace, 2.0)


IDLE = Load(0, 100, 0.1, paused_seconds=1.0)


def test_managers_are_added_one_by_one_while_the_backlog_is_seconds_long() -> None:
    faster = [behind(1_000 * managers) for managers in (1, 1, 2, 2, 3, 3, 4, 4, 4, 4)]
    assert play(faster, Scaling.within(BOUNDS)) == [1, 2, 2, 3, 3, 4, 4, 4, 4, 4]


def test_a_manager_that_does_not_raise_the_pace_is_the_last_one() -> None:
    assert play([behind(1_000)] * 20, Scaling.within(BOUNDS))[-1] == 2


def test_one_long_backlog_alone_adds_nobody() -> None:
    loads = [behind(1_000), Load(1_000, 2_000, 2.0)] * 10
    assert set(play(loads, Scaling.within(BOUNDS))) == {1}


def test_managers_are_withdrawn_one_by_one_when_epochs_are_short_and_rare() -> None:
    assert play([IDLE] * 20, Scaling.within(BOUNDS, 4)) == [4] * 4 + [3] * 5 + [2] * 5 + [1] * 6


def test_managers_that_keep_up_and_are_busy_stay() -> None:
    """Nothing waits for long, yet with one less the others could not keep up."""
    busy = Load(300, 1_000, 1.0, paused_seconds=0.2)
    assert set(play([busy] * 50, Scaling.within(BOUNDS, 3))) == {3}


def test_a_backlog_that_comes_and_goes_does_not_shake_the_number() -> None:
    waves = [*[behind(1_000)] * 2, *[IDLE] * 4] * 10
    found = play(waves, Scaling.within(BOUNDS))
    assert found[-1] <= 4 and sum(a != b for a, b in zip(found, found[1:], strict=False)) <= 3


LOADS = st.builds(
    Load,
    st.integers(0, 10**9),
    st.integers(0, 10**7),
    st.floats(0, 1e4, allow_subnormal=False),
    st.floats(0, 1e5, allow_subnormal=False),
)


@given(st.lists(LOADS, max_size=60), st.integers(1, 5), st.integers(0, 5))
def test_the_number_is_within_its_bounds_and_moves_by_one_with_a_reason(
    loads: list[Load], least: int, more: int
) -> None:
    bounds = ManagerBounds(least, least + more)
    scaling = Scaling.within(bounds)
    for load in loads:
        now, reason = scaled(scaling, load, SETTINGS)
        assert bounds.least <= now.managers <= bounds.most
        assert abs(now.managers - scaling.managers) == bool(reason)
        scaling = now


# the coordinator's steps

RECORD = replace(EpochRecord.first("world"), owner="me")
EPOCH = Inflight(1, {}, Cut({}, 0, 2_000), "plan", 0, (), ())


def committed(at: float, waiting: int) -> steps.CommittedInRecord:
    return steps.CommittedInRecord(steps.Ran(EPOCH, Counts()), RECORD, 2.0, at, waiting)


def changes_of(actions: tuple[steps.Action, ...]) -> list[steps.Action]:
    return [action for action in actions if isinstance(action, steps.Scale | Scaled)]


def test_a_step_scales_after_two_epochs_that_left_much_and_tells_why() -> None:
    state = steps.State("me", EpochLimits(), scaling=Scaling.within(BOUNDS))
    state, actions = steps.step(committed(2.0, 10_000), state)
    assert changes_of(actions) == []
    state, actions = steps.step(committed(4.0, 10_000), state)
    assert changes_of(actions) == [steps.Scale(2), Scaled(1, 2, "10,000 changes or rows wait, about 10 s of work")]


def test_pauses_between_epochs_are_idle_time() -> None:
    state = steps.State("me", EpochLimits(), scaling=Scaling.within(BOUNDS, 2))
    for at in range(10, 70, 10):
        state, actions = steps.step(committed(float(at), 0), state)
    assert changes_of(actions) == [steps.Scale(1), Scaled(2, 1, "idle for 80% of the time")]


def test_a_fixed_number_does_not_depend_on_the_backlog() -> None:
    state = steps.State("me", EpochLimits(), scaling=Scaling.within(ManagerBounds(2, 2)))
    for at in range(20):
        state, actions = steps.step(committed(2.0 * at, 10**9), state)
        assert changes_of(actions) == []


def test_a_wish_is_obeyed_once_before_the_next_epoch_begins() -> None:
    state = steps.State("me", EpochLimits(), scaling=Scaling.within(ManagerBounds(2, 2)))
    state, actions = steps.step(steps.Found(RECORD, ManagerBounds(5, 5)), state)
    assert actions[:2] == (steps.Scale(5), Scaled(2, 5, "asked for 5")) and isinstance(actions[-1], steps.Ask)
    state, actions = steps.step(steps.Found(RECORD, ManagerBounds(5, 5)), state)
    assert changes_of(actions) == []
    state, actions = steps.step(steps.Found(RECORD, ManagerBounds(1, 3)), state)
    assert changes_of(actions) == [steps.Scale(3), Scaled(5, 3, "asked for 1 to 3")]
    assert state.scaling == Scaling.within(ManagerBounds(1, 3), 3)


@pytest.mark.parametrize("managers", [0, -1, True, 1.5, "2", (2, 1), (0, 3), (1,), (1, 2, 3), None])
def test_bounds_that_are_none_are_refused(managers: object) -> None:
    from viewkeeper.errors import InputError

    with pytest.raises(InputError, match="view_managers must be 1 or more"):
        ManagerBounds.of(managers)
