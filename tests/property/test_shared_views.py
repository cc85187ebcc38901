"""Views that share a γ or a copy hold what DuckDB computes from their texts, after every step of a drawn history."""

from __future__ import annotations

import pytest

import viewkeeper as vk
from tests.support.running import keep_up
from tests.support.shared_views import run_set
from tests.support.tiers import examples


@pytest.mark.parametrize("seed", range(examples(8, deep=50)))
def test_optimized_views_hold_what_is_computed_anew(seed: int) -> None:
    with vk.connect(f"memory:shared-{seed}") as db:
        run_set(db, seed, keep_up)
