"""Joins that look a side up by its row key: they hold what their texts say."""

from __future__ import annotations

import contextlib
import random
from pathlib import Path

import pytest

import viewkeeper as vk
from tests.support.dump import dump
from tests.support.joining import wrong
from tests.support.plans import nodes_of
from tests.support.running import HereRunner, Interrupted, ManagersRunner, RunThenDie, keep_up
from tests.support.tiers import examples
from viewkeeper.coordinator.coordinator import Coordinator
from viewkeeper.operators import join
from viewkeeper.operators.join import _partners as partners
from viewkeeper.plan.nodes import JoinNode
from viewkeeper.settings import EpochLimits, WorkSettings

TABLES = (
    "CREATE TABLE l (k STRING PRIMARY KEY, j STRING, x INT)",
    "CREATE TABLE u (j STRING PRIMARY KEY, z INT)",
    "CREATE TABLE w (j STRING PRIMARY KEY, v INT)",
)
LOOKUPS = {
    "inner": "SELECT l.k, l.j, l.x, u.z FROM l JOIN u ON l.j = u.j",
    "turned": "SELECT l.k, u.j, l.x, u.z FROM u JOIN l ON l.j = u.j",
    "some": "SELECT l.k, l.x, u.z FROM l JOIN u ON l.j = u.j AND l.x < u.z",
    "left": "SELECT l.k, l.x, u.j, u.z FROM l LEFT JOIN u ON l.j = u.j",
    "left_some": "SELECT l.k, l.x, u.j, u.z FROM l LEFT JOIN u ON l.j = u.j AND l.x < u.z",
    "semi": "SELECT k, j FROM l WHERE EXISTS (SELECT 1 FROM u WHERE u.j = l.j)",
    "anti": "SELECT k, j FROM l WHERE NOT EXISTS (SELECT 1 FROM u WHERE u.j = l.j AND l.x < u.z)",
    "three": "SELECT l.k, u.z, w.v, w.j FROM l JOIN u ON l.j = u.j JOIN w ON w.j = u.j",
    "one_to_one": "SELECT u.j, u.z, w.v FROM u JOIN w ON u.j = w.j",
    "groups": "SELECT l.k, g.n, g.j FROM l JOIN (SELECT j, COUNT(*) AS n FROM l GROUP BY j) g ON l.j = g.j",
    "counted": "SELECT u.z, COUNT(*) AS n, SUM(l.x) AS s, MIN(l.x) AS m FROM l JOIN u ON l.j = u.j GROUP BY u.z",
    "chained": "SELECT a.k, a.z, w.v FROM (SELECT l.k, l.x, u.z, u.j FROM l JOIN u ON l.j = u.j) a JOIN w ON a.j = w.j",
}
WHOLE = {
    "first_preserved": "SELECT u.j, u.z, l.k FROM u LEFT JOIN l ON l.j = u.j",
    "both_preserved": "SELECT l.k, l.j, u.j AS uj, u.z FROM l FULL JOIN u ON l.j = u.j",
    "not_the_key": "SELECT l.k, u.j, u.z FROM l JOIN u ON l.x = u.z",
}


def make(path: Path, *views: str, options: str = "") -> vk.Database:
    db = vk.connect(f"embedded:{path}?sync=off{options}")
    for statement in TABLES:
        db.execute(statement)
    for name in views or (*LOOKUPS, *WHOLE):
        db.execute(f"CREATE MATERIALIZED VIEW {name}_v AS {(LOOKUPS | WHOLE)[name]}")
    return db


def change(db: vk.Database, source: random.Random, changes: int) -> None:
    joins, values = ["a", "b", "c", "d"], [None, *range(4)]
    for _ in range(changes):
        name = source.choice("lluw")
        key = f"k{source.randrange(9)}" if name == "l" else source.choice(joins)
        if source.random() < 0.2:
            db.table(name).delete(key)
        elif name == "l":
            db.table(name).put(key, {"j": source.choice([None, *joins]), "x": source.choice(values)})
        else:
            db.table(name).put(key, {"z" if name == "u" else "v": source.choice(values)})


@pytest.mark.parametrize("images", ["on", "off"], ids=["before-images", "plain log"])
@pytest.mark.parametrize("seed", range(examples(1, deep=5)))
def test_any_history_ends_in_what_the_texts_say(tmp_path: Path, seed: int, images: str) -> None:
    source = random.Random(seed)
    db = make(tmp_path / "s", options=f"&before_images={images}")
    for managers in (1, 3, 2):
        change(db, source, 14)
        if source.random() < 0.5:
            with contextlib.suppress(Interrupted):
                Coordinator(db.store, RunThenDie(ManagersRunner(db.store, managers, seed))).catch_up()
        Coordinator(db.store, ManagersRunner(db.store, managers, seed)).catch_up()
        assert wrong(db) == {}


def test_rows_are_kept_under_the_keys_of_the_sides_that_are_not_looked_up(tmp_path: Path) -> None:
    db = make(tmp_path / "s")
    kept = {
        name: [len(side.key) for node in nodes_of(db.catalog(), f"{name}_v") if isinstance(node, JoinNode)
               for side in node.sides]
        for name in (*LOOKUPS, *WHOLE)
    }  # fmt: skip
    assert kept == {
        "inner": [1, 0], "turned": [0, 1], "some": [1, 0], "left": [1, 0], "left_some": [1, 0], "semi": [1, 0],
        "anti": [1, 0], "three": [1, 0, 0], "one_to_one": [1, 0], "groups": [1, 0], "counted": [1, 0],
        "chained": [1, 0, 1, 0], "first_preserved": [1, 1], "both_preserved": [1, 1], "not_the_key": [1, 1],
    }  # fmt: skip
    for name in ("inner", "turned", "left", "three", "groups"):
        assert [column.name for column in db.catalog().view(f"{name}_v").key] == ["k"]


def test_views_that_are_filled_in_chunks_hold_what_their_texts_say(tmp_path: Path) -> None:
    db = make(tmp_path / "s", "not_the_key")
    change(db, random.Random(1), 60)
    keep_up(db)
    for name, text in LOOKUPS.items():
        db.execute(f"CREATE MATERIALIZED VIEW {name}_v AS {text}")
    filling = Coordinator(db.store, HereRunner(db.store), limits=EpochLimits(rows=3))
    for number in range(3):
        assert filling.step() is not None
        change(db, random.Random(number), 5)
    filling.catch_up()
    assert wrong(db) == {}


def test_partners_are_those_that_duckdb_finds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fast, slow = make(tmp_path / "fast"), make(tmp_path / "slow")
    found = []
    monkeypatch.setattr(join, "_partners", lambda *args: found.append(args) or partners(*args))
    for seed in range(3):
        for db in (fast, slow):
            change(db, random.Random(seed), 25)
        keep_up(fast)
        with monkeypatch.context() as patch:
            patch.setattr(join, "_lookup_of", lambda _node: None)
            keep_up(slow)
    assert len(found) > 20
    assert dump(fast.store) == dump(slow.store)


@pytest.mark.parametrize("settings", [WorkSettings(side_rows=1, pairs=1), WorkSettings(side_rows=2, pairs=3)])
def test_the_size_of_pieces_changes_no_record(tmp_path: Path, settings: WorkSettings) -> None:
    whole, small = make(tmp_path / "whole"), make(tmp_path / "small")
    for seed in range(2):
        for db, given in ((whole, None), (small, settings)):
            change(db, random.Random(seed), 25)
            keep_up(db, settings=given)
    assert wrong(small) == {}
    assert dump(small.store) == dump(whole.store)
