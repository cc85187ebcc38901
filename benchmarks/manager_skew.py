"""Manager skew: how uneven is the work of four view managers when most changes are under one first key part?

In: sizes. Out: for each kind of view, the rows and the CPU seconds of the busiest manager in parts of the mean, in an epoch
whose shards are whole and in one in which the hot ones are divided, by what the first has measured. Always: `--hot-share` of
the changes are under one first key part; all tasks run in this process, one after the other, so that a busy machine changes
no share; both epochs have as many changes; the view is compared with DuckDB's recomputation after each.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import numpy as np
import pyarrow as pa

import viewkeeper as vk
from benchmarks.options import Options
from benchmarks.recompute import base_rows, require_equal
from benchmarks.workload import fill_here
from viewkeeper.coordinator.coordinator import Coordinator
from viewkeeper.coordinator.view_managers import Balance, owners_of_shards
from viewkeeper.model.epochs import Inflight
from viewkeeper.model.work_stats import Counts
from viewkeeper.operators.program import EpochProgram, InProcess
from viewkeeper.operators.receipts import Receipt, require_all, rows_of_all
from viewkeeper.plan.physical import PhysicalPlan
from viewkeeper.ports.store import Store
from viewkeeper.settings import WorkSettings

MANAGERS, HOT, PARTS = 4, 7, 1_000
TABLES = (
    "CREATE TABLE t (a INT, b INT, g INT, y INT, PRIMARY KEY (a, b));"
    "CREATE TABLE u (a INT, g INT, z INT, PRIMARY KEY (a, g)); CREATE TABLE w (a INT PRIMARY KEY, z INT)"
)
VIEWS = {
    "copy": "SELECT a, b, g, y FROM t",
    "sums by a": "SELECT a, COUNT(*) AS n, SUM(y) AS s FROM t GROUP BY a",
    "sums by a, g": "SELECT a, g, COUNT(*) AS n, SUM(y) AS s FROM t GROUP BY a, g",
    "min, max by a": "SELECT a, MIN(y) AS lo, MAX(y) AS hi FROM t GROUP BY a",
    "min, max by a, g": "SELECT a, g, MIN(y) AS lo, MAX(y) AS hi FROM t GROUP BY a, g",
    "join by a, g": "SELECT t.a, t.b, t.y, u.z FROM t JOIN u ON t.a = u.a AND t.g = u.g",
    "join by a": "SELECT t.a, t.b, t.y, w.z FROM t JOIN w ON t.a = w.a",
}


def measure(options: Options) -> dict[str, object]:
    return {
        "rows": options.live_rows,
        "seed": options.seed,
        "view_managers": MANAGERS,
        "hot_share": options.hot_share,
        "views": {name: _shares(sql, options) for name, sql in VIEWS.items()},
    }


def tell(figures: Mapping) -> Iterator[str]:
    yield f"{figures['hot_share']:.0%} of the changes under one first key part; the busiest of {MANAGERS} managers / the mean"
    for name, found in figures["views"].items():
        whole, divided = found["whole"], found["divided"]
        rows = f"rows {whole['rows']:5.2f} → {divided['rows']:5.2f}"
        yield f"  {name:17} {rows}   CPU {whole['cpu']:5.2f} → {divided['cpu']:5.2f}   shards divided: {divided['shards']}"


def _shares(sql: str, options: Options) -> dict[str, dict[str, float]]:
    random, found = np.random.default_rng(options.seed), {}
    with tempfile.TemporaryDirectory(prefix="viewkeeper-bench-") as folder:
        url = f"embedded:{Path(folder) / 'store'}?sync=off"
        with vk.connect(url) as db:
            db.execute(f"{TABLES}; CREATE MATERIALIZED VIEW v AS {sql}")
            write = _writer(db, options, random)
            write()
            fill_here(db)
            runner = SkewRunner(db.store)
            for state in ("whole", "divided"):
                write()
                Coordinator(db.store, runner).catch_up()
                found[state] = runner.shares()
        with vk.connect(url) as db:
            require_equal(base_rows(url), sql, db.view("v").to_arrow(), "in parts")
    return found


def _writer(db: vk.Database, options: Options, random: np.random.Generator) -> Callable[[], None]:
    """Writes all rows of t anew, with each call; the side tables are filled here."""
    count = options.live_rows
    is_hot = random.random(count) < options.hot_share
    a = np.where(is_hot, HOT, random.integers(0, PARTS, count)).astype(np.int32)
    b, g = np.arange(count, dtype=np.int32), (np.arange(count) % (PARTS * 5)).astype(np.int32)
    db.table("u").put_many(pa.table({"a": a, "g": g, "z": b}))
    db.table("w").put_many(pa.table({"a": np.arange(PARTS, dtype=np.int32), "z": np.arange(PARTS, dtype=np.int32)}))

    def write() -> None:
        y = random.integers(0, 1_000_000, count, np.int32)
        db.table("t").put_many(pa.table({"a": a, "b": b, "g": g, "y": y}))

    return write


class SkewRunner:
    """Epochs by several managers, in this process, balanced by what was measured in the epoch before."""

    def __init__(self, store: Store) -> None:
        self._store, self._balance = store, Balance()
        self._owners = owners_of_shards(store.partitions, MANAGERS)
        self._divided: frozenset[int] = frozenset()
        self._receipts: list[Receipt] = []

    def run(self, plan: PhysicalPlan, epoch: Inflight) -> Counts:
        self._divided = self._balance.divided(self._owners)
        program = EpochProgram.of(self._store, plan, epoch, self._owners, WorkSettings(), divided=self._divided)
        got = list(InProcess(self._store).run(program))
        self._receipts = [one for one in got if isinstance(one, Receipt)]
        self._balance = self._balance.after(len(self._owners), rows_of_all(got))
        return require_all(program.tasks, got)

    def shares(self) -> dict[str, float]:
        """Of the last epoch, what the busiest manager had in parts of the mean."""
        rows, cpu = np.zeros(MANAGERS), np.zeros(MANAGERS)
        for receipt in self._receipts:
            if receipt.task.stage:
                rows[receipt.task.number] += sum(receipt.rows.values())
                cpu[receipt.task.number] += receipt.counts.apply_seconds
        return {
            "rows": round(float(rows.max() / rows.mean()), 2),
            "cpu": round(float(cpu.max() / cpu.mean()), 2),
            "cpu_seconds": round(float(cpu.sum()), 3),
            "shards": len(self._divided),
        }
