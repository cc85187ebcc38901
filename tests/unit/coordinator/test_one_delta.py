"""One store, one table that has a DELTA and one that has none: each is filled, kept and rebuilt in its own way."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import viewkeeper as vk
from tests.support.running import HereRunner, ManagersRunner
from viewkeeper.catalog.catalog import Catalog
from viewkeeper.coordinator.cas import swap_catalog
from viewkeeper.coordinator.coordinator import Coordinator
from viewkeeper.model.schema import Column, TableId, TableSchema
from viewkeeper.model.types import parse_type
from viewkeeper.settings import EpochLimits

COLUMNS = (Column("k", parse_type("STRING"), nullable=False), Column("v", parse_type("INT")))


def add_table(catalog: Catalog) -> Catalog:
    number = catalog.next_id
    return catalog.with_table(TableSchema(TableId(number), "stored", COLUMNS, ("k",), TableId(number + 1)))


NODES = pytest.mark.parametrize("nodes", [1, 11], ids=["one node", "more nodes than places"])


def make(url: str) -> vk.Database:
    db = vk.connect(url)
    db.execute("CREATE TABLE plain (k STRING PRIMARY KEY, v INT)")
    swap_catalog(db.store, add_table)
    return db


def keep(db: vk.Database) -> None:
    for runner in (HereRunner(db.store), ManagersRunner(db.store, 3)):
        coordinator = Coordinator(db.store, runner, limits=EpochLimits(rows=4))
        coordinator.step()
    coordinator.catch_up()


def put(db: vk.Database, name: str, keys: range, value: int) -> None:
    for key in keys:
        db.table(name).put(f"k{key}", {"v": value})


def define(db: vk.Database) -> None:
    for name in ("plain", "stored"):
        db.execute(f"CREATE MATERIALIZED VIEW of_{name} AS SELECT v, COUNT(*) AS n FROM {name} GROUP BY v")
    db.execute(
        "CREATE MATERIALIZED VIEW joined AS SELECT plain.k, plain.v, stored.v AS w FROM plain JOIN stored USING (k)"
    )


def require_right(db: vk.Database) -> None:
    rows = {name: {row["k"]: row["v"] for row in db.table(name).scan()} for name in ("plain", "stored")}
    for name, found in rows.items():
        counts = {value: list(found.values()).count(value) for value in found.values()}
        assert {row["v"]: row["n"] for row in db.view(f"of_{name}").scan()} == counts
    both = {(k, v, rows["stored"][k]) for k, v in rows["plain"].items() if k in rows["stored"]}
    assert {tuple(row.values()) for row in db.view("joined").scan()} == both


@NODES
@pytest.mark.parametrize("url", ["embedded:{folder}?sync=off&", "memory:{folder}?"], ids=["embedded", "memory"])
def test_views_over_both_are_filled_and_kept(tmp_path: Path, url: str, nodes: int) -> None:
    db = make(f"{url.format(folder=tmp_path / 's')}nodes={nodes}")
    put(db, "plain", range(15), 1)
    put(db, "stored", range(5, 25), 2)
    keep(db)
    define(db)
    put(db, "plain", range(3, 7), 3)
    keep(db)
    require_right(db)
    put(db, "stored", range(8), 4)
    db.table("plain").delete("k1")
    db.table("stored").delete("k9")
    keep(db)
    require_right(db)


@NODES
def test_both_come_back_after_a_power_loss(tmp_path: Path, nodes: int) -> None:
    db = make(f"embedded:{tmp_path / 's'}?sync=off&nodes={nodes}")
    define(db)
    put(db, "plain", range(9), 1)
    put(db, "stored", range(5, 12), 2)
    keep(db)
    with db.store.meta.kernel.write("meta") as meta:
        meta.put(b"views", json.dumps({"boot": "another", "clean": False}).encode())
    db.close()
    db = vk.connect(db._store.url)
    put(db, "stored", range(6, 8), 3)
    keep(db)
    require_right(db)
