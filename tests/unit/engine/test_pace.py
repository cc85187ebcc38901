"""Where an epoch runs is decided by what epochs took so far."""

from __future__ import annotations

from viewkeeper.engine.runner import RuntimeChoice


def border(pace: RuntimeChoice, managers: int = 2) -> int:
    """The least work, in steps, that a job would do sooner."""
    return next(work for work in range(1_000, 100_000_000, 1_000) if not pace.is_faster_on_driver(work, managers))


def test_before_anything_is_measured_a_hundred_thousand_is_worth_a_job() -> None:
    assert 90_000 <= border(RuntimeChoice()) <= 110_000


def test_work_that_takes_long_here_is_sooner_worth_a_job() -> None:
    pace = RuntimeChoice()
    for _ in range(8):
        pace.ran_on_driver(50_000, 1.0)
    assert 4_000 <= border(pace) <= 6_000


def test_an_epoch_of_a_few_changes_says_nothing_of_the_pace() -> None:
    pace = RuntimeChoice()
    for _ in range(8):
        pace.ran_on_driver(10, 0.02)
    assert border(pace) == border(RuntimeChoice())


def test_where_jobs_take_long_more_is_done_here_until_one_was_quick() -> None:
    pace = RuntimeChoice()
    for _ in range(8):
        pace.ran_as_job(100_000, 2, 0.25)  # 0.05 of which two managers would need for the work
    assert 390_000 <= border(pace) <= 410_000
    pace.ran_as_job(100_000, 2, 0.1)
    assert 90_000 <= border(pace) <= 110_000


def test_the_first_job_of_a_session_does_not_keep_others_away_for_long() -> None:
    pace = RuntimeChoice()
    for _ in range(8):
        pace.ran_as_job(1_000, 2, 30.0)
    assert border(pace) <= 1_100_000


def test_a_single_manager_is_no_better_than_the_driver() -> None:
    assert RuntimeChoice().is_faster_on_driver(50_000_000, 1)
