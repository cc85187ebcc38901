"""HBase crash: what happens to view maintenance when a region server, or the pipeline, is killed (paper 1, figure 14)?

In: a rate of writes and seconds. Out: cells written and committed to the view in each second, when what was killed, and
the longest time without a commit. Always: kill -9; the region server stays dead until the end of its part, so HBase has
to move its regions; a new pipeline is started as soon as the old one is dead; in the end the view is what DuckDB makes of
the base rows.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from benchmarks import beside, live_run
from benchmarks.hbase_case import Base, base_tables, require_views, run, store_over
from benchmarks.hbase_site import running
from benchmarks.options import Options
from benchmarks.views import V1

KILLED = {"region server": "regionserver-2", "pipeline": ""}
SIZE = 50  # rows in a batch of the writer
CELLS = 2  # of a row: what the log, and so the pipeline, counts


@dataclass(slots=True)
class Killable:
    """A pipeline in a process, and its successors."""

    url: str
    commits: live_run.Commits = field(default_factory=live_run.Commits)
    process: beside.Process | None = None

    def start(self) -> None:
        self.process = beside.start("hbase_pipeline", self.url, stderr=None)
        threading.Thread(target=self._listen, args=(self.process,), daemon=True).start()

    def _listen(self, process: beside.Process) -> None:
        for line in process.started.stdout or ():
            told = json.loads(line)
            self.commits.moments.append(told["moment"])
            self.commits.changes.append(told["changes"])

    def kill(self) -> None:
        assert self.process is not None
        self.process.started.kill()
        self.process.started.wait()

    def end(self) -> None:
        assert self.process is not None and self.process.started.stdin is not None
        self.process.started.stdin.close()
        self.process.started.wait()


def measure(options: Options) -> dict[str, Any]:
    with running() as hbase, base_tables(hbase, options.hbase_workload()) as base, store_over(base, [V1]) as db:
        parts = {kind: _part(base, db.store.url, options, kind) for kind in KILLED}
        run(base, db)
        require_views(base, db, [V1], "after the kills")
    return {
        "rows": options.hbase_rows,
        "seed": options.seed,
        "rate": options.hbase_rate,
        "part_seconds": options.hbase_crash_seconds,
        "parts": parts,
        "views_right": True,
    }


def _part(base: Base, url: str, options: Options, kind: str) -> dict[str, Any]:
    """Writes at a steady rate; the kill comes after a third of the time."""
    seconds, cluster, pipeline = options.hbase_crash_seconds, base.hbase.cluster, Killable(url)
    pipeline.start()
    try:
        with _writing(base, options) as writer:
            time.sleep(1)
            began = time.monotonic()
            time.sleep(seconds / 3)
            killed = time.monotonic()
            if kind == "pipeline":
                pipeline.kill()
                pipeline.start()
            else:
                cluster.kill(KILLED[kind])
            time.sleep(max(0.0, began + seconds - time.monotonic()))
        last = time.monotonic()
    finally:
        pipeline.end()
        if kind != "pipeline":
            cluster.run(KILLED[kind])
            cluster.wait_until_serving()
    moments, commits = writer.told["moments"], pipeline.commits
    written = live_run.by_second(moments, [SIZE] * len(moments), began, seconds)
    committed = live_run.by_second(commits.moments, [one / CELLS for one in commits.changes], began, seconds)
    third = int(seconds / 3)
    return {
        "killed_at": round(killed - began, 2),
        "written": written,
        "committed": committed,
        "written_before": round(sum(written[:third]) / third),
        "committed_before": round(sum(committed[:third]) / third),
        "committed_after": round(sum(committed[third:]) / max(1, len(committed) - third)),
        "longest_write_pause_seconds": live_run.longest_pause(moments, killed, last),
        "longest_commit_pause_seconds": live_run.longest_pause(commits.moments, killed, last),
    }


@contextmanager
def _writing(base: Base, options: Options) -> Iterator[beside.Process]:
    folder, rate = base.hbase.cluster.layout.folder, options.hbase_rate
    with beside.beside("hbase_writer", folder, base.names["r"], options.hbase_rows, options.seed, SIZE, rate) as writer:
        yield writer


def tell(figures: Mapping) -> Iterator[str]:
    yield f"{figures['rate']:,} rows written a second, view V1"
    for kind, part in figures["parts"].items():
        speeds = f"{part['committed_before']:,} committed a second before, {part['committed_after']:,} after"
        pauses = (part["longest_commit_pause_seconds"], part["longest_write_pause_seconds"])
        yield f"{kind} killed: {speeds}; longest without a commit {pauses[0]} s, without a write {pauses[1]} s"
