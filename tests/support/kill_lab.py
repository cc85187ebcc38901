"""The kill laboratory: kills a pipeline at named points, again and again, and compares what is left.

Run as a program in a process of its own: it imports everything, opens nothing, and forks a child for each attempt, so that
an attempt costs no start-up. In: a directory, and lines `point@hit[+point@hit…]` on standard input. Out: for each line a
JSON object with the kills that happened and whether the dump equals that of the run without kills.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import sys
import traceback
from decimal import Decimal
from pathlib import Path

import viewkeeper as vk
from tests.support.dump import dump
from tests.support.planting import change_stored, stored_records
from viewkeeper import failpoints
from viewkeeper.catalog.catalog import Catalog
from viewkeeper.coordinator.coordinator import Coordinator
from viewkeeper.coordinator.gc import collect_garbage
from viewkeeper.errors import ViewFailed
from viewkeeper.model.epochs import Inflight
from viewkeeper.model.work_stats import Counts
from viewkeeper.operators.program import run_in_process
from viewkeeper.plan.physical import PhysicalPlan
from viewkeeper.plan.replacements import with_shadow_views
from viewkeeper.settings import EpochLimits

CHANGES = {"single": 200, "joined": 60, "repair": 40, "stopped": 40}
CHANGES_PER_EPOCH = {"single": 50, "joined": 30, "repair": 50, "stopped": 15}
ROWS_PER_EPOCH = {"single": 18, "joined": 30, "repair": 20, "stopped": 20}
ATTEMPTS_MAX = 20
TABLES = """
CREATE TABLE r (k STRING, part INT, x INT, y INT, d DECIMAL(12,2), PRIMARY KEY (k, part));
CREATE TABLE s (k STRING, part INT, x INT, y INT, d DECIMAL(12,2), PRIMARY KEY (k, part));
CREATE TABLE gone (k STRING PRIMARY KEY, v INT);
CREATE MATERIALIZED VIEW dropped AS SELECT v, COUNT(*) AS n FROM gone GROUP BY v;
"""
# One over single tables, one over joins, set operations and nested queries; `late` is created when rows are there.
VIEWS = {
    "single": """
CREATE MATERIALIZED VIEW sums AS SELECT x, COUNT(*) AS n, SUM(y) AS s, AVG(d) AS a FROM r GROUP BY x;
CREATE MATERIALIZED VIEW total AS SELECT COUNT(*) AS n, SUM(y) AS s FROM r;
CREATE MATERIALIZED VIEW low AS SELECT k, part, y FROM r WHERE y < 50;
CREATE INDEX by_x ON r (x) INCLUDE (y);
CREATE MATERIALIZED VIEW ends AS SELECT x, MIN(y) AS lo, MAX(k) AS hi, COUNT(DISTINCT part) AS n FROM r GROUP BY x;
CREATE MATERIALIZED VIEW shown AS SELECT x, SUM(CAST(d AS DOUBLE)) AS s FROM r GROUP BY x HAVING COUNT(*) > 3
""",
    "joined": """
CREATE MATERIALIZED VIEW pairs AS SELECT r.k, r.part, s.k AS sk, s.y FROM r JOIN s ON r.x = s.x AND r.y < s.y;
CREATE MATERIALIZED VIEW kept AS SELECT r.k, r.part, s.y FROM r LEFT JOIN s ON r.x = s.x AND s.y > r.y;
CREATE MATERIALIZED VIEW full_sums AS
    SELECT s.x, COUNT(*) AS n, MIN(r.y) AS lo FROM r FULL JOIN s ON r.x = s.x GROUP BY s.x;
CREATE MATERIALIZED VIEW lone AS SELECT k, part FROM r WHERE x NOT IN (SELECT x FROM s WHERE y > 20);
CREATE MATERIALIZED VIEW both AS SELECT x FROM r INTERSECT SELECT x FROM s;
CREATE MATERIALIZED VIEW first_rows AS
    SELECT x, n FROM (SELECT x, COUNT(*) AS n FROM r GROUP BY x) ORDER BY n DESC, x LIMIT 3;
