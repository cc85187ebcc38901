"""The workload: a table of rows, then changes to it, the same for every system that is measured.

In: sizes and a seed. Out: an embedded store whose view is filled and whose log holds the changes. Always: of the
changes 80 % are updates of both columns, 10 % deletes and 10 % inserts, mixed over the whole run; the first half is
written by `put_many` of 1,000 rows, the second by large Arrow tables; the same seed writes the same changes.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

import viewkeeper as vk
from viewkeeper.model.keybatches import encode_keys
from viewkeeper.model.positions import Stream
from viewkeeper.model.writes import RowWrites

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from viewkeeper.client.database import Database

TABLE = "CREATE TABLE r (k STRING PRIMARY KEY, x INT, y INT)"
V1 = "SELECT x, COUNT(*) AS n, SUM(y) AS s FROM r GROUP BY x"
X_MAX, Y_MAX = 10_000, 1_000
SMALL_ROWS, LARGE_ROWS = 1_000, 90_000  # of one put_many, in the first and in the second half
PUTS_PER_DELETE = 9  # rows put for each row deleted; of nine puts eight are updates and one is an insert


@dataclass(frozen=True, slots=True)
class Workload:
    """How much is written, and from which seed."""

    rows: int = 1_000_000
    changes: int = 1_000_000
    seed: int = 20_240_607


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

    def pick(self, random: np.random.Generator, count: int) -> np.ndarray:
        return self._numbers[random.integers(0, self._count, count)]

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


def steps(workload: Workload) -> Iterator[Step]:
    """The changes, a step at a time."""
    random = np.random.default_rng(workload.seed + 1)
    live = _LiveRows(workload.rows, workload.changes)
    done, half = 0, workload.changes // 2
    while done < workload.changes:
        rows = SMALL_ROWS if done < half else LARGE_ROWS
        stop = half if done < half else workload.changes
        size = min(rows + rows // PUTS_PER_DELETE, stop - done)
        deletes = size // (PUTS_PER_DELETE + 1)
        inserts = deletes
        updated = live.pick(random, size - inserts - deletes)
        puts = random.permutation(np.concatenate([updated, live.add(inserts)]))
        x, y = _values(random, len(puts))
        yield Step(puts, x, y, live.remove(random, deletes))
        done += size


def prepare(path: Path, workload: Workload, spark: SparkSession) -> None:
    """A store at `path`: rows loaded, V1 filled by an epoch of the pipeline, the changes waiting in the log."""
    with vk.connect(f"embedded:{path}") as db:
        db.execute(TABLE)
        random = np.random.default_rng(workload.seed)
        db.table("r").put_many(_arrow(np.arange(workload.rows), *_values(random, workload.rows)))
        db.execute(f"CREATE MATERIALIZED VIEW v1 AS {V1}")
        with db.pipeline(spark=spark) as pipeline:
            pipeline.run_available()
        for step in steps(workload):
            db.table("r").put_many(_arrow(step.puts, step.x, step.y))
            _delete(db, step.deletes)


def copy_store(source: Path, target: Path) -> Path:
    """A store of its own in the same state: running the pipeline on it leaves `source` as it is."""
    shutil.rmtree(target, ignore_errors=True)
    ignored = shutil.ignore_patterns("lock.mdb", "pipeline.lock")
    return Path(shutil.copytree(source, target, ignore=ignored))


def _values(random: np.random.Generator, count: int) -> tuple[np.ndarray, np.ndarray]:
    return random.integers(0, X_MAX, count, np.int32), random.integers(0, Y_MAX, count, np.int32)


def _keys(numbers: np.ndarray) -> pa.Array:
    return pa.array([f"k{number:09d}" for number in numbers.tolist()], pa.string())


def _arrow(numbers: np.ndarray, x: np.ndarray, y: np.ndarray) -> pa.Table:
    return pa.table({"k": _keys(numbers), "x": pa.array(x), "y": pa.array(y)})


def _delete(db: Database, numbers: np.ndarray) -> None:
    """Delete rows in one transaction for each 1,000; the client has no bulk delete, so the store is asked itself."""
    schema = db.table("r").schema
    for start in range(0, len(numbers), SMALL_ROWS):
        part = numbers[start : start + SMALL_ROWS]
        keys, _ = encode_keys(schema.key_columns, [_keys(part)], len(part))
        group = RowWrites(schema.id, keys.to_pylist(), lambda befores: [None] * len(befores))
        db.store.write(Stream(0), [group])
