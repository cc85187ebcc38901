"""Random views over random histories hold after every epoch what DuckDB computes from the base rows.

The views come from a seeded generator over the whole grammar (`tests/support/random_sql.py`). What they contained is counted
and printed at the end; a run in which a part of the grammar never stood is a failure. Every run goes through a dozen worlds,
a deep one through all, and through some that nobody has seen. The same plans are judged by Spark in
`tests/spark/test_random_views_match_spark.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.random_features import EVENTS, FEATURES
from tests.support.random_plans import DOZEN, FRESH, SEEDS, VIEWS, RandomOracle, plan_world
from tests.support.random_search import run_wide_world
from tests.support.random_worlds import TALLY, RandomWorld
from tests.support.tiers import examples
from tests.support.tiers import seed as deep_seed
from tests.support.workers import TOLD

WORLDS = [
    *DOZEN,
    *(pytest.param(seed, marks=pytest.mark.deep) for seed in SEEDS if seed not in DOZEN),
    *(pytest.param(seed, marks=pytest.mark.deep, id=f"fresh-{place}") for place, seed in enumerate(FRESH)),
]
JOINS_MIN, NESTED_MIN, NON_EMPTY_MIN, REFUSED_MAX = 0.40, 0.25, 0.90, 0.02


@pytest.fixture(scope="module")
def oracle() -> RandomOracle:
    return RandomOracle()


@pytest.mark.parametrize("seed", WORLDS)
def test_every_random_view_equals_its_recomputation_at_every_epoch(
    seed: int, oracle: RandomOracle, tmp_path: Path
) -> None:
    RandomWorld(tmp_path / "world", plan_world(seed, oracle), oracle, TALLY).run()


@pytest.mark.parametrize("number", range(examples(4, deep=30)))
def test_wide_worlds_are_right_at_every_epoch(number: int) -> None:
    _, error, tally = run_wide_world(deep_seed() * 1_000 + number)

    assert not error, error
    assert tally.comparisons


def test_the_random_views_cover_the_grammar(record_property: Callable[[str, object], None]) -> None:
    if TALLY.worlds < len(DOZEN):
        pytest.skip("only some worlds were asked for, and what all of them cover is judged here")
    for line in TALLY.lines():
        record_property(TOLD, line)

    assert TALLY.views >= VIEWS * TALLY.worlds
    assert TALLY.joins / TALLY.views >= JOINS_MIN
    assert TALLY.nested / TALLY.views >= NESTED_MIN
    assert TALLY.non_empty / TALLY.views >= NON_EMPTY_MIN
    assert TALLY.refused / TALLY.views < REFUSED_MAX
    assert [feature for feature in FEATURES if not TALLY.features[feature]] == []
    assert [event for event in EVENTS if not TALLY.events[event]] == []


def test_the_same_seed_gives_the_same_world(oracle: RandomOracle) -> None:
    assert plan_world(7, oracle, views=6) == plan_world(7, oracle, views=6) != plan_world(8, oracle, views=6)
