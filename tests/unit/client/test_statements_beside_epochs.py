"""Statements and reads beside other processes: what they decided by the epoch record or catalog of before is not kept."""

from __future__ import annotations

import multiprocessing
from dataclasses import replace
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


CONTEXT = multiprocessing.get_context("spawn")
CATALOGS = 500


def change_catalogs(url: str) -> None:
    with vk.connect(url) as db:
        for _ in range(CATALOGS):
            db.change_catalog(lambda catalog: replace(catalog, version=catalog.version + 1))


def test_a_catalog_is_never_older_than_the_frontier_read_before(tmp_path: Path) -> None:
    """LMDB tells the number of a commit shortly before a read transaction sees it."""
    with vk.connect(f"embedded:{tmp_path / 's'}?sync=off") as db:
        db.execute("CREATE TABLE r (k INT PRIMARY KEY)")
        other = CONTEXT.Process(target=change_catalogs, args=(db.url,))
        other.start()
        late = 0
        while other.is_alive():
            now = db.store.read_frontier().catalog_version
            late += db.catalog().version < now
        assert other.exitcode == 0
        assert late == 0
        assert db.catalog().version > CATALOGS
