"""Idle cost: what does a pipeline use that has nothing to do?

In: a number of seconds to watch. Out: CPU seconds of Python processes for each second of wall time, and those of the
JVM beside them. Always: the pipeline has run an epoch before and nobody writes while it is watched.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

import viewkeeper as vk
from benchmarks.options import Options
from benchmarks.processes import CpuSeconds, cpu_seconds
from benchmarks.views import V1
from benchmarks.workload import TABLE

_SETTLE_SECONDS = 5.0


def measure(options: Options) -> dict[str, object]:
    used, wall = watch(options.seconds)
    return {
        "wall_seconds": round(wall, 2),
        "python_cpu_share": round(used.python / wall, 4),
        "jvm_cpu_share": round(used.jvm / wall, 4),
    }


def tell(figures: Mapping) -> Iterator[str]:
    shares = f"Python {figures['python_cpu_share']:.1%} of a core, JVM {figures['jvm_cpu_share']:.1%}"
    yield f"idle for {figures['wall_seconds']:.0f} s: {shares}"


def watch(seconds: float) -> tuple[CpuSeconds, float]:
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
