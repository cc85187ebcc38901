"""The workload of a join: W, and a second table S that changes with it.

In: a workload, and how many changes of S there are. Out: an embedded store with both tables, its view filled and all changes
waiting in the log. Always: S has one row for each x; its changes are spread evenly over those of R, 80 % updates of both
columns, 10 % deletes, 10 % rows put back; the same seed writes the same changes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

import viewkeeper as vk
from benchmarks.workload import TABLE, Workload, delete_keys, first_rows, steps, write_step
from viewkeeper.model.positions import Stream

if TYPE_CHECKING:
    from viewkeeper.client.database import Database

SIDE_TABLE = "CREATE TABLE s (x INT PRIMARY KEY, name STRING, z INT)"
Z_MAX = 1_000
_SHARE_DELETED, _SHARE_PUT_BACK = 0.1, 0.1


@dataclass(frozen=True, slots=True)
class SideStep:
    """Rows of S that are put together, then rows that are deleted together."""

    puts: np.ndarray
    z: np.ndarray
    deletes: np.ndarray


def first_side_rows(workload: Workload) -> pa.Table:
    """The rows (x, name, z) that are there before the changes."""
    random = np.random.default_rng(workload.seed + 2)
    return _arrow(np.arange(workload.x_max), random.integers(0, Z_MAX, workload.x_max))


def side_steps(workload: Workload, changes: int, sizes: list[int]) -> Iterator[SideStep]:
    """The changes of S that follow each of R's steps, whose sizes are given: in proportion to them."""
    random = np.random.default_rng(workload.seed + 3)
    is_there = np.ones(workload.x_max, bool)
    ends = np.cumsum(sizes) * changes // max(1, sum(sizes))
    for count in np.diff(ends, prepend=0).tolist():
        wanted = random.choice(workload.x_max, min(count, workload.x_max), replace=False)
        gone = wanted[~is_there[wanted]]
        kept = wanted[is_there[wanted]]
        deletes = kept[random.random(len(kept)) < _SHARE_DELETED]
        updated = np.setdiff1d(kept, deletes)
        back = np.flatnonzero(~is_there)
        back = random.permutation(back)[: max(0, round(count * _SHARE_PUT_BACK) - len(gone))]
        puts = np.unique(np.concatenate([updated, gone, back]))
        is_there[puts] = True
        is_there[deletes] = False
        yield SideStep(puts, random.integers(0, Z_MAX, len(puts)), deletes)


def prepare_join(url: str, workload: Workload, side_changes: int, view: str, fill: Callable[[Database], object]) -> int:
    """A store at `url`: both tables loaded, the view `v1` filled, the changes waiting; returns how many wait."""
    load_join(url, first_rows(workload), first_side_rows(workload), view, fill)
    with vk.connect(url) as db:
        filled = db.store.ends()[Stream("0")]
        sizes = [len(step.puts) + len(step.deletes) for step in steps(workload)]
        for step, side in zip(steps(workload), side_steps(workload, side_changes, sizes), strict=True):
            write_step(db, step)
            write_side_step(db, side)
        return db.store.ends()[Stream("0")] - filled


def load_join(url: str, rows: pa.Table, side: pa.Table, view: str, fill: Callable[[Database], object]) -> None:
    """A store at `url` with both tables, and the view `v1` filled."""
    with vk.connect(url) as db:
        db.execute(f"{TABLE}; {SIDE_TABLE}")
        db.table("r").put_many(rows)
        db.table("s").put_many(side)
        db.execute(f"CREATE MATERIALIZED VIEW v1 AS {view}")
        fill(db)


def write_side_step(db: Database, step: SideStep) -> None:
    if len(step.puts):
        db.table("s").put_many(_arrow(step.puts, step.z))
    if len(step.deletes):
        delete_keys(db, "s", [pa.array(step.deletes.astype(np.int32))])


def _arrow(x: np.ndarray, z: np.ndarray) -> pa.Table:
    names = [f"name {number % 7_919:05d} of {place}" for number, place in zip(z.tolist(), x.tolist(), strict=True)]
    return pa.table({"x": pa.array(x.astype(np.int32)), "name": names, "z": pa.array(z.astype(np.int32))})
