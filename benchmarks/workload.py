"""The workload: a table of rows, then changes to it, the same for every system that is measured.

In: sizes, a distribution and a seed. Out: an embedded store whose views are filled and whose log holds the changes.
Always: of the changes 80 % are updates of both columns, 10 % deletes and 10 % inserts, mixed over the whole run; the
first half is written by `put_many` of 1,000 rows, the second by large Arrow tables; the same seed writes the same changes.

Three distributions. `uniform`: every row is as likely to be updated as any other. `zipf`: updates pick rows by zipf(1.1)
rank, the oldest row that is there having rank 1; deletes and all values stay uniform, so rows are hot and groups are not.
`hot_groups`: as `zipf`, and the values of x are drawn by zipf(1.1) rank too, so groups are hot as well.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

import viewkeeper as vk
from viewkeeper.coordinator.coordinator import Coordinator
from viewkeeper.model.epochs import Inflight
from viewkeeper.model.keybatches import encode_keys
from viewkeeper.model.positions import Stream
from viewkeeper.model.stored_rows import RowWrites
from viewkeeper.model.work_stats import Counts
from viewkeeper.operators.program import run_in_process
from viewkeeper.plan.physical import PhysicalPlan
from viewkeeper.stores.kv.atomic_directory import sync_tree

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from viewkeeper.client.database import Database
    from viewkeeper.stores.local.embedded_store import EmbeddedStore

TABLE = "CREATE TABLE r (k STRING PRIMARY KEY, x INT, y INT)"
X_MAX, Y_MAX = 10_000, 1_000
SMALL_ROWS, LARGE_ROWS = 1_000, 90_000  # of one put_many, in the first and in the second half
DISTRIBUTIONS = ("uniform", "zipf", "hot_groups")
ZIPF = 1.1
PUTS_PER_DELETE = 9  # rows put for each row deleted; of nine puts eight are updates and one is an insert


@dataclass(frozen=True, slots=True)
class Workload:
    """How much is written, and from which seed."""

    rows: int = 1_000_000
    changes: int = 1_000_000
    seed: int = 20_240_607
    distribution: str = "uniform"
    x_max: int = X_MAX

    def __post_init__(self) -> None:
        if self.distribution not in DISTRIBUTIONS:
            raise ValueError(f"{self.distribution} is none of {', '.join(DISTRIBUTIONS)}")


@dataclass(frozen=True, slots=True)
class Step:
    """Rows that are put together, then rows that are deleted together; numbers stand for keys."""

    puts: np.ndarray
    x: np.ndarray
    y: np.ndarray
    deletes: np.ndarray


class _LiveRows:
    """The numbers of the rows that are there."""

    def __init__(self, rows: int, changes: int) -> None:
        self._numbers = np.arange(rows + changes)
        self._count, self._next = rows, rows

    def pick(self, random: np.random.Generator, count: int, *, skewed: bool) -> np.ndarray:
        places = draw_ranks(random, self._count, count) if skewed else random.integers(0, self._count, count)
        return self._numbers[places]

    def add(self, count: int) -> np.ndarray:
        new = np.arange(self._next, self._next + count)
        self._numbers[self._count : self._count + count] = new
        self._next += count
        self._count += count
        return new

    def remove(self, random: np.random.Generator, count: int) -> np.ndarray:
        places = random.choice(self._count, count, replace=False)
        gone = self._numbers[places].copy()
        left = np.delete(self._numbers[: self._count], places)
        self._count -= count
        self._numbers[: self._count] = left
        return gone


def draw_ranks(random: np.random.Generator, ranks: int, count: int) -> np.ndarray:
    """`count` numbers below `ranks`, the number r with a weight of (r + 1) ** -1.1."""
    return np.searchsorted(_shares(ranks), random.random(count), side="right")


@lru_cache(maxsize=4)
def _shares(ranks: int) -> np.ndarray:
    """The share of all draws that the first ranks have together."""
    weights = np.cumsum(np.arange(1, ranks + 1, dtype=np.float64) ** -ZIPF)
    shares = weights / weights[-1]
    shares[-1] = 1.0  # so that no draw falls behind the last rank
    return shares


def steps(workload: Workload, *, small_rows: int = SMALL_ROWS, large_rows: int = LARGE_ROWS) -> Iterator[Step]:
    """The changes, a step at a time."""
    random = np.random.default_rng(workload.seed + 1)
    live = _LiveRows(workload.rows, workload.changes)
    done, half = 0, workload.changes // 2
    while done < workload.changes:
        rows = small_rows if done < half else large_rows
        stop = half if done < half else workload.changes
        size = min(rows + rows // PUTS_PER_DELETE, stop - done)
        deletes = size // (PUTS_PER_DELETE + 1)
        inserts = deletes
        updated = live.pick(random, size - inserts - deletes, skewed=workload.distribution != "uniform")
        puts = random.permutation(np.concatenate([updated, live.add(inserts)]))
        x, y = _values(random, len(puts), workload)
        yield Step(puts, x, y, live.remove(random, deletes))
        done += size


def first_rows(workload: Workload) -> pa.Table:
    """The rows (k, x, y) that are there before the changes."""
    random = np.random.default_rng(workload.seed)
    return rows_of(np.arange(workload.rows), *_values(random, workload.rows, workload))


def prepare(
    url: str, workload: Workload, views: Sequence[str], fill: Callable[[Database], object], *, changes: bool = True
) -> int:
    """A store at `url`: rows loaded, `views` filled by `fill`, the changes waiting in the log; returns how many wait."""
    with vk.connect(url) as db:
        db.execute(TABLE)
        db.table("r").put_many(first_rows(workload))
        for number, sql in enumerate(views, 1):
            db.execute(f"CREATE MATERIALIZED VIEW v{number} AS {sql}")
        fill(db)
        filled = db.store.ends()[Stream("0")]
        if changes:
            for step in steps(workload):
                write_step(db, step)
        return db.store.ends()[Stream("0")] - filled


def write_step(db: Database, step: Step) -> None:
    """The rows that are put together, then those that are deleted together."""
    db.table("r").put_many(rows_of(step.puts, step.x, step.y))
    delete_keys(db, "r", [_keys(step.deletes)])


def fill_on_spark(spark: SparkSession) -> Callable[[Database], object]:
    """Fills all views by the pipeline."""

    def fill(db: Database) -> None:
        with db.pipeline(spark=spark) as pipeline:
            pipeline.run_available()

    return fill


def fill_here(db: Database) -> None:
    """Fills all views in this process, without Spark."""
    coordinator = Coordinator(db.store, HereRunner(db.store))
    coordinator.catch_up()
    coordinator.close()


class HereRunner:
    """The epoch on the driver, whatever its size."""

    def __init__(self, store: EmbeddedStore) -> None:
        self._store = store

    def run(self, plan: PhysicalPlan, epoch: Inflight) -> Counts:
        return run_in_process(self._store, plan, epoch)


def copy_store(source: Path, target: Path) -> Path:
    """A store of its own in the same state, on disk: no sync of who is measured has to write the copy's pages."""
    shutil.rmtree(target, ignore_errors=True)
    ignored = shutil.ignore_patterns("lock.mdb", "pipeline.lock")
    shutil.copytree(source, target, ignore=ignored)
    sync_tree(target)
    return target