CREATE MATERIALIZED VIEW replaced AS SELECT x FROM r UNION ALL SELECT x FROM s
""",
}
LATE = {
    "single": "CREATE MATERIALIZED VIEW late AS SELECT y % 5 AS m, COUNT(*) AS n, MIN(x) AS lo FROM r GROUP BY 1",
    "joined": """
CREATE MATERIALIZED VIEW late AS SELECT g.n, COUNT(*) AS c
    FROM (SELECT x, COUNT(*) AS n FROM r GROUP BY x) g JOIN s ON g.x = s.x GROUP BY g.n;
CREATE OR REPLACE MATERIALIZED VIEW replaced AS SELECT x, COUNT(*) AS n FROM s GROUP BY x
""",
}
VIEWS["repair"] = """
CREATE MATERIALIZED VIEW sums AS SELECT x, COUNT(*) AS n, SUM(y) AS s, MIN(y) AS lo FROM r GROUP BY x;
CREATE MATERIALIZED VIEW pairs AS SELECT r.k, r.part, s.y FROM r LEFT JOIN s ON r.x = s.x
"""
LATE["repair"] = "CREATE INDEX by_x ON r (x)"
VIEWS["stopped"] = """
CREATE MATERIALIZED VIEW sums AS SELECT x, COUNT(*) AS n, SUM(y) AS s, MIN(y) AS lo FROM r GROUP BY x;
CREATE MATERIALIZED VIEW bad AS SELECT k, part, y FROM r WHERE y < 50
"""
LATE["stopped"] = "CREATE INDEX by_x ON r (x)"


class HereRunner:
    """Runs an epoch in this process."""

    def __init__(self, store: object) -> None:
        self._store = store

    def run(self, plan: PhysicalPlan, epoch: Inflight) -> Counts:
        return run_in_process(self._store, plan, epoch)


class FailingRunner(HereRunner):
    """The same, but the work of the view `bad` fails, so that its epoch is aborted and goes on without it."""

    def run(self, plan: PhysicalPlan, epoch: Inflight) -> Counts:
        bad = Catalog.from_json(self._store.read_catalog()).view("bad").node.table
        if any(node.table == bad for node in plan.nodes):
            raise ViewFailed(bad, "planted")
        return super().run(plan, epoch)


def prepare(path: Path, seed: int, log: str, views: str) -> None:
    """A store with views, a first committed epoch, and changes that wait: few keys, many deletes and group moves."""
    random_source = random.Random(seed)
    database = vk.connect(f"embedded:{path}?sync=off&before_images={'on' if log == 'images' else 'off'}")
    database.execute(TABLES + VIEWS[views])
    database.table("gone").put("a", {"v": 1})
    Coordinator(database.store, HereRunner(database.store)).catch_up()
    database.execute("DROP MATERIALIZED VIEW dropped")
    for number in range(CHANGES[views]):
        if number == CHANGES[views] // 2:  # to be filled from the rows that are there, in several chunks
            database.execute(LATE[views])
        table = database.table("s" if views == "joined" and random_source.random() < 0.4 else "r")
        key = (f"k{random_source.randrange(25)}", random_source.randrange(2))
        if random_source.random() < 0.35:
            table.delete(*key)
        else:
            amount = Decimal(random_source.randrange(10_000)).scaleb(-2)
            x = random_source.choice([None, *range(6)])
            table.put(*key, {"x": x, "y": random_source.randrange(100), "d": amount})
    if views == "repair":
        Coordinator(database.store, HereRunner(database.store)).catch_up()
        plant_errors(database, random_source)
        names = [view.name for view in database.catalog().views]
        database.change_catalog(lambda catalog: with_shadow_views(catalog, names, "repair", database.epoch)[0])


def plant_errors(database: vk.Database, source: random.Random) -> None:
    """In every table of the views: a record with the row of another, and one that is missing."""
    for table in [table for node in database.catalog().nodes for table in node.tables]:
        records = stored_records(database, table)
        if len(records) > 2:
            (_, _, other), (partition, key, _), gone = source.sample(records, 3)
            change_stored(database, table, partition, key, other)
            change_stored(database, table, *gone[:2], None)


def run_pipeline(path: Path, views: str) -> None:
    """What a pipeline process does: take over, catch up in small epochs, tidy up after each."""
    database = vk.connect(f"embedded:{path}?sync=off")
    coordinator = Coordinator(
        database.store,
        (FailingRunner if views == "stopped" else HereRunner)(database.store),
        limits=EpochLimits(changes=CHANGES_PER_EPOCH[views], rows=ROWS_PER_EPOCH[views]),
    )
    while coordinator.step() is not None:
        collect_garbage(database.store)
    collect_garbage(database.store)  # what a process that died after its last epoch left


def in_child(work: object, *arguments: object) -> int:
    """Run in a forked child; answers 0, or the signal that killed it."""
    pid = os.fork()
    if pid == 0:
        try:
            work(*arguments)
        except BaseException:
            traceback.print_exc()
            os._exit(99)
        os._exit(0)
    status = os.waitpid(pid, 0)[1]
    if os.WIFSIGNALED(status):
        return os.WTERMSIG(status)
    if os.WEXITSTATUS(status):
        raise RuntimeError(f"a child failed with exit code {os.WEXITSTATUS(status)}")
    return 0


def write_dump(path: Path, target: Path) -> None:
    database = vk.connect(f"embedded:{path}?sync=off")
    record = database.store.read_epoch_record()
    state = {
        "committed": record.committed,
        "filled": sorted(record.filled.items()),
        "inflight": record.inflight is None,
    }
    lines = [f"{table} {key.hex()} {chain.hex()}" for table, key, chain in dump(database.store)]
    target.write_text("\n".join([json.dumps(state), *lines]))


def arm(folder: Path, schedule: str) -> None:
    folder.mkdir()
    for item in schedule.split("+"):
        point, hit = item.split("@")
        (folder / f"{point}.armed").write_text(hit)


def run_schedule(root: Path, prepared: Path, number: int, schedule: str, views: str) -> Path:
    """Run a copy of the prepared store under a schedule of kills; returns where the hits were counted."""
    store, folder = root / f"store-{number}", root / f"points-{number}"
    shutil.copytree(prepared, store)
    arm(folder, schedule) if schedule else folder.mkdir()
    failpoints.hook(failpoints.killing(folder))
    for _ in range(ATTEMPTS_MAX):
        died_of = in_child(run_pipeline, store, views)
        if died_of == 0:
            break
        if died_of != signal.SIGKILL:
            raise RuntimeError(f"a child died of signal {died_of}")
    else:
        raise RuntimeError(f"{schedule}: no end after {ATTEMPTS_MAX} attempts")
    failpoints.hook(None)
    in_child(write_dump, store, root / f"dump-{number}")
    shutil.rmtree(store)
    return folder


def main(root: Path, seed: int, log: str, views: str) -> None:
    prepared = root / "prepared"
    in_child(prepare, prepared, seed, log, views)
    points = run_schedule(root, prepared, 0, "", views)
    hits = {file.stem: file.stat().st_size for file in sorted(points.glob("*.hits"))}
    print(json.dumps({"reference": True, "hits": hits}), flush=True)
    expected = (root / "dump-0").read_text()
    for number, line in enumerate(sys.stdin, 1):
        folder = run_schedule(root, prepared, number, line.strip(), views)
        same = (root / f"dump-{number}").read_text() == expected
        fired = sorted(file.stem for file in folder.glob("*.fired"))
        print(json.dumps({"schedule": line.strip(), "fired": fired, "same": same}), flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3], sys.argv[4])
