"""Dashboards: what do many views over one table, or over one join, cost?

In: sizes. Out: for 1, 10, 100 and 300 views, optimized and not, CPU seconds and seconds of the epochs over the same
changes, and the bytes that the views take. Always: ten groupings × ten predicates × three sets of aggregates, in an
order drawn by seed, of which the first are taken; both ways in one run, taking turns, on the driver without Spark; all
views are read from the same kind of epoch, and unoptimized means that all rules are off that can be.
"""

from __future__ import annotations

import itertools
import random
import tempfile
import time
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path

import viewkeeper as vk
from benchmarks.options import Options
from benchmarks.results import median
from benchmarks.workload import fill_here, prepare, steps, write_step
from viewkeeper.plan.optimize import SWITCHES

COUNTS = (1, 10, 100, 300)
GROUPINGS = (
    "x",
    "x % 1000",
    "x % 100",
    "x % 10",
    "y",
    "y % 100",
    "y % 10",
    "x % 10, y % 10",
    "x % 100, y % 10",
    "y % 2",
)
PREDICATES = (
    "",
    "WHERE y > 500",
    "WHERE y <= 100",
    "WHERE x % 2 = 0",
    "WHERE x < 5000",
    "WHERE y % 3 = 1",
    "WHERE x % 10 = 3",
    "WHERE y BETWEEN 200 AND 700",
    "WHERE x > 9000",
    "WHERE x % 7 = y % 7",
)
AGGREGATES = ("COUNT(*) AS n, SUM(y) AS s", "AVG(x) AS a, COUNT(y) AS c", "MIN(y) AS lo, MAX(y) AS hi")


def dashboards(count: int, seed: int) -> list[str]:
    """The texts of `count` views."""
    combined = list(itertools.product(GROUPINGS, PREDICATES, AGGREGATES))
    random.Random(seed).shuffle(combined)
    texts = []
    for groups, predicate, aggregates in combined[:count]:
        named = ", ".join(f"{part} AS g{place}" for place, part in enumerate(groups.split(", ")))
        texts.append(f"SELECT {named}, {aggregates} FROM r {predicate} GROUP BY {groups}")
    return texts


def measure(options: Options) -> dict[str, object]:
    workload = replace(options.workload(), changes=options.changes_per_size)
    found: dict[str, dict[str, list[float]]] = {}
    with tempfile.TemporaryDirectory(prefix="viewkeeper-bench-") as folder:
        for turn, count, optimized in itertools.product(range(options.runs), COUNTS, (False, True)):
            url = f"embedded:{Path(folder) / f'{turn}-{count}-{optimized}'}?sync=off"
            figures = _measure_one(url, workload, dashboards(count, options.seed), optimized=optimized)
            mine = found.setdefault(f"{count} {'optimized' if optimized else 'unoptimized'}", {})
            for name, value in figures.items():
                mine.setdefault(name, []).append(value)
    return {
        "rows": options.rows,
        "changes": workload.changes,
        "runs": options.runs,
        "figures": {key: {name: median(v, 4) for name, v in one.items()} for key, one in found.items()},
    }


def _measure_one(url: str, workload: object, texts: list[str], *, optimized: bool) -> dict[str, float]:
    prepare(url, workload, [], fill_here, changes=False)
    with vk.connect(url) as db:
        bare = _bytes(url)
        for number, text in enumerate(texts):
            db.execute(f"CREATE MATERIALIZED VIEW v{number} AS {text}")
        db.execute("OPTIMIZE VIEWS" if optimized else f"OPTIMIZE VIEWS WITHOUT ({', '.join(SWITCHES)})")
        fill_here(db)
        for step in steps(workload):
            write_step(db, step)
        cpu, clock = time.process_time(), time.perf_counter()
        fill_here(db)
        taken = {"cpu_seconds": time.process_time() - cpu, "seconds": time.perf_counter() - clock}
        return taken | {"view_bytes": float(_bytes(url) - bare), "nodes": float(len(db.catalog().nodes))}


def _bytes(url: str) -> int:
    folder = Path(url.removeprefix("embedded:").split("?")[0])
    return sum(path.stat().st_blocks * 512 for path in folder.rglob("*") if path.is_file())


def tell(figures: Mapping) -> Iterator[str]:
    yield f"{figures['rows']:,} rows, epochs over {figures['changes']:,} changes"
    for key, one in figures["figures"].items():
        taken = f"{one['cpu_seconds']:8.2f} CPU s {one['seconds']:8.2f} s"
        yield f"  {key:18} {taken} {one['view_bytes'] / 2**20:8.1f} MiB {one['nodes']:4.0f} nodes"
