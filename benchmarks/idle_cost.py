"""Idle cost: what does a pipeline use that has nothing to do?

In: a number of seconds to watch. Out: CPU seconds of Python processes for each second of wall time, and those of the
JVM beside them. Always: the pipeline has run an epoch before and nobody writes while it is watched.
"""

from __future__ import annotations

import tempfile
import time
from pathlib import Path

import viewkeeper as vk
from benchmarks.processes import CpuSeconds, cpu_seconds
from benchmarks.results import write_result
from benchmarks.workload import TABLE, V1

_SETTLE_SECONDS = 5.0


def measure(*, seconds: float = 20.0) -> tuple[CpuSeconds, float]:
    """CPU and wall seconds of an idle pipeline."""
    with tempfile.TemporaryDirectory(prefix="viewkeeper-bench-") as folder:
        with vk.connect(f"embedded:{Path(folder) / 'store'}") as db:
            db.execute(TABLE)
            db.execute(f"CREATE MATERIALIZED VIEW v1 AS {V1}")
            with db.pipeline() as pipeline:
                pipeline.start()
                pipeline.wait_for(db.table("r").put("k", {"x": 1, "y": 1}), timeout=120)
                time.sleep(_SETTLE_SECONDS)
                before, began = cpu_seconds(), time.perf_counter()
                time.sleep(seconds)
                return cpu_seconds() - before, time.perf_counter() - began


def main(*, seconds: float) -> None:
    used, wall = measure(seconds=seconds)
    figures = {
        "wall_seconds": round(wall, 2),
        "python_cpu_share": round(used.python / wall, 4),
        "jvm_cpu_share": round(used.jvm / wall, 4),
    }
    file = write_result("idle_cost", figures)
    print(f"idle for {wall:.0f} s: Python {used.python / wall:.1%} of a core, JVM {used.jvm / wall:.1%}")
    print(f"  {file}")
