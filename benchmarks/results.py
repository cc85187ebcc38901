"""Results: what was measured, with all that is needed to judge it.

In: figures of one question. Out: `<question>.json`. Always: versions, machine, load and commit stand beside the figures;
systems are compared by ratios of runs that took turns, never by seconds of different days.
"""

from __future__ import annotations

import json
import os
import platform
import statistics
import subprocess
import time
from collections.abc import Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
FOLDER = Path(__file__).parent / "results"
QUICK_FOLDER = ROOT / ".bench" / "quick"
_PACKAGES = ("pyspark", "duckdb", "lmdb", "pyarrow", "numpy")


def write_result(question: str, figures: Mapping[str, object], folder: Path = FOLDER) -> Path:
    """Keep the figures of a question; returns where they are."""
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / f"{question}.json"
    file.write_text(json.dumps({"question": question, **surroundings(), **figures}, indent=1) + "\n")
    return file


def surroundings() -> dict[str, object]:
    """The machine, the versions and the commit of this run."""
    return {
        "measured": time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime()),
        "commit": commit(),
        "python": platform.python_version(),
        "versions": {package: version(package) for package in _PACKAGES},
        "machine": {"cores": os.cpu_count(), "processor": _processor(), "load": round(os.getloadavg()[0], 2)},
    }


def commit() -> str:
    """The commit that was measured, with `+` when files differ from it."""
    try:
        said = [
            subprocess.run(["git", "-C", str(ROOT), *command], capture_output=True, text=True, check=True).stdout
            for command in (
                ("rev-parse", "--short=12", "HEAD"),
                ("status", "--porcelain", "--", "src", "benchmarks/*.py"),
            )
        ]
    except (OSError, subprocess.CalledProcessError):
        return "unknown"
    return said[0].strip() + ("+" if said[1].strip() else "")


def spread(values: Sequence[float]) -> dict[str, Any]:
    """The best, the middle and all of several runs: their distance is the noise of the machine."""
    rounded = [round(value, 4) for value in values]
    return {"best": min(rounded), "median": round(statistics.median(rounded), 4), "runs": rounded}


def median(values: Sequence[float], digits: int = 4) -> float:
    return round(statistics.median(values), digits)


def quantile(values: Sequence[float], share: float) -> float:
    """The value below which about `share` of `values` lie."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "unknown")
