"""The verification laboratory: kills `check`, `repair` and `rebuild` at named points, runs them again, and judges the rest.

Run as a program in a process of its own: it imports everything, opens nothing, and forks a child for each attempt. In: a
directory, and lines `command point@hit[+point@hit…]` on standard input, or `command` alone for a run without kills. Out: for
each line a JSON object: which points killed, how often each was passed, what the independent reader still sees, and what the
last check names. Always: DuckDB stands in for Spark as the judge, so no JVM is needed.
"""

from __future__ import annotations

import json
import random
import shutil
import signal
import sys
import tempfile
from pathlib import Path

import pandas  # noqa: F401 - pyarrow asks for it in every child else

import viewkeeper as vk
from tests.support.damages import DAMAGES
from tests.support.duck_judge import DuckRecompute
from tests.support.kill_lab import ATTEMPTS_MAX, arm, in_child
from tests.support.record_reader import problems
from tests.support.running import keep_up
from viewkeeper import failpoints
from viewkeeper.check import check_views, repairing

VIEWS = {
    "plain": "SELECT k, x FROM t WHERE x > 1",
    "sums": "SELECT g, SUM(x) AS s, MIN(x) AS lo FROM t GROUP BY g",
    "pairs": "SELECT a.k, b.k AS o FROM t a JOIN u b ON a.g = b.g",
}
DAMAGED = {"plain": "missing", "sums": "garbage", "pairs": "copied"}


def opened(path: Path) -> vk.Database:
    db = vk.connect(f"embedded:{path}?sync=off")
    DuckRecompute.database, check_views.SparkRecompute = db, DuckRecompute
    return db


def prepare(path: Path) -> None:
    """Three views, each damaged in a way that another step of a repair puts right, and a wrong DELTA."""
    with vk.connect(f"embedded:{path}?sync=off&before_images=off") as db:
        for name in "tu":
            db.execute(f"CREATE TABLE {name} (k STRING PRIMARY KEY, g STRING, x INT)")
            db.table(name).put_many([{"k": f"k{n}", "g": f"g{n % 3}", "x": n} for n in range(12)])
        db.execute("CREATE TABLE w (k STRING PRIMARY KEY); INSERT INTO w VALUES ('a'), ('b')")
        for name, text in (VIEWS | {"over_delta": "SELECT k FROM w"}).items():
            db.execute(f"CREATE MATERIALIZED VIEW {name} AS {text}")
        keep_up(db)
        catalog = db.catalog()
        for name, kind in DAMAGED.items():
            DAMAGES[kind](db, catalog.view(name).node.table, random.Random(1))
        DAMAGES["missing"](db, catalog.table("w").delta, random.Random(1))


def run(path: Path, command: str) -> None:
    with opened(path) as db:
        if command == "check":
            check_views.check_views(db, None, "no Spark at all")
        elif command == "repair":
            repairing.repair_views(db, None, "no Spark at all")
        else:
            db.rebuild(*VIEWS)


def judge(path: Path, target: Path) -> None:
    with opened(path) as db:
        left = sorted(problems(db))
        named = sorted({found.view for found in check_views.check_views(db, None, "no Spark at all").findings})
        twins = len(db.catalog().replacements)
        db.table("t").put("k1", {"g": "new", "x": 100})
        db.table("t").delete("k2")
        db.table("w").delete("a")
        keep_up(db)
        folders = len(list(Path(tempfile.gettempdir()).glob("viewkeeper-check-*")))
        told = {"folders": folders, "left": left, "named": named, "twins": twins, "later": sorted(problems(db))}
    target.write_text(json.dumps(told))


def try_out(root: Path, number: int, command: str, schedule: str) -> dict[str, object]:
    store, folder = root / f"store-{number}", root / f"points-{number}"
    shutil.copytree(root / "prepared", store)
    arm(folder, schedule) if schedule else folder.mkdir()
    failpoints.hook(failpoints.killing(folder))
    attempts = 1
    while (died_of := in_child(run, store, command)) and attempts < ATTEMPTS_MAX:
        if died_of != signal.SIGKILL:
            raise RuntimeError(f"a child died of signal {died_of}")
        attempts += 1
    failpoints.hook(None)
    in_child(judge, store, root / "told")
    shutil.rmtree(store)
    hits = {file.stem: file.stat().st_size for file in sorted(folder.glob("*.hits"))}
    fired = sorted(file.stem for file in folder.glob("*.fired"))
    return {"fired": fired, "hits": hits} | json.loads((root / "told").read_text())


def main(root: Path) -> None:
    in_child(prepare, root / "prepared")
    for number, line in enumerate(sys.stdin):
        command, _, schedule = line.strip().partition(" ")
        print(json.dumps(try_out(root, number, command, schedule)), flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
