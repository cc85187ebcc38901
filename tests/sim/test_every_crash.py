"""A crash at any place of a short program, and one more at any place after that, leaves what a run without crashes leaves.

The program fills a view that replaces another, brings changes into it, and tidies up;
`tests/support/simulation/every_crash.py` covers all schedules of one and two
crashes. Every run does so for a few views, a deep one for every kind.
"""

from __future__ import annotations

import pytest

from tests.support.simulation.every_crash import cover, crash_everywhere
from tests.support.simulation.kinds import KINDS

FEW = ("indexed", "counts", "extremes", "inner_join")


@pytest.mark.parametrize(
    "name", [name if name in FEW else pytest.param(name, marks=pytest.mark.deep) for name in KINDS]
)
def test_one_crash_or_two_anywhere_leave_the_store_of_a_run_without(name: str) -> None:
    for before_images in (True, False):
        covered = cover(name, before_images=before_images)
        print(f"{name}: {covered}")
        assert covered.one >= 30
        assert covered.two > 10 * covered.one


@pytest.mark.parametrize("name", ["indexed", pytest.param("full_join", marks=pytest.mark.deep)])
def test_an_error_that_is_raised_leaves_what_a_crash_leaves(name: str) -> None:
    assert crash_everywhere(name, before_images=True) >= 30
