"""Views over tables of HBase equal their recomputation, whenever others write: ahead of every request that the store sends.

A life is drawn wholly from its seed (`tests/support/simulation/mapped.py`): tables are mapped and dropped, views are made,
repaired and rebuilt, pipelines crash and go on, and others put, delete and put with older timestamps. That lives can see a
defect is shown by planting each one.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from tests.support import tiers
from tests.support.simulation.mapped import (
    Life,
    a_staging_reads_before_what_was_logged_is_visible,
    an_epoch_finds_its_chunks_once,
    reading_begins_after_the_first_rows_are_staged,
)

LIVES, LIVES_DEEP = 4, 40
SEEDS_EACH = 1_000_000  # of a deep run
CASES_MAX = 60  # within which a defect must be found; a request that is added or left out changes which case finds it


@pytest.mark.parametrize("seed", range(LIVES))
def test_views_equal_their_recomputation_whenever_others_write(tmp_path: Path, seed: int) -> None:
    Life(tmp_path, seed).run()


@pytest.mark.deep
def test_views_equal_their_recomputation_in_lives_of_new_seeds(tmp_path: Path) -> None:
    compared = 0
    for seed in range(LIVES_DEEP):
        folder = tmp_path / str(seed)
        folder.mkdir()
        life = Life(folder, tiers.seed() * SEEDS_EACH + seed)
        life.run()
        compared += life.compared
    assert compared > LIVES_DEEP


@pytest.mark.parametrize(
    ("plant", "is_short"),
    [
        (reading_begins_after_the_first_rows_are_staged, True),
        # found late
        pytest.param(a_staging_reads_before_what_was_logged_is_visible, False, marks=pytest.mark.deep),
        pytest.param(an_epoch_finds_its_chunks_once, False, marks=pytest.mark.deep),
    ],
)
def test_lives_find_a_planted_defect(
    tmp_path: Path, plant: Callable[[], AbstractContextManager[None]], is_short: bool
) -> None:
    for seed in range(CASES_MAX):
        folder = tmp_path / str(seed)
        folder.mkdir()
        try:
            with plant():
                Life(folder, seed, is_short=is_short).run()
        except AssertionError:
            return
    raise AssertionError(f"not found in {CASES_MAX} lives")
