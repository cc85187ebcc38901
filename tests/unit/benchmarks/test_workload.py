"""The workload is the same on every machine, and skew is where it is said to be."""

from __future__ import annotations

import hashlib

import numpy as np
import pytest

from benchmarks.workload import DISTRIBUTIONS, Workload, draw_ranks, first_rows, steps

# of the generator as it was when the first results were measured
UNIFORM = "f1fe28058975a4481af2776934f559f7f135058e461d1d4efb59b03480f0f0f8"


def _digest(workload: Workload) -> str:
    digest = hashlib.sha256()
    for step in steps(workload):
        for array in (step.puts, step.x, step.y, step.deletes):
            digest.update(np.ascontiguousarray(array).tobytes() + str(array.dtype).encode())
    return digest.hexdigest()


def test_uniform_changes_are_those_of_the_first_results() -> None:
    assert _digest(Workload(20_000, 20_000)) == UNIFORM


@pytest.mark.parametrize("distribution", DISTRIBUTIONS)
def test_a_seed_writes_the_same_changes_again(distribution: str) -> None:
    workload = Workload(500, 2_000, distribution=distribution)

    assert _digest(workload) == _digest(workload)
    assert sum(len(step.puts) + len(step.deletes) for step in steps(workload)) == workload.changes


def test_ranks_follow_zipf() -> None:
    drawn = np.bincount(draw_ranks(np.random.default_rng(1), 1_000, 200_000), minlength=1_000)

    assert drawn.sum() == 200_000
    assert drawn[0] / drawn[1] == pytest.approx(2**1.1, rel=0.05)
    assert drawn[0] / drawn[9] == pytest.approx(10**1.1, rel=0.1)


@pytest.mark.parametrize(
    ("distribution", "rows_are_hot", "groups_are_hot"),
    [("uniform", False, False), ("zipf", True, False), ("hot_groups", True, True)],
)
def test_each_distribution_is_skewed_where_it_says(distribution: str, rows_are_hot: bool, groups_are_hot: bool) -> None:
    workload = Workload(5_000, 10_000, distribution=distribution)
    done = list(steps(workload))
    rows = np.bincount(np.concatenate([step.puts for step in done])).max()
    groups = np.bincount(np.concatenate([step.x for step in done])).max()

    assert (rows > 500) == rows_are_hot
    assert (groups > 500) == groups_are_hot
    assert len(first_rows(workload)) == workload.rows


def test_an_unknown_distribution_is_refused() -> None:
    with pytest.raises(ValueError, match="normal is none of"):
        Workload(distribution="normal")
