"""Which rows an epoch fills from: a bounded number in all, whatever the tables, and what small ones leave is not lost."""

from __future__ import annotations

from pathlib import Path

import pytest

import viewkeeper as vk
from viewkeeper.coordinator.backfill import plan_chunks
from viewkeeper.plan.planner import physical_plan
from viewkeeper.settings import EpochLimits

ROWS_MAX = 120


@pytest.mark.parametrize("sizes", [(100, 100), (10, 300), (300, 10), (10, 300, 10)])
def test_chunks_share_the_rows_of_an_epoch(tmp_path: Path, sizes: tuple[int, ...]) -> None:
    with vk.connect(f"embedded:{tmp_path / 's'}?sync=off") as db:
        for number, size in enumerate(sizes):
            db.execute(f"CREATE TABLE t{number} (k INT PRIMARY KEY)")
            db.table(f"t{number}").put_many([{"k": k} for k in range(size)])
            db.execute(f"CREATE MATERIALIZED VIEW v{number} AS SELECT COUNT(*) AS n FROM t{number}")
        plan = physical_plan(db.catalog())
        chunks = plan_chunks(db.store, plan, db.store.read_epoch_record(), EpochLimits(rows=ROWS_MAX))

    rows = [chunk.rows for chunk in chunks]
    assert len(rows) == len(sizes)
    assert ROWS_MAX // 2 <= sum(rows) <= ROWS_MAX
    assert [chunk.total for chunk in chunks] == list(sizes)
