"""Results: what was measured, with all that is needed to judge it.

In: figures of one question. Out: `results/<question>.json`. Always: versions, machine and load stand beside the
figures; systems are compared by ratios of runs that took turns, never by seconds of different days.
"""

from __future__ import annotations

import json
import os
import platform
import statistics
from collections.abc import Mapping, Sequence
from importlib.metadata import version
from pathlib import Path

FOLDER = Path(__file__).parent / "results"
_PACKAGES = ("pyspark", "duckdb", "lmdb", "pyarrow", "numpy")


def write_result(question: str, figures: Mapping[str, object]) -> Path:
    """Keep the figures of a question; answers where they are."""
    FOLDER.mkdir(exist_ok=True)
    file = FOLDER / f"{question}.json"
    file.write_text(json.dumps({"question": question, **surroundings(), **figures}, indent=1) + "\n")
    return file


def surroundings() -> dict[str, object]:
    """The machine and the versions of this run."""
    return {
        "python": platform.python_version(),
        "versions": {package: version(package) for package in _PACKAGES},
        "machine": {"cores": os.cpu_count(), "processor": _processor(), "load": round(os.getloadavg()[0], 2)},
    }


def spread(values: Sequence[float]) -> dict[str, object]:
    """The best, the middle and all of several runs: their distance is the noise of the machine."""
    rounded = [round(value, 4) for value in values]
    return {"best": min(rounded), "median": round(statistics.median(rounded), 4), "runs": rounded}


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
