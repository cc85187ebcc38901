"""Dashboards: what do many views over one table, or over one join, cost?

In: sizes. Out: for each number of views, over a table and over a join, optimized and not: CPU seconds and seconds of the
epochs over the same changes, and the bytes of the views' records; the same of 100 views without each rule; 100 views, and
twenty with MIN and MAX among them, against V1; how long until a put is seen in all of 100 views. Always: all ways in one
run, taking turns, on the driver without Spark; every view is compared with its recomputation by DuckDB at the end;
unoptimized means that all rules are off that can be.
"""

from __future__ import annotations

import itertools
import random
import shutil
import tempfile
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import viewkeeper as vk
from benchmarks.dashboard_views import SOURCES, TABLE, dashboards, twenty_with_extremes
from benchmarks.join_workload import SIDE_TABLE, first_side_rows, side_steps, write_side_step
from benchmarks.options import Options
from benchmarks.recompute import require_views
from benchmarks.results import median
from benchmarks.views import V1
from benchmarks.visibility import PAUSE_SECONDS, WARM_UP_PUTS
from benchmarks.workload import Workload, copy_store, fill_here, prepare, steps, write_step
from viewkeeper.coordinator.gc import collect_garbage
from viewkeeper.plan.optimize import SWITCHES

if TYPE_CHECKING:
    from viewkeeper.client.database import Database

MANY = 100  # views of what is not measured for each count
SIDE_ROWS = 1_000  # of S, and values of x in a join
SIDE_SHARE = 1_000  # changes of R for each change of S
_PATIENCE_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class Case:
    """Views that are measured together; `path` is where their figures are found in the result."""

    path: tuple[str, ...]
    source: str
    changes: int
    texts: Sequence[str]
    without: Collection[str] = ()  # rules


def create_views(db: Database, texts: Sequence[str], without: Collection[str]) -> None:
    """Make the views `v1`, `v2`, …, optimized by all rules but some."""
    for number, text in enumerate(texts, 1):
        db.execute(f"CREATE MATERIALIZED VIEW v{number} AS {text}")
    db.execute(f"OPTIMIZE VIEWS WITHOUT ({', '.join(without)})" if without else "OPTIMIZE VIEWS")


def measure(options: Options) -> dict[str, object]:
    cases = list(_cases(options))
    found: dict[tuple[str, ...], dict[str, list[float]]] = {}
    with tempfile.TemporaryDirectory(prefix="viewkeeper-bench-") as folder:
        bases = {source: _base(Path(folder) / source, workload) for source, workload in _workloads(options).items()}
        for _, case in itertools.product(range(options.runs), cases):
            workload = replace(_workloads(options)[case.source], changes=case.changes)
            path, mine = copy_store(bases[case.source], Path(folder) / "case"), found.setdefault(case.path, {})
            for name, value in _measure_one(path, workload, case).items():
                mine.setdefault(name, []).append(value)
        figures = _nested({path: {name: median(v, 4) for name, v in one.items()} for path, one in found.items()})
        visible = _delays(copy_store(bases["table"], Path(folder) / "case"), options)
    sizes = ("rows", "changes_per_size", "join_rows", "join_changes", "ratio_changes", "runs", "puts")
    return {name: getattr(options, name) for name in sizes} | figures | {"visible_seconds": visible}


def _cases(options: Options) -> Iterator[Case]:
    changes = {"table": options.changes_per_size, "join": options.join_changes}
    ways = {"unoptimized": SWITCHES, "optimized": ()}
    many = min(MANY, max(options.counts))
    for name, source in SOURCES.items():
        for count, (way, without) in itertools.product(options.counts, ways.items()):
            texts = dashboards(source, count, options.seed)
            yield Case(("sweep", name, way, str(count)), name, changes[name], texts, without)
        texts = dashboards(source, many, options.seed)
        for rule in (None, *SWITCHES):
            left_out = () if rule is None else (rule,)
            yield Case(("rules", name, rule or "none"), name, changes[name], texts, left_out)
    yield Case(("against_v1", "V1"), "table", options.ratio_changes, [V1])
    mixed = {f"{many} mixed": dashboards(TABLE, many, options.seed), "20 with MIN, MAX": twenty_with_extremes()}
    for (name, texts), (way, without) in itertools.product(mixed.items(), ways.items()):
        yield Case(("against_v1", f"{name}, {way}"), "table", options.ratio_changes, texts, without)


def _workloads(options: Options) -> dict[str, Workload]:
    side_rows = min(SIDE_ROWS, options.join_rows)
    return {"table": options.workload(), "join": Workload(options.join_rows, 0, options.seed, x_max=side_rows)}


def _base(path: Path, workload: Workload) -> Path:
    """A store with the rows of both tables, and no view."""
    prepare(f"embedded:{path}?sync=off", workload, [], lambda db: None, changes=False)
    with vk.connect(f"embedded:{path}?sync=off") as db:
        db.execute(SIDE_TABLE)
        db.table("s").put_many(first_side_rows(workload))
    return path