def _values(random: np.random.Generator, count: int, workload: Workload) -> tuple[np.ndarray, np.ndarray]:
    skewed, x_max = workload.distribution == "hot_groups", workload.x_max
    x = draw_ranks(random, x_max, count).astype(np.int32) if skewed else random.integers(0, x_max, count, np.int32)
    return x, random.integers(0, Y_MAX, count, np.int32)


def _keys(numbers: np.ndarray) -> pa.Array:
    return pa.array([f"k{number:09d}" for number in numbers.tolist()], pa.string())


def rows_of(numbers: np.ndarray, x: np.ndarray, y: np.ndarray) -> pa.Table:
    """Rows (k, x, y) of the keys that the numbers stand for."""
    return pa.table({"k": _keys(numbers), "x": pa.array(x), "y": pa.array(y)})


def delete_keys(db: Database, table: str, columns: Sequence[pa.Array]) -> None:
    """Delete rows in one transaction for each 1,000; the client has no bulk delete, so the store is asked itself."""
    schema = db.table(table).schema
    for start in range(0, len(columns[0]), SMALL_ROWS):
        part = [column[start : start + SMALL_ROWS] for column in columns]
        keys, _ = encode_keys(schema.key_columns, part, len(part[0]))
        group = RowWrites(schema.id, keys.to_pylist(), lambda befores: [None] * len(befores))
        db.store.write([group])
