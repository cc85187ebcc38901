"""Single table: how fast is the pipeline over workload W, against the papers' per-operation algorithm on the same log?

In: sizes, view sets (V1, V2, V4) and distributions. Out: seconds of every system for every case, and ratios. Always: all
stores are prepared first, then the systems and the cases take turns on copies; the session has run every case before;
every result is compared with a recomputation; the pipeline syncs as R10 says. A case that this version does not support
is named with its reason, not left out silently.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks import per_operation
from benchmarks.options import Options
from benchmarks.pipeline_runs import PipelineRun, forget_removed_stores, run_pipeline, start_session
from benchmarks.recompute import WrongResult, base_rows, require_equal, require_views
from benchmarks.results import spread
from benchmarks.update_programs import SYSTEMS
from benchmarks.views import VIEW_SETS
from benchmarks.workload import Workload, copy_store, fill_on_spark, first_rows, prepare
from viewkeeper.errors import InputError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

WITHOUT_IMAGES = ("V1",)  # view sets that also run on a log without before-images


@dataclass(slots=True)
class Case:
    """One view set, one kind of log, one distribution: a prepared store, and what was measured on it."""

    view: str
    images: bool
    workload: Workload
    folder: Path
    changes: int = 0
    pipeline: list[PipelineRun] = field(default_factory=list)
    others: dict[str, list[per_operation.Run]] = field(default_factory=dict)

    @property
    def name(self) -> str:
        return f"{self.view}{'' if self.images else ' without images'}, {self.workload.distribution}"

    @property
    def programs(self) -> Mapping[str, type[per_operation.UpdateProgram]]:
        return SYSTEMS.get((self.view, self.images), {})

    def url(self, path: Path) -> str:
        return f"embedded:{path}" + ("" if self.images else "?before_images=off")


def measure(options: Options, *, without_images: Sequence[str] = WITHOUT_IMAGES) -> dict[str, Any]:
    """All systems `runs` times in turn.

    Every run of the pipeline comes after one that only warms up: the others take longer than Spark lets workers idle.
    """
    spark = start_session(options.view_managers)
    with tempfile.TemporaryDirectory(prefix="viewkeeper-bench-") as folder:
        cases, skipped = _prepare(
            _cases(options, Path(folder), without_images), spark, pipeline_alone=options.pipeline_alone
        )
        for _ in range(options.runs):
            for case in cases:
                _run_pipeline(case, options, spark, warm_up=True)
                _run_pipeline(case, options, spark, warm_up=False)
                _run_others(case)
    return _figures(options, {case.name: case for case in cases}, skipped)


def _cases(options: Options, folder: Path, without_images: Sequence[str]) -> list[Case]:
    return [
        Case(view, images, options.workload(distribution), folder / f"{view}-{images}-{distribution}")
        for distribution in options.distributions
        for view in options.views
        for images in ((True, False) if view in without_images else (True,))
    ]


def _prepare(cases: Sequence[Case], spark: SparkSession, *, pipeline_alone: bool) -> tuple[list[Case], dict[str, str]]:
    ready, skipped = [], {}
    for case in cases:
        case.others = {} if pipeline_alone else {variant: [] for variant in case.programs}
        try:
            case.changes = prepare(
                case.url(case.folder / "prepared"), case.workload, VIEW_SETS[case.view], fill_on_spark(spark)
            )
            ready.append(case)
        except InputError as error:  # a URL option or an aggregate that this version does not know
            skipped[case.name] = str(error)
            shutil.rmtree(case.folder, ignore_errors=True)
    return ready, skipped


def _run_pipeline(case: Case, options: Options, spark: SparkSession, *, warm_up: bool) -> None:
    copy = copy_store(case.folder / "prepared", case.folder / f"pipeline-{len(case.pipeline)}-{warm_up}")
    url = case.url(copy)
    ran = run_pipeline(url, spark, view_managers=options.view_managers, changes_per_epoch=options.changes_per_epoch)
    require_views(url, VIEW_SETS[case.view], f"pipeline, {case.name}")
    if ran.changes != case.changes:
        raise WrongResult(f"pipeline: {ran.changes} changes were committed, {case.changes} written")
    if not warm_up:
        case.pipeline.append(ran)
    shutil.rmtree(copy)
    forget_removed_stores(spark)


def _run_others(case: Case) -> None:
    """The papers' algorithm in all its variants, on the prepared store itself: it is only read."""
    url = case.url(case.folder / "prepared")
    if not case.others:
        return
    first, base = {"r": first_rows(case.workload)}, base_rows(url)
    for variant, ran_before in case.others.items():
        target = case.folder / f"per-operation-{variant}"
        ran = per_operation.run(url, target, first, case.programs[variant], variant)
        require_equal(base, VIEW_SETS[case.view][0], ran.records, f"per operation, {variant}, {case.name}")
        ran_before.append(ran)
        shutil.rmtree(target)


