"""Manager scaling: throughput while view managers are added and withdrawn under load, and what a reader sees meanwhile.

In: sizes and seconds. Out: changes committed per second with 1, 2, 4 and 2 managers in turn (`pipeline.scale`), how many
snapshots a reader in another process read, and how many of them were wrong. Always: every epoch is a Spark job with a worker
for each manager; each snapshot is compared, both views and record by record, with what numpy computes from the writer's
steps; a wrong one ends the benchmark, and so does a view that is not DuckDB's recomputation in the end.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

from benchmarks import live_run
from benchmarks.beside import beside
from benchmarks.live_load import VIEWS, prepare
from benchmarks.options import Options
from benchmarks.recompute import WrongResult, require_views

TURNS = (1, 2, 4, 2)


def measure(options: Options) -> dict[str, object]:
    spark = live_run.session_with(max(TURNS))
    with tempfile.TemporaryDirectory(prefix="viewkeeper-bench-") as folder:
        url = f"embedded:{Path(folder) / 'store'}"
        prepare(url, live_run.load_of(options))
        with live_run.running(url, options, view_managers=max(TURNS), spark=spark) as (pipeline, commits):
            with beside(*live_run.writer_arguments(url, options)):
                commits.wait_for(live_run.WARM_UP_EPOCHS)  # all workers there
                with beside(*live_run.reader_arguments(url, options, "exact")) as reader:
                    moments = []
                    for managers in TURNS:
                        pipeline.scale(view_managers=managers)
                        moments.append(time.monotonic())
                        time.sleep(options.part_seconds)
        require_views(url, VIEWS, "after the scaling")
    if reader.told["wrong"]:
        raise WrongResult(f"of {reader.told['reads']} snapshots {reader.told['wrong']} were wrong")
    seconds = options.part_seconds
    parts = [live_run.by_second(commits.moments, commits.changes, began, seconds) for began in moments]
    return {
        "rows": options.live_rows,
        "seed": options.seed,
        "changes_per_epoch": live_run.size_of(options),
        "part_seconds": seconds,
        "turns": [
            {"view_managers": managers, "changes_per_second": round(sum(part) / len(part)), "per_second": part}
            for managers, part in zip(TURNS, parts, strict=True)
        ],
        "longest_pause_seconds": live_run.longest_pause(commits.moments, moments[0], moments[-1] + seconds),
        "snapshots": reader.told,
        "views_right": True,
    }


def tell(figures: Mapping) -> Iterator[str]:
    for turn in figures["turns"]:
        yield f"{turn['view_managers']} view managers: {turn['changes_per_second']:9,.0f} changes/s"
    read = figures["snapshots"]
    yield f"{read['reads']:,} snapshots of {read['epochs']:,} epochs read, {read['wrong']} wrong; all views right at the end"
    yield f"longest time without a commit {figures['longest_pause_seconds']} s"
