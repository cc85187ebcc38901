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
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

import viewkeeper as vk
from benchmarks.bare_writes import microseconds_per_record
from benchmarks.join_workload import SideStep, first_side_rows, load_join, side_steps, write_side_step
from benchmarks.options import Options
from benchmarks.pipeline_runs import forget_removed_stores, run_pipeline, start_session
from benchmarks.recompute import require_views
from benchmarks.results import spread
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


def measure(options: Options) -> dict[str, Any]:
    spark = start_session(options.view_managers)
    sizes = sorted(options.sizes)
    found = {
        str(rows): _at_size(Growth(rows, sizes[0], options.changes_per_size, options.seed), options, spark)
        for rows in sizes
    }
    first, last = found[str(sizes[0])], found[str(sizes[-1])]
    return {
        "changes_of_r": options.changes_per_size,
        "changes_of_s": Growth(sizes[0], sizes[0], options.changes_per_size, options.seed).side_changes,
        "matches": MATCHES,
        "seed": options.seed,
        "view_managers": options.view_managers,
        "runs": options.runs,
        "sizes": found,
        "ratios": {
            f"{kind}, {form}": round(last[form][f"{kind}_us"] / first[form][f"{kind}_us"], 2)
            for form in FORMS
            for kind in KINDS
        },
    }


def _at_size(growth: Growth, options: Options, spark: SparkSession) -> dict[str, Any]:
    with tempfile.TemporaryDirectory(prefix="viewkeeper-bench-") as folder:
        source = Path(folder) / "prepared"
        growth.load(f"embedded:{source}", fill_on_spark(spark))
        return {form: _of_form(growth, form, source, options, spark) for form in FORMS}


def _of_form(growth: Growth, form: str, source: Path, options: Options, spark: SparkSession) -> dict[str, Any]:
    def change_r(db: Database) -> None:
        for step in growth.steps(form):
            write_step(db, step)

    def change_s(db: Database) -> None:
        for step in growth.side_steps(form):
            write_side_step(db, step)

    rows = {"r": _distinct(growth.steps(form)), "s": _distinct(growth.side_steps(form))}
    seconds = {kind: _run(source, change, options, spark) for kind, change in (("r", change_r), ("s", change_s))}
    bare = microseconds_per_record(
        source.with_name(f"bare-{form}"), growth.rows, growth.bare_records(form, options.runs + 1)
    )
    return {
        **{f"{kind}_rows": count for kind, count in rows.items()},
        **{f"{kind}_seconds": spread(seconds[kind]) for kind in rows},
        **{f"{kind}_us": round(spread(seconds[kind])["median"] / rows[kind] * 1e6, 2) for kind in rows},
        "bare_us": bare,
    }


def _distinct(done: list[Step] | list[SideStep]) -> int:
    return len(np.unique(np.concatenate([numbers for step in done for numbers in (step.puts, step.deletes)])))


def _run(source: Path, change: Callable[[Database], None], options: Options, spark: SparkSession) -> list[float]:
    """The seconds of each run; the view of the last one is compared with a recomputation."""
    seconds = []
    for _ in range(options.runs + 1):
        copy = copy_store(source, source.with_name("copy"))
        url = f"embedded:{copy}"
        with vk.connect(url) as db:
            change(db)
        size = options.changes_per_epoch or 10 * options.changes_per_size  # all in one epoch
        ran = run_pipeline(url, spark, view_managers=options.view_managers, changes_per_epoch=size)
        seconds.append(ran.seconds)
        if len(seconds) > options.runs:
            require_views(url, [V3], f"pipeline, {source}")
        shutil.rmtree(copy)
        forget_removed_stores(spark)
    return seconds[1:]  # the first run warms up


def tell(figures: Mapping) -> Iterator[str]:
    yield f"a row of S has {figures['matches']} matches; microseconds for each row changed, and for a bare record"
    yield f"  {'':10} {'rows of R':>12} {'row of R':>10} {'row of S':>10} {'bare':>8}"
    for form in FORMS:
        for rows, found in figures["sizes"].items():
            r, s, bare = (found[form][f"{kind}_us"] for kind in KINDS)
            yield f"  {form:10} {int(rows):12,} {r:10.1f} {s:10.1f} {bare:8.2f}"
        r, s, bare = (figures["ratios"][f"{kind}, {form}"] for kind in KINDS)
        yield f"  {form:10} {'last / first':>12} {r:10.2f} {s:10.2f} {bare:8.2f}"