def _figures(options: Options, cases: Mapping[str, Case], skipped: Mapping[str, str]) -> dict[str, Any]:
    return {
        "rows": options.rows,
        "changes": options.changes,
        "seed": options.seed,
        "view_managers": options.view_managers,
        "runs": options.runs,
        "cases": {name: _case_figures(case) for name, case in cases.items()},
        "skipped": dict(skipped),
        "ratios": dict(_ratios_between(options, cases)),
    }


def _case_figures(case: Case) -> dict[str, Any]:
    ours = spread([ran.seconds for ran in case.pipeline])
    theirs = {variant: spread([ran.seconds for ran in runs]) for variant, runs in case.others.items()}
    return {
        "changes": case.changes,
        "epochs": case.pipeline[0].epochs,
        "pipeline_seconds": ours,
        "pipeline_wall_seconds": spread([ran.wall_seconds for ran in case.pipeline]),
        "pipeline_cpu_seconds": spread([ran.cpu.total for ran in case.pipeline]),
        "pipeline_python_cpu_seconds": spread([ran.cpu.python for ran in case.pipeline]),
        "changes_per_second": round(case.changes / ours["median"]),
        **{f"per_operation_{variant}_seconds": seconds for variant, seconds in theirs.items()},
        **{
            f"per_operation_{variant}_cpu_seconds": spread([ran.cpu_seconds for ran in runs])
            for variant, runs in case.others.items()
        },
        **{f"ratio_{variant}": round(seconds["median"] / ours["median"], 2) for variant, seconds in theirs.items()},
    }


def _ratios_between(options: Options, cases: Mapping[str, Case]) -> Iterator[tuple[str, float]]:
    """What twenty views cost against one, and what skew costs."""
    speed = {
        name: case.changes / spread([run.seconds for run in case.pipeline])["median"] for name, case in cases.items()
    }
    for distribution in options.distributions:
        one, twenty = speed.get(f"V1, {distribution}"), speed.get(f"V4, {distribution}")
        if one and twenty:
            yield f"V4 time / V1 time, {distribution}", round(one / twenty, 2)
    for name, changes_per_second in speed.items():
        kind, _, distribution = name.rpartition(", ")
        uniform = speed.get(f"{kind}, uniform")
        if distribution != "uniform" and uniform:
            yield f"{distribution} / uniform throughput, {kind}", round(changes_per_second / uniform, 2)


def tell(figures: Mapping) -> Iterator[str]:
    """The figures as lines of a table."""
    yield f"{figures['rows']:,} rows, {figures['changes']:,} changes, {figures['view_managers']} managers"
    yield f"  {'case':34} {'system':22} {'seconds':>9} {'changes/s':>11} {'ratio':>7}"
    for name, case in figures["cases"].items():
        ours = case["pipeline_seconds"]["median"]
        yield f"  {name:34} {'pipeline':22} {ours:9.2f} {case['changes'] / ours:11,.0f}"
        for variant in per_operation.VARIANTS:
            if f"ratio_{variant}" in case:
                seconds = case[f"per_operation_{variant}_seconds"]["median"]
                told = f"{seconds:9.2f} {case['changes'] / seconds:11,.0f} {case[f'ratio_{variant}']:6.1f}x"
                yield f"  {'':34} {'per operation, ' + variant:22} {told}"
    for name, ratio in figures["ratios"].items():
        yield f"  {name}: {ratio:.2f}"
    for name, reason in figures["skipped"].items():
        yield f"  {name}: not run: {reason}"
