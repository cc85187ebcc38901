"""Join growth: does a change of a join's tables cost more when the tables are larger?

In: sizes of R. Out: microseconds for each row changed, of R and of S, at each size, and what LMDB by itself takes to write
as many records there. Always: R is made of districts as large as the smallest size; a row of R matches only rows of S of its
own district, and a row of S about 100 of R. The changes are one epoch. They come in two forms:

* `here`: the very same changes at every size, all in one district, so that nothing differs but how much else there is;
* `everywhere`: as many changes, spread over the whole table. The larger it is, the fewer of them share a page of the store.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

import viewkeeper as vk
from benchmarks.bare_writes import microseconds_per_record
from benchmarks.join_workload import SideStep, first_side_rows, load_join, side_steps, write_side_step
from benchmarks.options import Options
from benchmarks.pipeline_runs import forget_removed_stores, run_pipeline, start_session
from benchmarks.recompute import require_views
from benchmarks.results import median, spread
from benchmarks.views import V3
from benchmarks.workload import Y_MAX, Step, Workload, copy_store, fill_on_spark, rows_of, steps, write_step

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from viewkeeper.client.database import Database

MATCHES = 100  # of a row of S
FORMS = ("here", "everywhere")
KINDS = ("r", "s", "bare")


@dataclass(frozen=True)
class Growth:
    """R with `rows` rows, of which the last `district` ones are the district that changes."""

    rows: int
    district: int
    changes: int
    seed: int

    @property
    def side_changes(self) -> int:
        return max(1, self.changes // MATCHES)  # so that both kinds change as many records of the view

    def load(self, url: str, fill: Callable[[Database], object]) -> None:
        """All districts are alike but for the numbers that their rows and their x begin with."""
        numbers, random = np.arange(self.rows), np.random.default_rng(self.seed)
        x_max = self.district // MATCHES
        x, y = (np.resize(random.integers(0, below, self.district), self.rows) for below in (x_max, Y_MAX))
        x += numbers // self.district * x_max
        rows = rows_of(numbers, x.astype(np.int32), y.astype(np.int32))
        load_join(url, rows, first_side_rows(self._workload("everywhere")), V3, fill)

    def steps(self, form: str) -> list[Step]:
        skipped = self._skipped(form)
        return [
            replace(
                step,
                puts=step.puts + skipped,
                x=(step.x + skipped // MATCHES).astype(np.int32),
                deletes=step.deletes + skipped,
            )
            for step in steps(self._workload(form))
        ]

    def side_steps(self, form: str) -> list[SideStep]:
        skipped = self._skipped(form) // MATCHES
        return [
            replace(step, puts=step.puts + skipped, deletes=step.deletes + skipped)
            for step in side_steps(self._workload(form), self.side_changes, [1] * 10)
        ]

    def bare_records(self, form: str, runs: int) -> list[np.ndarray]:
        """For each run the records that as many draws as changes find."""
        random = np.random.default_rng(self.seed + 1)
        return [np.unique(random.integers(self._skipped(form), self.rows, self.changes)) for _ in range(runs)]

    def _skipped(self, form: str) -> int:
        return self.rows - self.district if form == "here" else 0

    def _workload(self, form: str) -> Workload:
        rows = self.rows - self._skipped(form)
        return Workload(rows, self.changes, self.seed, x_max=rows // MATCHES)


@dataclass
class Case:
    """Changes of one form at one size, and the seconds of their runs by kind."""

    growth: Growth
    form: str
    seconds: dict[str, list[float]] = field(default_factory=lambda: {"r": [], "s": []})

    def __post_init__(self) -> None:
        self.steps, self.side_steps = self.growth.steps(self.form), self.growth.side_steps(self.form)

    def change_r(self, db: Database) -> None:
        for step in self.steps:
            write_step(db, step)

    def change_s(self, db: Database) -> None:
        for step in self.side_steps:
            write_side_step(db, step)


def measure(options: Options) -> dict[str, Any]:
    sizes, spark = sorted(options.sizes), start_session(options.view_managers)
    growths = [Growth(rows, sizes[0], options.changes_per_size, options.seed) for rows in sizes]
    cases = [Case(growth, form) for growth in growths for form in FORMS]
    with tempfile.TemporaryDirectory(prefix="viewkeeper-bench-") as folder:
        for growth in growths:
            growth.load(f"embedded:{_source(folder, growth)}", fill_on_spark(spark))
        for turn in range(options.runs + 1):  # the first one warms up, the last one is verified
            for case in cases:
                for kind, change in (("r", case.change_r), ("s", case.change_s)):
                    ran = _seconds(_source(folder, case.growth), change, options, spark, verified=turn == options.runs)
                    case.seconds[kind] += [ran] if turn else []
        found = {f"{case.growth.rows}, {case.form}": _figures(case, folder, options) for case in cases}
    return {
        "changes_of_r": options.changes_per_size,
        "changes_of_s": growths[0].side_changes,
        "matches": MATCHES,
        "seed": options.seed,
        "view_managers": options.view_managers,
        "runs": options.runs,
        "sizes": sizes,
        "cases": found,
        "ratios": {
            f"{kind}, {form}": round(
                found[f"{sizes[-1]}, {form}"][f"{kind}_us"] / found[f"{sizes[0]}, {form}"][f"{kind}_us"], 2
            )
            for form in FORMS
            for kind in KINDS
        },
    }


def _source(folder: str, growth: Growth) -> Path:
    return Path(folder) / str(growth.rows)


def _seconds(
    source: Path, change: Callable[[Database], None], options: Options, spark: SparkSession, *, verified: bool
) -> float:
    copy = copy_store(source, source.with_name("copy"))
    url = f"embedded:{copy}"
    with vk.connect(url) as db:
        change(db)
    size = options.changes_per_epoch or 10 * options.changes_per_size  # all in one epoch
    ran = run_pipeline(url, spark, view_managers=options.view_managers, changes_per_epoch=size)
    if verified:
        require_views(url, [V3], f"pipeline, {source.name} rows")
    shutil.rmtree(copy)
    forget_removed_stores(spark)
    return ran.seconds


def _figures(case: Case, folder: str, options: Options) -> dict[str, Any]:
    growth, rows = case.growth, {"r": _distinct(case.steps), "s": _distinct(case.side_steps)}
    numbers = growth.bare_records(case.form, options.runs + 1)
    return {
        **{f"{kind}_rows": count for kind, count in rows.items()},
        **{f"{kind}_seconds": spread(taken) for kind, taken in case.seconds.items()},
        **{f"{kind}_us": round(median(case.seconds[kind]) / count * 1e6, 2) for kind, count in rows.items()},
        "bare_us": microseconds_per_record(Path(folder) / f"bare-{growth.rows}-{case.form}", growth.rows, numbers),
    }


def _distinct(done: list[Step] | list[SideStep]) -> int:
    return len(np.unique(np.concatenate([numbers for step in done for numbers in (step.puts, step.deletes)])))


def tell(figures: Mapping) -> Iterator[str]:
    yield f"a row of S has {figures['matches']} matches; microseconds for each row changed, and for a bare record"
    yield f"  {'':10} {'rows of R':>12} {'row of R':>10} {'row of S':>10} {'bare':>8}"
    for form in FORMS:
        for rows in figures["sizes"]:
            r, s, bare = (figures["cases"][f"{rows}, {form}"][f"{kind}_us"] for kind in KINDS)
            yield f"  {form:10} {rows:12,} {r:10.1f} {s:10.1f} {bare:8.2f}"
        r, s, bare = (figures["ratios"][f"{kind}, {form}"] for kind in KINDS)
        yield f"  {form:10} {'last / first':>12} {r:10.2f} {s:10.2f} {bare:8.2f}"
