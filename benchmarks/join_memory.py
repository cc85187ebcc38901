"""Join memory: how much does the pipeline need when a row changes that matches 1,000,000 others?

In: numbers of matches. Out: the high water of driver, JVM and workers, as `memory` measures it. Always: the only row of S is
updated, and every row of R matches it; once alone, which is an epoch so small that the driver runs it, and once beside
changes of R, which is a Spark job. The view is compared with a recomputation.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import viewkeeper as vk
from benchmarks.join_workload import prepare_join
from benchmarks.memory import watch
from benchmarks.options import Options
from benchmarks.processes import KINDS, MEASURES
from benchmarks.views import V3
from benchmarks.workload import Workload, fill_here


def measure(options: Options) -> dict[str, Any]:
    return {
        "runs": options.runs,
        "seed": options.seed,
        "view_managers": options.view_managers,
        "changes_beside": options.changes_per_size,
        "matches": {
            str(matches): {
                "alone": _peaks(options, matches, 0),
                "beside": _peaks(options, matches, options.changes_per_size),
            }
            for matches in options.matches
        },
    }


def _peaks(options: Options, matches: int, changes: int) -> dict[str, Any]:
    with tempfile.TemporaryDirectory(prefix="viewkeeper-bench-") as folder:
        source = Path(folder) / "prepared"
        workload = Workload(matches, changes, options.seed, x_max=1)
        waiting = prepare_join(f"embedded:{source}", workload, 0, V3, fill_here)
        with vk.connect(f"embedded:{source}") as db:
            db.table("s").put(0, {"name": "another", "z": -1})
        return watch(source, V3, waiting + 1, options)


def tell(figures: Mapping) -> Iterator[str]:
    yield f"one row changes, alone or beside {figures['changes_beside']:,} changes of the other table; peaks in MiB"
    kinds = (*KINDS, "all")
    yield f"  {'matches':>10} {'':8} {'seconds':>8} {'measure':8}" + "".join(f"{kind:>10}" for kind in kinds)
    for matches, cases in figures["matches"].items():
        for case, peaks in cases.items():
            for name in MEASURES:
                told = "".join(f"{peaks[f'{name}_mib'][kind]:10,.0f}" for kind in kinds)
                yield f"  {int(matches):10,} {case:8} {peaks['seconds']:8.1f} {name:8}{told}"
