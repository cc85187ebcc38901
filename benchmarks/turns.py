"""Turns: is this checkout slower than another one? Both answer the same small questions by turns, each in its own process.

In: `python -m benchmarks.turns OTHER [--repeats N] [--rows N] [--spark]`, OTHER being the directory of another checkout.
Out: for each question the least and the median CPU time (wall time where other processes work for it, or a disk) of both,
and their ratio. Always: the two processes take turns at every single measurement, so that what else the machine does
meets both alike; each loads product and harness from its own checkout. The least is what the code needs; the median also
has what the machine adds.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median

ROOT = Path(__file__).parents[1]
SIDES = ("other", "this")
PLAIN = "?before_images=off"


class Questions:
    """What one side measures; each method returns a number of seconds."""

    def __init__(self, folder: Path, rows: int) -> None:
        from benchmarks.workload import Workload

        self._folder, self._workload = folder, Workload(rows, rows)
        self._stores: dict[str, Path] = {}
        self._open: dict[str, object] = {}

    def epoch(self, name: str) -> float:
        """CPU seconds of one process for an epoch of as many changes as the table has rows."""
        return self._epoch(name, on_spark=False)

    def spark(self, name: str) -> float:
        """Wall seconds of the same as a Spark job with two view managers."""
        return self._epoch(name, on_spark=True)

    def _epoch(self, name: str, *, on_spark: bool) -> float:
        import viewkeeper as vk
        from benchmarks.workload import HereRunner, copy_store
        from viewkeeper.coordinator.coordinator import Coordinator

        copy = copy_store(self._prepared(name), self._folder / "copy")
        with vk.connect(f"embedded:{copy}") as db:
            if on_spark:
                seconds = sum(done.seconds for done in self._pipeline(db))
            else:
                began = time.process_time()
                Coordinator(db.store, HereRunner(db.store)).catch_up()
                seconds = time.process_time() - began
        shutil.rmtree(copy)
        return seconds

    @staticmethod
    def _pipeline(db: object) -> list:
        from benchmarks.pipeline_runs import start_session
        from viewkeeper.settings import EngineSettings

        settings = EngineSettings(small_work_max=0)
        with db.pipeline(spark=start_session(2), view_managers=2, settings=settings) as pipeline:
            return pipeline.run_available()

    def _prepared(self, name: str) -> Path:
        from benchmarks import views
        from benchmarks.join_workload import prepare_join
        from benchmarks.workload import fill_here, prepare

        if name not in self._stores:
            view, _, option = name.partition(" ")
            self._stores[name] = self._folder / name.replace(" ", "-")
            url = f"embedded:{self._stores[name]}{PLAIN if option else ''}"
            if view == "V3":
                prepare_join(url, self._workload, self._workload.changes // 100, views.V3, fill_here)
            else:
                prepare(url, self._workload, views.VIEW_SETS[view], fill_here)
        return self._stores[name]

    def _live(self, options: str = "?sync=off") -> object:
        """An open store of V1, V2 and V3's table, whose views are fresh."""
        import viewkeeper as vk
        from benchmarks import views
        from benchmarks.workload import fill_here, prepare

        if options not in self._open:
            url = f"embedded:{self._folder / 'live'}{len(self._open)}{options}"
            prepare(url, self._workload, [views.V1, views.V2], fill_here, changes=False)
            self._open[options] = vk.connect(url)
        return self._open[options]

    def refresh(self, changes: str) -> float:
        """CPU seconds of one process for an epoch of some changes."""
        from benchmarks.workload import HereRunner
        from viewkeeper.coordinator.coordinator import Coordinator

        db, count = self._live(), int(changes)
        drawn = random.Random(time.monotonic_ns())
        rows = [
            {
                "k": f"k{drawn.randrange(self._workload.rows):09d}",
                "x": drawn.randrange(10_000),
                "y": drawn.randrange(1_000),
            }
            for _ in range(count)
        ]
        db.table("r").put_many(rows)
        coordinator = Coordinator(db.store, HereRunner(db.store))
        began = time.process_time()
        coordinator.catch_up()
        return time.process_time() - began

    def get(self, what: str) -> float:
        """CPU seconds of a thousand gets."""
        db, drawn = self._live(), random.Random(7)
        get: Callable[..., object] = db.view("v1").get if what == "view" else db.table("r").get
        keys = [
            drawn.randrange(10_000) if what == "view" else f"k{drawn.randrange(self._workload.rows):09d}"
            for _ in range(1_000)
        ]
        began = time.process_time()
        for key in keys:
            get(key)
        return time.process_time() - began

    def put(self, options: str) -> float:
        """Wall seconds of a hundred puts."""
        table, drawn = self._live(options).table("r"), random.Random(time.monotonic_ns())
        keys = [f"k{drawn.randrange(self._workload.rows):09d}" for _ in range(100)]
        began = time.perf_counter()
        for key in keys:
            table.put(key, {"y": drawn.randrange(1_000)})
        return time.perf_counter() - began

    def memory(self, _: str) -> float:
        """MiB: the most that this process has had in memory so far."""
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


