"""A case over HBase: base tables of its users with rows and changes, and a store with views over them.

In: sizes and views. Out: a store whose views are filled, changes in HBase's logs, timed runs of the pipeline. Always: of
the changes 80 % are updates of both columns, 10 % deletes and 10 % inserts; the views are compared with DuckDB's
recomputation from the base rows that a client reads.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

import viewkeeper as vk
from benchmarks.hbase_site import HBase, keys_of, new_name, values_of
from benchmarks.processes import CpuSeconds, cpu_seconds
from benchmarks.recompute import require_equal
from benchmarks.workload import Step, Workload, steps
from viewkeeper.client.database import Database
from viewkeeper.settings import EngineSettings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

GROUPS = 1_000
Y_MAX = 1_000
STEP_ROWS = 2_000
TURNS = 3
COLUMNS = {"r": {"x": pa.string(), "y": pa.int32()}, "s": {"z": pa.int32()}}
_TYPES = {"r": "k STRING PRIMARY KEY, x STRING, y INT", "s": "k STRING PRIMARY KEY, z INT"}


@dataclass(slots=True)
class Base:
    """The base tables r and s, and the changes that are still to be written to r."""

    hbase: HBase
    workload: Workload
    names: dict[str, str] = field(default_factory=dict)
    steps: Iterator[Step] = field(default_factory=lambda: iter(()))

    def write(self, changes: int) -> int:
        """Write about so many changes; returns how many operations that were."""
        done = 0
        with self.hbase.client() as client:
            while done < changes:
                done += self.hbase.write_step(client, self.names["r"], next(self.steps))
        return done

    def rows(self) -> dict[str, pa.Table]:
        return {name: self.hbase.to_arrow(table, COLUMNS[name]) for name, table in self.names.items()}


@dataclass(frozen=True, slots=True)
class Run:
    """What a run of the pipeline took; `cpu` has the servers of HBase by kind, Python and the JVM of Spark."""

    changes: int
    seconds: float
    epochs: int
    cpu: dict[str, float]

    @property
    def changes_per_second(self) -> int:
        return round(self.changes / self.seconds)


@contextmanager
def base_tables(hbase: HBase, workload: Workload) -> Iterator[Base]:
    """r with the workload's first rows, and s with a row for each group; dropped after the block."""
    base = Base(hbase, workload, {name: new_name(name) for name in COLUMNS})
    random = np.random.default_rng(workload.seed)
    try:
        for table in base.names.values():
            hbase.create(table)
        with hbase.client() as client:
            numbers = np.arange(workload.rows)
            x, y = random.integers(0, workload.x_max, len(numbers)), random.integers(0, Y_MAX, len(numbers))
            hbase.put(client, base.names["r"], hbase.puts(keys_of(numbers), values_of(x, y)))
            groups = values_of(np.arange(workload.x_max), random.integers(0, Y_MAX, workload.x_max))
            hbase.put(client, base.names["s"], hbase.puts(groups["x"], {"z": groups["y"]}))
        base.steps = steps(workload, small_rows=STEP_ROWS, large_rows=STEP_ROWS)
        yield base
    finally:
        hbase.drop(tables=list(base.names.values()))


@contextmanager
def store_over(base: Base, views: Sequence[str]) -> Iterator[Database]:
    """A store with these views (or CREATE INDEX statements), filled; dropped after the block."""
    namespace = new_name("b")
    try:
        with vk.connect(base.hbase.url(namespace)) as db:
            for name in COLUMNS:
                if any(_reads(sql, name) for sql in views):
                    map_table(db, name, base.names[name])
            for number, sql in enumerate(views, 1):
                db.execute(sql if sql.startswith("CREATE") else f"CREATE MATERIALIZED VIEW v{number} AS {sql}")
            run(base, db)
            yield db
    finally:
        base.hbase.drop(namespaces=[namespace])


def _reads(sql: str, name: str) -> bool:
    return any(f"{word} {name}" in sql for word in ("FROM", "JOIN", "ON"))


def run(base: Base, db: Database, changes: int = 0, spark: SparkSession | None = None, managers: int = 1) -> Run:
    """Bring the views up to date: with a session by jobs of so many managers, without one in this process."""
    engine = "driver" if spark is None else "auto"
    settings = EngineSettings(small_work_max=0, meanwhile_work=0)
    with db.pipeline(spark=spark, view_managers=managers, engine=engine, settings=settings) as pipeline:
        servers, ours, began = base.hbase.cpu_seconds(), cpu_seconds(), time.perf_counter()
        epochs = pipeline.run_available()
        seconds = time.perf_counter() - began
        cpu = _used(base.hbase.cpu_seconds(), servers) | _own(cpu_seconds() - ours)
    return Run(changes, seconds, len(epochs), cpu)


def fastest(base: Base, db: Database, changes: int, spark: SparkSession | None = None, managers: int = 1) -> Run:
    """The fastest of some runs, each over so many new changes: whoever else uses the machine can only make them slower."""
    turns = (run(base, db, base.write(changes), spark, managers) for _ in range(TURNS))
    return max(turns, key=lambda ran: ran.changes_per_second)


def _used(now: Mapping[str, float], before: Mapping[str, float]) -> dict[str, float]:
    return {kind: round(now[kind] - before[kind], 3) for kind in now}


def _own(used: CpuSeconds) -> dict[str, float]:
    return {"python": round(used.python, 3), "spark_jvm": round(used.jvm, 3)}


def require_views(base: Base, db: Database, views: Sequence[str], system: str) -> None:
    """Raise unless every view is what its SQL says of the base rows."""
    rows = base.rows()
    for number, sql in enumerate(views, 1):
        if not sql.startswith("CREATE"):
            require_equal(rows, sql, db.view(f"v{number}").to_arrow(), system)


def map_table(db: Database, name: str, table: str) -> None:
    """Map a user's table of HBase."""
    db.execute(f"CREATE TABLE {name} ({_TYPES[name]}) USING hbase OPTIONS (table '{table}')")
