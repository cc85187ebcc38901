"""The question `dashboards` at a tiny size: the views differ, all are kept, and every figure is there."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

import viewkeeper as vk
from benchmarks import dashboards
from benchmarks.dashboard_views import SOURCES, twenty_with_extremes
from benchmarks.options import Options
from benchmarks.workload import fill_here

SIZES = {"rows": 300, "changes_per_size": 200, "join_rows": 300, "join_changes": 1_000, "ratio_changes": 200}
TINY = replace(Options(), counts=(2,), runs=1, **SIZES)


@pytest.mark.parametrize("source", SOURCES)
def test_there_are_three_hundred_views_of_each_kind(source: str) -> None:
    texts = dashboards.dashboards(SOURCES[source], 300, seed=1)

    assert len(set(texts)) == 300
    assert texts[:10] == dashboards.dashboards(SOURCES[source], 10, seed=1)


def test_three_of_twenty_views_have_an_extreme() -> None:
    texts = twenty_with_extremes()

    assert len(set(texts)) == 20
    assert sum("MIN(" in text or "MAX(" in text for text in texts) == 3


def test_dashboards_are_measured_and_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dashboards, "SOURCES", {"join": SOURCES["join"]})
    monkeypatch.setattr(dashboards, "RULE_NAMES", ("share_groupings",))
    monkeypatch.setattr(dashboards, "twenty_with_extremes", lambda: twenty_with_extremes()[-2:])
    monkeypatch.setattr(dashboards, "_delays", lambda path, options: {"called": 0.1, "running": 0.2, "views": 2})

    figures = dashboards.measure(TINY)
    told = "\n".join(dashboards.tell(figures))

    assert figures["sweep"]["join"]["optimized"]["2"].keys() == figures["rules"]["join"]["none"].keys()
    assert figures["rules"]["join"].keys() == {"none", "share_groupings"}
    assert "20 with MIN, MAX, optimized" in told and "without share_groupings" in told


def test_bytes_are_those_of_the_views_alone(tmp_path: Path) -> None:
    with vk.connect(f"embedded:{tmp_path / 'store'}?sync=off") as db:
        db.execute("CREATE TABLE r (k INT PRIMARY KEY, v INT)")
        empty = dashboards.view_bytes(db)
        db.table("r").put_many([{"k": k, "v": k} for k in range(5_000)])
        assert dashboards.view_bytes(db) == empty
        db.execute("CREATE MATERIALIZED VIEW v1 AS SELECT v, COUNT(*) AS n FROM r GROUP BY v")
        fill_here(db)
        assert dashboards.view_bytes(db) > empty + 5_000 * 10
