"""Statements that an epoch overtakes: what they decided by the epoch record is decided anew."""

from __future__ import annotations

from pathlib import Path

import pytest

import viewkeeper as vk
from tests.support.running import keep_up
from viewkeeper.catalog.catalog import Catalog
from viewkeeper.client import statements


def test_a_view_that_is_filled_meanwhile_is_read_until_its_grouping_is_filled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with vk.connect(f"embedded:{tmp_path / 's'}?sync=off") as db:
        db.execute("CREATE TABLE r (k INT PRIMARY KEY, x INT)")
        db.table("r").put_many([{"k": k, "x": k % 3} for k in range(9)])
        for name, bound in (("low", 5), ("high", 7)):
            db.execute(
                f"CREATE MATERIALIZED VIEW {name} AS SELECT x, COUNT(*) AS n FROM r WHERE k < {bound} GROUP BY x"
            )
        optimize = statements.optimize_views

        def optimize_beside_an_epoch(catalog: Catalog, *rest: object, **options: object) -> Catalog:
            keep_up(db)
            return optimize(catalog, *rest, **options)

        monkeypatch.setattr(statements, "optimize_views", optimize_beside_an_epoch)
        db.execute("OPTIMIZE VIEWS")

        assert db.view("low").get(1) == {"x": 1, "n": 2}
        keep_up(db)
        assert db.view("low").get(1) == {"x": 1, "n": 2}
        assert db.catalog().view("low").sharing is not None
