"""Flights: everyday work as a user feels it, over a year of departures from New York and eighteen views.

In: a number of runs. Out: seconds of the first fill, of `check`, from `start()` to the first epoch, until one change is in
all views, of a keyed and a limited SELECT; CPU seconds of a scan as text. Always: each is measured in a process of its own
that starts its own Spark, on a copy of the same store. Nothing but the public face is used, so that another version of
ViewKeeper can be measured by the same file.
"""

from __future__ import annotations

import datetime as dt
import json
import os
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import viewkeeper as vk
from benchmarks.options import Options
from benchmarks.results import ROOT, spread
from tests.support.flights import create_tables, create_views, load_tables, read_tables

if TYPE_CHECKING:
    from viewkeeper.client.database import Database

PUTS, WARM_UPS, SCANNED = 30, 5, 10_000
_PAUSE_SECONDS = 0.3
_START_SECONDS = 40
KEYED = """SELECT dep_delay, dest FROM flights
    WHERE time_hour = TIMESTAMP '2013-01-01 10:00:00' AND carrier = 'UA' AND flight = 1545"""
LIMITED = "SELECT carrier, flight, dest FROM flights LIMIT 3"


def measure(options: Options) -> dict[str, Any]:
    taken: dict[str, list[dict[str, float]]] = {name: [] for name in PARTS}
    with tempfile.TemporaryDirectory(prefix="viewkeeper-bench-") as folder:
        stores = _prepare(Path(folder))
        for _ in range(options.runs):
            for name in PARTS:
                copy = Path(folder) / "copy"
                shutil.copytree(stores["loaded" if name == "fill" else "filled"], copy)
                os.sync()
                taken[name].append(_in_a_process(name, copy))
                shutil.rmtree(copy)
    figures: dict[str, Any] = {"runs": options.runs, "puts": PUTS, "scanned": SCANNED}
    for runs in taken.values():
        figures |= {name: spread([run[name] for run in runs]) for name in runs[0]}
    return figures


def tell(figures: Mapping) -> Iterator[str]:
    for name, told in figures.items():
        if isinstance(told, Mapping) and "median" in told:
            yield f"{name:24} {told['median']:9.3f}"


def _prepare(folder: Path) -> dict[str, Path]:
    loaded, filled = folder / "loaded", folder / "filled"
    with vk.connect(f"embedded:{loaded}") as db:
        create_tables(db)
        load_tables(db, read_tables())
        create_views(db)
    shutil.copytree(loaded, filled)
    for part in (
        "fill",
        "check",
    ):  # the first Spark on a machine leaves an archive of classes for those that are measured
        _in_a_process(part, filled)
    return {"loaded": loaded, "filled": filled}


def _in_a_process(part: str, store: Path) -> dict[str, float]:
    command = [sys.executable, "-m", "benchmarks.flights", part, str(store)]
    told = subprocess.run(command, cwd=ROOT, check=True, text=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    return json.loads(told.stdout.splitlines()[-1])


def _fill(db: Database) -> dict[str, float]:
    with db.pipeline() as pipeline:
        return {"fill_seconds": _seconds(pipeline.run_available)}


def _check(db: Database) -> dict[str, float]:
    reports = []
    seconds = _seconds(lambda: reports.append(db.check()))
    if not reports[0].ok or len(reports[0].views) != 18:
        raise RuntimeError(f"check is not ok: {reports[0]}")
    return {"check_seconds": seconds}


def _visible(db: Database) -> dict[str, float]:
    """From `start()` to the first epoch, and from a put to the moment at which all views hold it."""
    with db.pipeline() as pipeline:
        began = time.perf_counter()
        token = _put(db, 0)
        pipeline.start()
        pipeline.wait_for(token, timeout=300)
        first = time.perf_counter() - began
        steady = time.monotonic() + _START_SECONDS  # the delays that count are those of a pipeline that runs on Spark
        while time.monotonic() < steady:
            pipeline.wait_for(_put(db, int(time.monotonic())), timeout=300)
            time.sleep(1)
        delays = []
        for number in range(WARM_UPS + PUTS):
            time.sleep(_PAUSE_SECONDS)
            token = _put(db, number + 1)
            delays.append(_seconds(partial(pipeline.wait_for, token, timeout=300)))
    return {"first_epoch_seconds": first, "visible_seconds": statistics.median(delays[WARM_UPS:])}


def _select(db: Database) -> dict[str, float]:
    db.execute(LIMITED)
    taken = {}
    for name, sql in (("keyed_select_seconds", KEYED), ("limited_select_seconds", LIMITED)):
        taken[name] = statistics.median([_seconds(partial(db.execute, sql)) for _ in range(5)])
    return taken


def _scan(db: Database) -> dict[str, float]:
    command = [str(Path(sys.executable).parent / "viewkeeper"), "scan", db.url, "flights"]
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([*command, "--limit", str(SCANNED)], check=True, stdout=subprocess.DEVNULL)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    began = time.perf_counter()
    head = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    for _ in range(3):
        head.stdout.readline()  # type: ignore[union-attr]
    first_lines = time.perf_counter() - began
    head.stdout.close()  # type: ignore[union-attr]
    head.wait()
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return {"scan_cpu_seconds": cpu, "scan_head_seconds": first_lines}


def _put(db: Database, number: int) -> object:
    hour = dt.datetime(2013, 6, 1 + number % 28, 10, tzinfo=dt.UTC)
    row = {
        "year": 2013,
        "month": 6,
        "day": hour.day,
        "dep_time": 500 + number,
        "dep_delay": 300 + number,
        "arr_delay": 20,
    }
    row |= {"tailnum": "N14228", "origin": "JFK", "dest": "IAH", "air_time": 200 + number, "distance": 1400}
    return db.table("flights").put(hour, "UA", 9999, row)


def _seconds(work: Callable[[], object]) -> float:
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


PARTS = {"fill": _fill, "check": _check, "visible": _visible, "select": _select, "scan": _scan}


if __name__ == "__main__":
    with vk.connect(f"embedded:{sys.argv[2]}") as opened:
        print(json.dumps(PARTS[sys.argv[1]](opened)))
