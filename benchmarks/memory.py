"""Memory: how much does the pipeline need for a backlog of 1,000,000 changes, and how much for 5,000,000?

In: two sizes of a backlog. Out: the high water of the pipeline's processes (Python driver, JVM, Python workers) and its
ratio. Always: the base table is the same; each backlog is run by a process of its own, which has written nothing before;
processes are watched from outside. Three measures: `rss` as the system counts it, every mapped page of LMDB in every
process; `pss` where a shared page is counted once; `private` without files, which is what cannot be taken back by the
system. A page of LMDB's map is cache: it stays as long as nobody else wants it, so `private` is what a machine must have.
"""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from benchmarks import pipeline_process
from benchmarks.options import Options
from benchmarks.processes import KINDS, MEASURES, memory_of
from benchmarks.recompute import WrongResult, require_views
from benchmarks.results import median
from benchmarks.views import V1
from benchmarks.workload import copy_store, fill_here, prepare

_SAMPLE_SECONDS = 0.02


def measure(options: Options) -> dict[str, object]:
    backlogs = {str(changes): _peaks(options, changes) for changes in options.backlogs}
    small, large = (backlogs[str(changes)] for changes in options.backlogs)
    return {
        "rows": options.rows,
        "runs": options.runs,
        "seed": options.seed,
        "view_managers": options.view_managers,
        "backlogs": backlogs,
        "ratios": {
            f"{measure} {kind}": round(large[f"{measure}_mib"][kind] / small[f"{measure}_mib"][kind], 2)
            for measure in MEASURES
            for kind in (*KINDS, "all")
            if small[f"{measure}_mib"][kind]
        },
    }


def tell(figures: Mapping) -> Iterator[str]:
    yield f"{figures['rows']:,} rows, peaks in MiB"
    yield f"  {'backlog':>10} {'measure':8}" + "".join(f"{kind:>10}" for kind in (*KINDS, "all"))
    for changes, peaks in figures["backlogs"].items():
        for name in MEASURES:
            told = "".join(f"{peaks[f'{name}_mib'][kind]:10,.0f}" for kind in (*KINDS, "all"))
            yield f"  {int(changes):10,} {name:8}{told}"
    for name in MEASURES:
        yield f"  ratio, {name}, all processes: {figures['ratios'].get(f'{name} all', 0):.2f}"


def _peaks(options: Options, changes: int) -> dict[str, Any]:
    with tempfile.TemporaryDirectory(prefix="viewkeeper-bench-") as folder:
        source = Path(folder) / "prepared"
        waiting = prepare(f"embedded:{source}", replace(options.workload(), changes=changes), [V1], fill_here)
        return watch(source, V1, waiting, options)


def watch(source: Path, view: str, waiting: int, options: Options) -> dict[str, Any]:
    """Peaks of each kind of process and of all together while the store's changes are applied; the median of the runs."""
    found = []
    for turn in range(options.runs):
        copy = copy_store(source, source.with_name(f"copy-{turn}"))
        peaks, told = _watch_once(f"embedded:{copy}", options)
        require_views(f"embedded:{copy}", [view], "pipeline")
        if told["changes"] != waiting:
            raise WrongResult(f"pipeline: {told['changes']} changes were committed, {waiting} written")
        found.append(peaks)
        shutil.rmtree(copy)
    return {
        "epochs": told["epochs"],
        "seconds": told["seconds"],
        **{
            f"{name}_mib": {kind: median([peaks[name][kind] for peaks in found], 1) for kind in (*KINDS, "all")}
            for name in MEASURES
        },
    }


def _watch_once(url: str, options: Options) -> tuple[dict[str, dict[str, float]], dict]:
    peaks = {name: dict.fromkeys((*KINDS, "all"), 0.0) for name in MEASURES}
    size = options.changes_per_epoch
    process = pipeline_process.start(url, "run", view_managers=options.view_managers, changes_per_epoch=size)
    while process.started.poll() is None:
        for name, by_kind in memory_of(process.pid).items():
            for kind, mib in {**by_kind, "all": sum(by_kind.values())}.items():
                peaks[name][kind] = max(peaks[name][kind], mib)
        time.sleep(_SAMPLE_SECONDS)
    return peaks, process.wait()
