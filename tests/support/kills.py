"""Many real kills, from new seeds: counts, and what was not as it is without kills.

    python -m tests.support.kills pipeline --count 3000     SIGKILL of pipelines at failpoints, alone and in pairs
    python -m tests.support.kills workers --count 200       of Spark's Python workers, in each step of a task
    python -m tests.support.kills executors --count 15      of executors of a local cluster, with their JVM
    python -m tests.support.kills drivers --count 30        of processes that drive Spark, between and within jobs
    python -m tests.support.kills takeovers --count 100     SIGSTOP of the owner, take-over by a standby, SIGCONT

In: what to kill, how often, and a seed (a new one if none is given). Out: lines of progress, and at last counts; exit code 1
after a violation. Always: only kills that happened are counted; what is left is compared with a run without them, byte for
byte, but after take-overs, where views are compared with what their rows say.
"""

from __future__ import annotations

import argparse
import itertools
import os
import random
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import viewkeeper as vk
from tests.support.dump import dump
from tests.support.kill_lab import HereRunner, prepare
from tests.support.killing import Laboratory, each_point_once, pairs
from tests.support.source_tree import ROOT
from viewkeeper import failpoints
from viewkeeper.coordinator.coordinator import Coordinator
from viewkeeper.settings import EpochLimits

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

WORLDS = tuple(itertools.product(("single", "joined", "stopped"), ("images", "plain")))
PAIRS = 12  # in each world of the laboratory
FROM_ONE_STORE = 20  # kills of workers or drivers
EXECUTORS_AT_ONCE = 5  # kills in one cluster
TAKEOVERS_AT_ONCE = 25
DRIVER_POINTS = (
    *("begin.planned", "begin.swapped", "run.synced", "run.fenced", "run.receipts"),
    *("commit.synced", "commit.swapped", "commit.done"),
)
IN_A_JOB = "in a job"
TOLD_EVERY = 10
SECONDS_MAX = 600  # a bound for a broken run
MEMORY_DISK = Path("/dev/shm")  # where there is one, stores cost no disk


@dataclass(slots=True)
class Tally:
    """What happened so far."""

    what: str
    goal: int
    seed: int
    began: float = field(default_factory=time.monotonic)
    kills: Counter[str] = field(default_factory=Counter)
    violations: list[str] = field(default_factory=list)

    @property
    def is_enough(self) -> bool:
        return self.kills.total() >= self.goal

    def took(self, points: list[str], *, same: bool, where: str) -> None:
        before = self.kills.total()
        self.kills.update(points)
        if before // TOLD_EVERY < self.kills.total() // TOLD_EVERY:
            print(self.text(), flush=True)
        if not same:
            self.violations.append(where)
            print(f"VIOLATION: {where}", flush=True)

    def text(self) -> str:
        count, seconds = self.kills.total(), time.monotonic() - self.began
        used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
        busy = sum(one.ru_utime + one.ru_stime for one in used)  # of processes that have ended
        each = max(1, count)
        return (
            f"{self.what}: {count} kills at {len(self.kills)} places in {seconds:.0f} s, {seconds / each:.2f} s each,"
            f" {busy / each:.2f} s of a core, from seed {self.seed}; violations: {len(self.violations)}"
        )


def kill_pipelines(tally: Tally, folder: Path) -> None:
    for number in itertools.count():
        seed, (views, log) = tally.seed + number, WORLDS[number % len(WORLDS)]
        root, source = folder / f"{number}", random.Random(tally.seed + number)
        root.mkdir()
        with Laboratory(root, seed, log, views) as lab:
            for result in lab.kill(each_point_once(lab.hits, source) + pairs(lab.hits, source, count=PAIRS)):
                where = f"seed {seed}, {log}, {views}: {result['schedule']}"
                tally.took(result["fired"], same=result["same"], where=where)
                if tally.is_enough:
                    return
        shutil.rmtree(root)


def kill_workers(tally: Tally, folder: Path) -> None:
    from tests.spark.test_worker_kills import CASES, WORLDS, run_on_spark
    from tests.support.spark_local import start_local

    points, source = folder / "points", random.Random(tally.seed)
    points.mkdir()
    spark = start_local(points, folder / "warehouse")
    for number in itertools.count():
        seed, (world, (log, views)) = tally.seed + number, source.choice(list(WORLDS.items()))
        path = folder / f"{number}"
        prepare(path, seed, log, views)
        expected = run_on_spark(_copy(path, "reference"), spark)
        for _ in range(FROM_ONE_STORE):
            point, hit = source.choice([point for case, point in CASES if case == world]), source.randint(1, 4)
            (points / f"{point}.hits").unlink(missing_ok=True)
            (points / f"{point}.armed").write_text(str(hit))
            found = run_on_spark(_copy(path, "killed"), spark)
            fired = (points / f"{point}.fired").exists()
            for ending in ("armed", "fired"):
                (points / f"{point}.{ending}").unlink(missing_ok=True)
            where = f"seed {seed}, {log}, {views}: {point}@{hit}"
            tally.took([point] if fired else [], same=found == expected, where=where)
            if tally.is_enough:
                return spark.stop()


def kill_executors(tally: Tally, folder: Path) -> None:
    from tests.spark.test_executor_kills import KILLS
    from tests.spark.test_executor_kills import kill_executors as kill

    names, source = [kill.split("@")[0] for kill in KILLS], random.Random(tally.seed)
    for number in itertools.count():
        root, seed = folder / f"{number}", tally.seed + number
        root.mkdir()
        os.environ["VIEWKEEPER_LAB_SEED"] = str(seed)
        chosen = [f"{source.choice(names)}@{source.randint(1, 3)}" for _ in range(min(EXECUTORS_AT_ONCE, tally.goal))]
        for result in kill(root, 4, *chosen):
            fired = [result["kill"].split("@")[0]] if result["fired"] else []
            tally.took(fired, same=result["same"], where=f"seed {seed}: {result['kill']}")
        shutil.rmtree(root)
        if tally.is_enough:
            return


