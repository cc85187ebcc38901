"""Live load: changes that go on while something happens to the pipeline, and what the views must be after each of them.

In: sizes and a seed. Out: the rows of step t, which get x at random and t as their y; and, apart from all of our code, what
the views are after step t. Always: the same seed makes the same steps in every process, so that a reader in another one
knows each state; the largest y in the views tells which step they are of; the version y of a row only grows.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

import viewkeeper as vk
from benchmarks.views import V1, V2
from benchmarks.workload import TABLE, fill_here, rows_of

GROUPS = 1_000
COPY = "SELECT k, x, y FROM r"
VIEWS = (V1, V2)
Records = dict[str, np.ndarray]


@dataclass(frozen=True, slots=True)
class LiveLoad:
    """Rows of table r; each step changes `step_rows` of them, in one transaction if they are on one node."""

    rows: int
    step_rows: int
    seed: int

    def first(self) -> tuple[np.ndarray, np.ndarray]:
        """x and y of all rows before the first step."""
        random = np.random.default_rng((self.seed, 0))
        return random.integers(0, GROUPS, self.rows, np.int32), np.zeros(self.rows, np.int32)

    def step(self, number: int) -> tuple[np.ndarray, np.ndarray]:
        """The numbers of the rows that step `number` changes, and their new x; their y is `number`."""
        random = np.random.default_rng((self.seed, number))
        chosen = np.unique(random.integers(0, self.rows, self.step_rows))
        return chosen, random.integers(0, GROUPS, len(chosen), np.int32)

    def written(self, number: int) -> pa.Table:
        """The rows of a step, as they are put."""
        chosen, x = self.step(number)
        return rows_of(chosen, x, np.full(len(chosen), number, np.int32))


class Model:
    """The base rows as of a step, by numpy alone."""

    def __init__(self, load: LiveLoad) -> None:
        self._load = load
        self.number = 0
        self.x, self.y = load.first()

    def advance(self, number: int) -> None:
        """Go on to the state after step `number`."""
        while self.number < number:
            self.number += 1
            chosen, x = self._load.step(self.number)
            self.x[chosen], self.y[chosen] = x, self.number

    def views(self) -> tuple[Records, Records]:
        """What V1 and V2 are in this state, in the order of x."""
        counts = np.bincount(self.x, minlength=GROUPS)
        there = np.flatnonzero(counts)
        sums = np.bincount(self.x, self.y, GROUPS).astype(np.int64)
        lows, highs = np.full(GROUPS, np.iinfo(np.int32).max), np.full(GROUPS, -1)
        np.minimum.at(lows, self.x, self.y)
        np.maximum.at(highs, self.x, self.y)
        return (
            {"x": there, "n": counts[there], "s": sums[there]},
            {"x": there, "lo": lows[there], "hi": highs[there]},
        )


def prepare(url: str, load: LiveLoad, *more: str) -> None:
    """A store with the first rows and V1, V2 and `more` as v1, v2, …, all filled."""
    x, y = load.first()
    with vk.connect(url) as db:
        db.execute(TABLE)
        db.table("r").put_many(rows_of(np.arange(load.rows), x, y))
        for number, sql in enumerate((*VIEWS, *more), 1):
            db.execute(f"CREATE MATERIALIZED VIEW v{number} AS {sql}")
        fill_here(db)


def is_equal(records: pa.Table, expected: Records) -> bool:
    """Whether records of a view are the expected ones, all of them."""
    if len(records) != len(expected["x"]):
        return False
    ordered = records.sort_by("x")
    return all((np.asarray(ordered[name]).astype(np.int64) == values).all() for name, values in expected.items())
