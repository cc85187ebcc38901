"""Put latency: what does a put cost while the pipeline works, against the same put with the pipeline stopped?

In: sizes and seconds. Out: p50 and p99 of single puts, running and stopped, synced and with `?sync=off`, and ratios.
Always: one writer puts as fast as it can; the pipeline runs in another process and has a backlog besides what the writer
adds, so that it is at work from the first put to the last, which its share of busy time shows; each part has a copy of the
same store; the parts take turns.
"""

from __future__ import annotations

import random
import shutil
import tempfile
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

import viewkeeper as vk
from benchmarks import pipeline_process
from benchmarks.options import Options
from benchmarks.results import median, quantile
from benchmarks.views import V1
from benchmarks.workload import X_MAX, Y_MAX, copy_store, fill_here, prepare

SYNCS = {"synced": "", "sync_off": "?sync=off"}
STATES = ("stopped", "running")
_CHANGES_PER_EPOCH = 100_000  # unless told: the backlog is several epochs
_WARM_UP_PUTS = 100


def measure(options: Options) -> dict[str, object]:
    taken: dict[tuple[str, str], list[list[float]]] = {(sync, state): [] for sync in SYNCS for state in STATES}
    busy: dict[str, list[float]] = {sync: [] for sync in SYNCS}
    with tempfile.TemporaryDirectory(prefix="viewkeeper-bench-") as folder:
        source = Path(folder) / "prepared"
        prepare(f"embedded:{source}", options.workload(), [V1], fill_here)
        for turn in range(options.runs):
            for sync, state in taken:
                copy = copy_store(source, Path(folder) / f"{sync}-{state}-{turn}")
                latencies, share = _part(f"embedded:{copy}{SYNCS[sync]}", options, running=state == "running")
                taken[sync, state].append(latencies)
                busy[sync] += [share] if state == "running" else []
                shutil.rmtree(copy)
    return {
        "rows": options.rows,
        "backlog": options.changes,
        "seconds": options.seconds,
        "runs": options.runs,
        "seed": options.seed,
        "view_managers": options.view_managers,
        **{sync: _figures(taken, sync, busy[sync]) for sync in SYNCS},
    }


def tell(figures: Mapping) -> Iterator[str]:
    yield f"{figures['rows']:,} rows, backlog of {figures['backlog']:,} changes, parts of {figures['seconds']:.0f} s"
    for sync in SYNCS:
        part = figures[sync]
        for state in STATES:
            told = f"p50 {part[f'{state}_p50_us']:8,.0f} us   p99 {part[f'{state}_p99_us']:8,.0f} us"
            yield f"  {sync:9} {state:8} {told}   {part[f'{state}_puts_per_second']:8,.0f} puts/s"
        ratios = f"ratio: p50 {part['ratio_p50']:.2f}, p99 {part['ratio_p99']:.2f}"
        yield f"  {sync:9} {ratios} (the pipeline was at work for {part['busy_share']:.0%} of the time)"


def _part(url: str, options: Options, *, running: bool) -> tuple[list[float], float]:
    """Latencies of puts, and the share of the time that the pipeline was at work."""
    if not running:
        return _put(url, options), 0.0
    with pipeline_process.serving(
        url, view_managers=options.view_managers, changes_per_epoch=options.changes_per_epoch or _CHANGES_PER_EPOCH
    ) as process:
        began = time.perf_counter()
        latencies = _put(url, options)
        wall = time.perf_counter() - began
    return latencies, min(1.0, process.told["seconds"] / wall)


def _put(url: str, options: Options) -> list[float]:
    chosen = random.Random(options.seed)
    latencies = []
    with vk.connect(url) as db:
        table, clock = db.table("r"), time.perf_counter
        stop = clock() + options.seconds
        while clock() < stop:
            key = f"k{chosen.randrange(options.rows):09d}"
            row = {"x": chosen.randrange(X_MAX), "y": chosen.randrange(Y_MAX)}
            began = clock()
            table.put(key, row)
            latencies.append(clock() - began)
    return latencies[_WARM_UP_PUTS:] or latencies


def _figures(taken: Mapping[tuple[str, str], list[list[float]]], sync: str, busy: list[float]) -> dict[str, object]:
    """The median over the runs of each quantile."""
    figures: dict[str, float] = {"busy_share": median(busy, 3)}
    for state in STATES:
        runs = taken[sync, state]
        for name, share in (("p50", 0.5), ("p99", 0.99)):
            figures[f"{state}_{name}_us"] = median([quantile(run, share) * 1e6 for run in runs], 1)
        figures[f"{state}_puts_per_second"] = median([len(run) / sum(run) for run in runs], 0)
    for name in ("p50", "p99"):
        figures[f"ratio_{name}"] = round(figures[f"running_{name}_us"] / figures[f"stopped_{name}_us"], 2)
    return dict(figures)