def _measure_one(path: Path, workload: Workload, case: Case) -> dict[str, float]:
    url = f"embedded:{path}?sync=off"
    with vk.connect(url) as db:
        create_views(db, case.texts, case.without)
        fill_here(db)
        sizes = [len(step.puts) + len(step.deletes) for step in steps(workload)]
        sides = side_steps(workload, sum(sizes) // SIDE_SHARE if case.source == "join" else 0, sizes)
        for step, side in zip(steps(workload), sides, strict=True):
            write_step(db, step)
            write_side_step(db, side)
        cpu, clock = time.process_time(), time.perf_counter()
        fill_here(db)
        cpu, clock = time.process_time() - cpu, time.perf_counter() - clock
        collect_garbage(db.store)
        stored, nodes = view_bytes(db), len(db.catalog().nodes)
    require_views(url, case.texts, " ".join(case.path))
    shutil.rmtree(path)
    return {
        "cpu_seconds": cpu,
        "seconds": clock,
        "changes_per_cpu_second": workload.changes / cpu,
        "changes_per_second": workload.changes / clock,
        "view_bytes": float(stored),
        "nodes": float(nodes),
    }


def view_bytes(db: Database) -> int:
    """The pages that the views' records use: without free pages, and without base rows and log."""
    total = 0
    for name, environment in db.store.environments().items():
        if name.startswith("partition-"):
            with environment.snapshot() as snapshot:
                total += environment.bytes_used(snapshot)
    return total


def _delays(path: Path, options: Options) -> dict[str, float]:
    """The median of the seconds from a put's return until all views show it, by a pipeline of this process.

    Called: it is asked to run at once. Running: it is idle, and has to notice.
    """
    url, moments = f"embedded:{path}?sync=off", random.Random(options.seed)
    texts = dashboards(TABLE, min(MANY, max(options.counts)), options.seed)
    with vk.connect(url) as db:
        create_views(db, texts, ())
        fill_here(db)
        with db.pipeline() as pipeline:
            numbers = range(WARM_UP_PUTS + options.puts)
            called = [_seconds_until_seen(db, f"called {number}", pipeline.run_available) for number in numbers]
            pipeline.start()
            running = []
            for number in numbers:
                time.sleep(moments.uniform(*PAUSE_SECONDS))
                running.append(_seconds_until_seen(db, f"running {number}"))
    require_views(url, texts, "single puts")
    seen = {"called": called, "running": running}
    return {name: median(delays[WARM_UP_PUTS:]) for name, delays in seen.items()} | {"views": len(texts)}


def _seconds_until_seen(db: Database, key: str, act: Callable[[], object] = lambda: None) -> float:
    token = db.table("r").put(key, {"x": 1, "y": 1})
    began = time.perf_counter()
    act()
    db.wait_for(token, _PATIENCE_SECONDS)
    return time.perf_counter() - began


def _nested(found: Mapping[tuple[str, ...], object]) -> dict:
    nested: dict = {}
    for path, value in found.items():
        at = nested
        for name in path[:-1]:
            at = at.setdefault(name, {})
        at[path[-1]] = value
    return nested


def tell(figures: Mapping) -> Iterator[str]:
    for source, ways in figures["sweep"].items():
        rows, changes = (("rows", "changes_per_size"), ("join_rows", "join_changes"))[source == "join"]
        yield f"over a {source}: {figures[rows]:,} rows, epochs over {figures[changes]:,} changes"
        for way, counts in ways.items():
            for count, one in counts.items():
                yield f"  {f'{count} {way}':18} {_told(one)}"
        yield f"over a {source}, what each rule brings at {_many(figures)} views"
        for rule, one in figures["rules"][source].items():
            yield f"  {'all rules' if rule == 'none' else f'without {rule}':26} {_told(one)}"
    yield f"against V1: epochs over {figures['ratio_changes']:,} changes"
    one_view = figures["against_v1"]["V1"]
    for name, one in figures["against_v1"].items():
        ratios = (one[key] / one_view[key] for key in ("cpu_seconds", "seconds"))
        yield f"  {name:30} {_told(one)} " + "× V1: {:.2f} in CPU seconds, {:.2f} in seconds".format(*ratios)
    seen = figures["visible_seconds"]
    delays = f"{seen['called']:.4f} s if the pipeline is called, {seen['running']:.4f} s if it is idle"
    yield f"until {seen['views']} views show a put, median of {figures['puts']}: {delays}"


def _many(figures: Mapping) -> int:
    return figures["visible_seconds"]["views"]


def _told(one: Mapping) -> str:
    taken = (
        f"{one['cpu_seconds']:8.2f} CPU s {one['seconds']:8.2f} s {one['changes_per_cpu_second']:9,.0f} changes / CPU s"
    )
    return f"{taken} {one['view_bytes'] / 2**20:8.1f} MiB {one['nodes']:4.0f} nodes"
