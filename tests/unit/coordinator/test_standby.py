"""For how long the holder of a claim has been silent: a list of looks, without a store or a clock."""

from __future__ import annotations

import pytest

from viewkeeper.coordinator.standby import Watch
from viewkeeper.ports.meta import Holder

A, B = Holder(1, 10), Holder(1, 11)


def silent_after(*looks: tuple[Holder | None, float]) -> float:
    watch = Watch(A, 0.0)
    for holder, now in looks:
        watch = watch.looked(holder, now)
    return watch.silent_seconds


def test_silence_is_the_time_without_a_new_beat() -> None:
    assert silent_after((A, 0.25), (A, 0.5), (A, 0.75)) == 0.75


@pytest.mark.parametrize("other", [B, Holder(2, 10), None])
def test_a_new_beat_and_a_new_holder_begin_anew(other: Holder | None) -> None:
    assert silent_after((A, 0.5), (A, 1.0), (other, 1.5)) == 0
    assert silent_after((A, 0.5), (other, 1.0), (other, 1.25)) == 0.25


def test_one_who_was_stopped_itself_does_not_hold_that_against_the_other() -> None:
    assert silent_after((A, 0.5), (A, 3_600.0)) == 1.5