ASKED = (
    *("epoch V1", "epoch V1 plain", "epoch V2", "epoch V3", "epoch V4", "refresh 10000", "refresh 100", "refresh 1"),
    *("get view", "get table", "put ?sync=off", "put ?sync=on", "memory -"),
)
ON_SPARK = ("spark V1", "spark V4")


def serve(folder: Path, rows: int) -> None:
    """Answer questions, one a line, until the input ends."""
    questions = Questions(folder, rows)
    for line in sys.stdin:
        name, _, argument = line.strip().partition(" ")
        print(json.dumps(getattr(questions, name)(argument)), flush=True)


def ask_by_turns(other: Path, asked: tuple[str, ...], *, repeats: int, rows: int) -> dict[str, dict[str, list[float]]]:
    """What both sides measured, by question; the first answer of each, which warms up, is left out."""
    found: dict[str, dict[str, list[float]]] = {question: {side: [] for side in SIDES} for question in asked}
    with tempfile.TemporaryDirectory(prefix="viewkeeper-turns-") as folder:
        processes = {
            side: _start(side, other if side == "other" else ROOT, Path(folder) / side, rows) for side in SIDES
        }
        try:
            for question in asked:
                for turn in range(repeats + 1):
                    for side in SIDES if turn % 2 else SIDES[::-1]:
                        answer = _ask(processes[side], question)
                        found[question][side] += [answer] if turn else []
                _print_line(question, found[question])
        finally:
            for process in processes.values():
                process.stdin.close()
                process.wait()
    return found


def _start(side: str, checkout: Path, folder: Path, rows: int) -> subprocess.Popen[str]:
    folder.mkdir()
    harness = folder / "harness"  # this file, beside the benchmarks of the other checkout
    shutil.copytree(checkout / "benchmarks", harness / "benchmarks", ignore=shutil.ignore_patterns("results"))
    shutil.copy(__file__, harness / "benchmarks" / "turns.py")
    paths = os.pathsep.join(map(str, (harness, checkout / "src", checkout)))
    environment = os.environ | {"PYTHONPATH": paths, "PYTHONHASHSEED": "0"}  # by chance of a seed one is 30 % faster
    command = [sys.executable, "-m", "benchmarks.turns", "--serve", str(folder), "--rows", str(rows)]
    return subprocess.Popen(
        command, env=environment, cwd=harness, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )


def _ask(process: subprocess.Popen[str], question: str) -> float:
    process.stdin.write(f"{question}\n")
    process.stdin.flush()
    answer = process.stdout.readline()
    if not answer:
        raise RuntimeError(f"the process ended at {question!r}")
    return json.loads(answer)


def _print_line(question: str, taken: dict[str, list[float]]) -> None:
    least, middle = ({side: of(taken[side]) for side in SIDES} for of in (min, median))
    ratios = f"least {least['this'] / least['other']:5.2f}   median {middle['this'] / middle['other']:5.2f}"
    seconds = "   ".join(f"{side} {least[side]:8.4f} {middle[side]:8.4f}" for side in SIDES)
    print(f"{question:16} {seconds}   this / other: {ratios}", flush=True)


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.turns", description=__doc__.splitlines()[0])
    parser.add_argument("other", type=Path, nargs="?", help="directory of another checkout")
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--rows", type=int, default=200_000, help="of the table, and changes of an epoch")
    parser.add_argument("--spark", action="store_true", help="epochs as Spark jobs too")
    parser.add_argument("--only", nargs="+", default=None, help="questions, such as 'epoch V1'")
    parser.add_argument("--serve", type=Path, help=argparse.SUPPRESS)
    given = parser.parse_args(arguments)
    if given.serve:
        serve(given.serve, given.rows)
        return 0
    asked = tuple(given.only or (*ASKED, *(ON_SPARK if given.spark else ())))
    print("seconds, the least and the median; memory in MiB")
    ask_by_turns(given.other.resolve(), asked, repeats=given.repeats, rows=given.rows)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