def kill_drivers(tally: Tally, folder: Path) -> None:
    from tests.spark.test_worker_kills import CHANGES_PER_EPOCH

    limits, source = EpochLimits(changes=CHANGES_PER_EPOCH), random.Random(tally.seed)
    for number in itertools.count():
        views, log = WORLDS[number % 4]  # without those that need another runner
        path, seed = folder / f"{number}", tally.seed + number
        prepare(path, seed, log, views)
        expected = _finish(_copy(path, "reference"), limits)
        for _ in range(FROM_ONE_STORE):
            place = source.choice((IN_A_JOB, source.choice(DRIVER_POINTS)))
            store = _copy(path, "killed")
            was_killed = _kill_driver(store, folder / "points", place, source.randint(1, 2))
            same = _finish(store, limits) == expected
            tally.took([place] if was_killed else [], same=same, where=f"seed {seed}, {log}, {views}: {place}")
            if tally.is_enough:
                return


def _kill_driver(store: Path, points: Path, place: str, hit: int) -> bool:
    """Let another process run the epochs on Spark, and have it killed; whether it was before it had finished."""
    shutil.rmtree(points, ignore_errors=True)
    for name in ("driver", "workers"):
        (points / name).mkdir(parents=True)
    if place != IN_A_JOB:
        (points / "driver" / f"{place}.armed").write_text(str(hit))
    driver = subprocess.Popen([sys.executable, "-m", __spec__.name, "drive", str(store), str(points)], cwd=ROOT)
    until, hits = time.monotonic() + SECONDS_MAX, points / "workers" / "apply.computed.hits"
    while driver.poll() is None and time.monotonic() < until:
        if place == IN_A_JOB and hits.exists() and hits.stat().st_size >= hit:
            driver.kill()
        time.sleep(0.01)
    if driver.poll() is None:
        driver.kill()
        raise RuntimeError(f"a driver did not end: {place}@{hit}")
    if driver.returncode not in (0, -signal.SIGKILL):
        raise RuntimeError(f"a driver ended with {driver.returncode}")
    return driver.returncode == -signal.SIGKILL


def drive(store: Path, points: Path) -> None:
    """What a driver does: all epochs as jobs of a Spark of its own."""
    from tests.spark.test_worker_kills import run_on_spark
    from tests.support.spark_local import start_local

    spark: SparkSession = start_local(points / "workers", points / "warehouse")
    failpoints.hook(failpoints.killing(points / "driver"))
    run_on_spark(store, spark)


def take_over(tally: Tally, folder: Path) -> None:
    from tests.sim.test_standby import CASES, stop_and_take_over
    from tests.support.standby_lab import Worker, killed_at_last
    from tests.support.stores import make_database, rounds, write, wrong_views

    for number in itertools.count():
        seed, before = tally.seed + number, tally.kills.total()
        db, source, done = make_database(folder / f"{number}", nodes=2, cases=CASES), random.Random(seed), []
        url = f"{db.url}&busy_timeout=0.3"
        with killed_at_last(Worker(url), Worker(url)) as workers:
            for part in rounds(seed, 4 * TAKEOVERS_AT_ONCE, histories=1):
                if tally.is_enough or tally.kills.total() == before + TAKEOVERS_AT_ONCE:
                    break
                write(db, part)
                done += part
                took = stop_and_take_over(db, workers, source.randrange(4))
                tally.took([] if took is None else ["stopped"], same=True, where="")
        tally.took([], same=wrong_views(db, done) == [], where=f"seed {seed}: {wrong_views(db, done)}")
        db.close()
        if tally.is_enough:
            return


def _finish(path: Path, limits: EpochLimits) -> list[tuple[int, bytes, bytes]]:
    """What a pipeline here makes of what is there."""
    with vk.connect(f"embedded:{path}?sync=off") as db:
        Coordinator(db.store, HereRunner(db.store), limits=limits).catch_up()
        return dump(db.store)


def _copy(path: Path, name: str) -> Path:
    target = path.with_name(f"{path.name}-{name}")
    shutil.rmtree(target, ignore_errors=True)
    return Path(shutil.copytree(path, target))


KINDS: dict[str, Callable[[Tally, Path], None]] = {
    "pipeline": kill_pipelines,
    "workers": kill_workers,
    "executors": kill_executors,
    "drivers": kill_drivers,
    "takeovers": take_over,
}


def main() -> int:
    if sys.argv[1:2] == ["drive"]:
        drive(Path(sys.argv[2]), Path(sys.argv[3]))
        return 0
    parser = argparse.ArgumentParser(prog="python -m tests.support.kills")
    parser.add_argument("what", choices=list(KINDS))
    parser.add_argument("--count", type=int, default=100)
    parser.add_argument("--seed", type=int, default=None)
    given = parser.parse_args()
    seed = random.SystemRandom().randrange(10**6) if given.seed is None else given.seed
    tally = Tally(given.what, given.count, seed)
    with tempfile.TemporaryDirectory(dir=MEMORY_DISK if MEMORY_DISK.is_dir() else None) as folder:
        KINDS[given.what](tally, Path(folder))
    print(f"{tally.text()}\n{dict(tally.kills.most_common())}")
    return 1 if tally.violations else 0


if __name__ == "__main__":
    sys.exit(main())
