"""Join growth: does a change of a join's tables cost more when the tables are larger?

In: sizes of R. Out: microseconds and bytes written for each row changed, of R and of S, at each size, and what LMDB by
itself takes to change as many records there. Always: R is made of districts as large as the smallest size; a row of R
matches only rows of S of its own district, and a row of S about 100 of R. The changes are one epoch, the same program that
a Spark job runs but in this process, so that nothing differs but the store; cases take turns. The changes come in two forms:

* `here`: the very same changes at every size, all in one district, so that nothing differs but how much else there is;
* `everywhere`: as many changes, spread over the whole table. The larger it is, the fewer of them share a page of the store.
"""

from __future__ import annotations

import resource
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

import viewkeeper as vk
from benchmarks.bare_writes import microseconds_per_record
from benchmarks.join_workload import SideStep, first_side_rows, load_join, side_steps, write_side_step
from benchmarks.options import Options
from benchmarks.recompute import require_views
from benchmarks.results import median, spread
from benchmarks.views import V3
from benchmarks.workload import Y_MAX, Step, Workload, copy_store, fill_here, rows_of, steps, write_step

if TYPE_CHECKING:
    from viewkeeper.client.database import Database

MATCHES = 100  # of a row of S
FORMS = ("here", "everywhere")
_BLOCK_BYTES = 512


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


@dataclass(frozen=True, slots=True)
class Run:
    """One epoch: its seconds, and the bytes it wrote."""

    seconds: float
    written: int


@dataclass
class Case:
    """Changes of one form at one size, and their runs by kind."""

    growth: Growth
    form: str
    runs: dict[str, list[Run]] = field(default_factory=lambda: {"r": [], "s": []})

    def __post_init__(self) -> None:
        self.steps, self.side_steps = self.growth.steps(self.form), self.growth.side_steps(self.form)

    def change_r(self, db: Database) -> None:
        for step in self.steps:
            write_step(db, step)

    def change_s(self, db: Database) -> None:
        for step in self.side_steps:
            write_side_step(db, step)


def measure(options: Options) -> dict[str, Any]:
    sizes = sorted(options.sizes)
    growths = [Growth(rows, sizes[0], options.changes_per_size, options.seed) for rows in sizes]
    cases = [Case(growth, form) for growth in growths for form in FORMS]
    with tempfile.TemporaryDirectory(prefix="viewkeeper-bench-") as folder:
        for growth in growths:
            growth.load(f"embedded:{_source(folder, growth)}", fill_here)
        for turn in range(options.runs + 1):  # the first one warms up, the last one is verified
            for case in cases:
                for kind, change in (("r", case.change_r), ("s", case.change_s)):
                    ran = _run(_source(folder, case.growth), change, verified=turn == options.runs)
                    case.runs[kind] += [ran] if turn else []
        found = {f"{case.growth.rows}, {case.form}": _figures(case, folder, options) for case in cases}
    return {
        "changes_of_r": options.changes_per_size,
        "changes_of_s": growths[0].side_changes,
        "matches": MATCHES,
        "seed": options.seed,
        "runs": options.runs,
        "sizes": sizes,
        "cases": found,
        "ratios": {
            f"{name}, {form}": round(found[f"{sizes[-1]}, {form}"][name] / found[f"{sizes[0]}, {form}"][name], 2)
            for form in FORMS
            for name in ("r_us", "s_us", "bare_us", "r_kib", "s_kib")
            if found[f"{sizes[0]}, {form}"][name]
        },
    }


def _source(folder: str, growth: Growth) -> Path:
    return Path(folder) / str(growth.rows)


def _run(source: Path, change: Callable[[Database], None], *, verified: bool) -> Run:
    copy = copy_store(source, source.with_name("copy"))
    url = f"embedded:{copy}"
    with vk.connect(url) as db:
        change(db)
        written, began = _written(), time.perf_counter()
        fill_here(db)
        ran = Run(time.perf_counter() - began, _written() - written)
    if verified:
        require_views(url, [V3], f"{source.name} rows")
    shutil.rmtree(copy)
    return ran


def _written() -> int:
    """Bytes that this process had the system write to disk so far."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_oublock * _BLOCK_BYTES


def _figures(case: Case, folder: str, options: Options) -> dict[str, Any]:
    rows = {"r": _distinct(case.steps), "s": _distinct(case.side_steps)}
    figures: dict[str, Any] = {}
    for kind, count in rows.items():
        seconds = [run.seconds for run in case.runs[kind]]
        figures[f"{kind}_rows"] = count
        figures[f"{kind}_seconds"] = spread(seconds)
        figures[f"{kind}_us"] = round(median(seconds) / count * 1e6, 2)
        figures[f"{kind}_kib"] = round(median([run.written for run in case.runs[kind]]) / count / 1024, 3)
    numbers = case.growth.bare_records(case.form, options.runs + 1)
    bare = Path(folder) / f"bare-{case.growth.rows}-{case.form}"
    return figures | {"bare_us": microseconds_per_record(bare, case.growth.rows, numbers)}


def _distinct(done: list[Step] | list[SideStep]) -> int:
    return len(np.unique(np.concatenate([numbers for step in done for numbers in (step.puts, step.deletes)])))


def tell(figures: Mapping) -> Iterator[str]:
    yield f"a row of S has {figures['matches']} matches; for each row changed: microseconds, KiB written; bare: for a record"
    yield f"  {'':10} {'rows of R':>12} {'row of R':>18} {'row of S':>18} {'bare':>8}"
    for form in FORMS:
        for rows in figures["sizes"]:
            yield _line(form, f"{rows:,}", figures["cases"][f"{rows}, {form}"])
        ratios = {name.removesuffix(f", {form}"): ratio for name, ratio in figures["ratios"].items() if form in name}
        yield _line(form, "last / first", ratios)


def _line(form: str, label: str, of: Mapping[str, float]) -> str:
    told = "".join(f" {of[f'{kind}_us']:9.2f} {of.get(f'{kind}_kib', 0.0):8.2f}" for kind in ("r", "s"))
    return f"  {form:10} {label:>12} {told} {of['bare_us']:8.2f}"
