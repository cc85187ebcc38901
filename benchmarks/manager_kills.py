"""Manager kills: what does it cost when one of four view managers is killed every ten seconds (paper 1, figure 14)?

In: sizes and seconds. Out: changes committed per second with kills and without, their ratio, and the longest time without a
commit of each. Always: a view manager is a task of a stage, and what can be killed of it is the Python worker that runs it:
Spark runs four at once, and one that has a core at that moment gets SIGKILL, so it is one in the middle of its work. One
pipeline and one writer run through all parts, which come in turns (none, killed, killed, none), so that neither is always the
later one. In the end all views are compared with DuckDB's recomputation, and by `check` with Spark's.
"""

from __future__ import annotations

import os
import random
import signal
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import viewkeeper as vk
from benchmarks import live_run
from benchmarks.beside import beside
from benchmarks.live_load import VIEWS, prepare
from benchmarks.options import Options
from benchmarks.processes import workers_at_work
from benchmarks.recompute import WrongResult, require_views

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MANAGERS = 4
PARTS = ("none", "killed", "killed", "none")
LABELS = {"none": "none killed", "killed": "one of four killed, again and again"}
_LOOK_SECONDS = 0.002


def measure(options: Options) -> dict[str, object]:
    spark = live_run.session_with(MANAGERS)
    with tempfile.TemporaryDirectory(prefix="viewkeeper-bench-") as folder:
        url = f"embedded:{Path(folder) / 'store'}"
        prepare(url, live_run.load_of(options))
        with live_run.running(url, options, view_managers=MANAGERS, spark=spark) as (_, commits):
            with beside(*live_run.writer_arguments(url, options)):
                commits.wait_for(live_run.WARM_UP_EPOCHS)
                parts = [(kind, *_part(options, kills=kind == "killed")) for kind in PARTS]
        _require_right(url, spark)
    return {
        "rows": options.live_rows,
        "seed": options.seed,
        "view_managers": MANAGERS,
        "changes_per_epoch": live_run.size_of(options),
        "part_seconds": options.part_seconds,
        "kill_seconds": options.kill_seconds,
        **_figures(commits, parts, options.part_seconds),
        "views_right": True,
    }


def tell(figures: Mapping) -> Iterator[str]:
    for kind, label in LABELS.items():
        found = figures[kind]
        pause = f"longest time without a commit {found['longest_pause_seconds']} s"
        yield f"{label:38} {found['changes_per_second']:9,.0f} changes/s   {pause}   {found['kills']} kills"
    yield f"killed / none: {figures['ratio']:.2f}; all views right at the end"


def _part(options: Options, *, kills: bool) -> tuple[float, list[float]]:
    """One part of the run: when it began, and when managers were killed in it."""
    killed: list[float] = []
    began = time.monotonic()
    is_over = threading.Event()
    killer = threading.Thread(target=_kill_often, args=(options.kill_seconds, is_over, killed))
    if kills:
        killer.start()
    time.sleep(max(0.0, began + options.part_seconds - time.monotonic()))
    is_over.set()
    if kills:
        killer.join()
    return began, killed


def _kill_often(seconds: float, is_over: threading.Event, killed: list[float]) -> None:
    """Kill a worker in the middle of each interval."""
    wait = seconds / 2
    while not is_over.wait(wait):
        wait = seconds
        while not (found := workers_at_work(os.getpid())):
            if is_over.wait(_LOOK_SECONDS):
                return
        os.kill(random.choice(found), signal.SIGKILL)
        killed.append(time.monotonic())


def _figures(
    commits: live_run.Commits, parts: list[tuple[str, float, list[float]]], seconds: float
) -> dict[str, object]:
    found: dict[str, dict] = {}
    for kind in LABELS:
        mine = [(began, killed) for part, began, killed in parts if part == kind]
        per_second = [live_run.by_second(commits.moments, commits.changes, began, seconds) for began, _ in mine]
        pauses = [live_run.longest_pause(commits.moments, began, began + seconds) for began, _ in mine]
        at = [place * seconds + moment - began for place, (began, killed) in enumerate(mine) for moment in killed]
        changes = sum(map(sum, per_second))
        found[kind] = {
            "changes_per_second": round(changes / sum(map(len, per_second))),
            "longest_pause_seconds": max(pauses),
            "kills": len(at),
            "killed_at": [round(moment, 2) for moment in at],
            "per_second": [count for part in per_second for count in part],
        }
    ratio = found["killed"]["changes_per_second"] / found["none"]["changes_per_second"]
    return {**found, "ratio": round(ratio, 3)}


def _require_right(url: str, spark: SparkSession) -> None:
    require_views(url, VIEWS, "after the kills")
    with vk.connect(url) as db:
        report = db.check(spark=spark)
    if not report.ok:
        raise WrongResult(f"check found {report.findings[:3]}")
