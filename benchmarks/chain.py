"""Chain: what does one more view over a view cost?

In: sizes. Out: CPU seconds of the epoch over the same changes for chains of 1, 2, 4 and 8 views, and of what each view
more costs. Always: in one process without Spark; the first view groups the table by its keys' hundreds, each further one
selects of the view before it and shifts a value, the last one counts; every chain has a copy of the same rows.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path

import viewkeeper as vk
from benchmarks.options import Options
from benchmarks.results import median
from benchmarks.workload import fill_here, prepare, steps, write_step

LENGTHS = (1, 2, 4, 8)
FIRST = "SELECT x, COUNT(*) AS n, SUM(y) AS s FROM r GROUP BY x"
NEXT = "SELECT x, n, s + 1 AS s FROM v{below} WHERE n > 0"


def chain_of(length: int) -> list[str]:
    """The texts of v1, v2, … of which each reads the one before it."""
    return [FIRST, *(NEXT.format(below=number) for number in range(1, length))]


def measure(options: Options) -> dict[str, object]:
    workload = replace(options.workload(), changes=2 * options.changes_per_refresh)
    seconds: dict[int, list[float]] = {length: [] for length in LENGTHS}
    with tempfile.TemporaryDirectory(prefix="viewkeeper-bench-") as folder:
        for turn in range(options.runs):
            for length in LENGTHS:
                url = f"embedded:{Path(folder) / f'{turn}-{length}'}?sync=off"
                prepare(url, workload, chain_of(length), fill_here, changes=False)
                with vk.connect(url) as db:
                    for step in steps(workload):
                        write_step(db, step)
                    began = time.process_time()
                    fill_here(db)
                    seconds[length].append(time.process_time() - began)
    return {
        "rows": options.rows,
        "changes": 2 * options.changes_per_refresh,
        "runs": options.runs,
        "cpu_seconds": {str(length): median(taken, 4) for length, taken in seconds.items()},
    }


def tell(figures: Mapping) -> Iterator[str]:
    yield f"{figures['rows']:,} rows, an epoch of {figures['changes']:,} changes"
    taken = figures["cpu_seconds"]
    for length in LENGTHS:
        yield f"  {length} views: {taken[str(length)]:.3f} CPU seconds, {taken[str(length)] / taken['1']:.2f} times one view"
