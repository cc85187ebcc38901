"""A view is filled after what it reads, as a whole: also the parts of it that read base tables alone."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import viewkeeper as vk
from tests.support.running import HereRunner
from viewkeeper.coordinator.coordinator import Coordinator
from viewkeeper.settings import EpochLimits

COUNTED = "SELECT x, COUNT(*) AS n FROM t GROUP BY x"
OVER = "SELECT n, COUNT(*) AS m FROM counted GROUP BY n"
JOINED = "SELECT o.n, o.m, u.rows FROM over o LEFT JOIN (SELECT x, COUNT(*) AS rows FROM u GROUP BY x) u ON u.x = o.n"


def test_a_view_over_one_that_waits_does_not_begin(tmp_path: Path) -> None:
    db = vk.connect(f"embedded:{tmp_path / 's'}?sync=off")
    for name in ("t", "u"):
        db.execute(f"CREATE TABLE {name} (k INT PRIMARY KEY, x INT)")
    db.table("t").put_many([{"k": key, "x": key % 5} for key in range(40)])
    db.table("u").put_many([{"k": key, "x": key % 9} for key in range(12)])
    db.execute(f"CREATE MATERIALIZED VIEW counted AS {COUNTED}")
    coordinator = Coordinator(db.store, HereRunner(db.store), limits=EpochLimits(rows=10))
    assert coordinator.step() is not None  # `counted` is being filled: what reads it has to wait
    db.execute(f"CREATE MATERIALIZED VIEW over AS {OVER}; CREATE MATERIALIZED VIEW joined AS {JOINED}")
    seen = Counter[str]()
    while coordinator.step() is not None:
        filled = db.store.read_epoch_record().filled
        ready = [view.name for view in db.catalog().views if view.node.backfill in filled]
        seen.update(ready)
        if "over" in ready:
            assert list(db.view("over").scan()) == [{"n": 8, "m": 5}]
        if "joined" in ready:
            assert list(db.view("joined").scan()) == [{"n": 8, "m": 5, "rows": 1}]

    assert seen["counted"] > seen["over"] >= seen["joined"] > 0
