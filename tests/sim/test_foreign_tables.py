"""Views over foreign tables: cells come from several streams in any order, and rows are what their stamps say."""

from __future__ import annotations

import contextlib
import random

import pytest

import viewkeeper as vk
from tests.support.foreign import ForeignTables, recomputed
from tests.support.oracle import bag_of
from tests.support.running import Interrupted, ManagersRunner, RunThenDie, keep_up
from tests.support.simulation.processes import calm_database
from viewkeeper import failpoints
from viewkeeper.client.set_aside import Listed
from viewkeeper.coordinator.coordinator import Coordinator
from viewkeeper.coordinator.gc import collect_garbage
from viewkeeper.errors import BadRow
from viewkeeper.model.schema import TableSchema
from viewkeeper.settings import EpochLimits

TEXTS = {
    "everything": "SELECT k, g, x FROM t",
    "some": "SELECT k, x + 1 AS y FROM t WHERE x > 3",
    "sums": "SELECT g, COUNT(*) AS n, SUM(x) AS s FROM t GROUP BY g",
    "ends": "SELECT g, MIN(x) AS lo, MAX(x) AS hi FROM t GROUP BY g",
    "pairs": "SELECT t.k, u.k AS o, u.x FROM t JOIN u ON t.g = u.g",
    "alone": "SELECT k FROM t WHERE NOT EXISTS (SELECT 1 FROM u WHERE u.g = t.g)",
}
OPTIONS = "nodes=3&before_images=off"
STORES = (lambda: vk.connect(f"memory:?{OPTIONS}"), lambda: calm_database(OPTIONS))
VALUES = (("a", "b"), ("1", "5", "7"))
TABLE = "CREATE TABLE {} (k STRING PRIMARY KEY, g STRING, x INT)"


@pytest.mark.parametrize("seed", range(8))
def test_views_over_foreign_tables_equal_their_recomputation(seed: int) -> None:
    """Views are made while cells are written; epochs are cut anywhere, die and are run again by others."""
    draw, compared = random.Random(seed), 0
    with STORES[seed % 2]() as db:
        foreign = ForeignTables(db)
        tables = {name: foreign.create(TABLE.format(name), name) for name in "tu"}
        waiting = draw.sample(sorted(TEXTS.items()), len(TEXTS))
        for _ in range(12):
            for _ in range(draw.choice((0, 1, 12))):
                foreign.write(tables[draw.choice("ttu")], *drawn_write(draw))
            if waiting and draw.random() < 0.6:
                db.execute("CREATE MATERIALIZED VIEW {} AS {}".format(*waiting.pop()))
            run_an_epoch(db, draw)
            compared += compare(db, foreign, tables)
        keep_up(db)
        compared += compare(db, foreign, tables)
    assert compared > 15


def drawn_write(draw: random.Random) -> tuple[str, int, int, str | None]:
    """Few rows and stamps; a quarter hides what was there."""
    column = draw.randrange(2)
    return draw.choice("abcdef"), column, draw.randrange(1, 40), draw.choice((*VALUES[column], None))


def run_an_epoch(db: vk.Database, draw: random.Random) -> None:
    """By some managers, the first of whom may die after the work."""
    runner = ManagersRunner(db.store, draw.choice((1, 3, 11)), seed=draw.random())
    limits = EpochLimits(changes=draw.choice((1, 5, 1_000)))
    if draw.random() < 0.4:
        with contextlib.suppress(Interrupted):
            Coordinator(db.store, RunThenDie(runner), limits=limits).step()
    Coordinator(db.store, runner, limits=limits).step()
    if draw.random() < 0.3:
        collect_garbage(db.store)


def compare(db: vk.Database, foreign: ForeignTables, tables: dict[str, TableSchema]) -> int:
    """Every view that can be read with what DuckDB makes of the rows at the committed positions; returns how many."""
    record, readable = db.store.read_epoch_record(), 0
    rows = {name: foreign.rows(table, record.positions) for name, table in tables.items()}
    for view in db.catalog().views:
        if view.node.backfill in record.filled:
            found = bag_of(tuple(row.values()) for row in db.view(view.name).scan())
            assert found == recomputed(TEXTS[view.name], rows), f"{view.name} as of epoch {record.committed}"
            readable += 1
    return readable


def test_a_row_with_a_cell_that_does_not_decode_is_no_row_until_the_cell_is_put_right() -> None:
    with STORES[0]() as db:
        foreign = ForeignTables(db)
        table = foreign.create(TABLE.format("t"), "t")
        db.execute(f"CREATE MATERIALIZED VIEW everything AS {TEXTS['everything']}")
        foreign.write(table, "a", 1, 1, "7")
        foreign.write(table, "b", 1, 1, "seven")
        keep_up(db)
        assert [row["k"] for row in db.view("everything").scan()] == ["a"]
        (status,) = db.status().views
        assert status.set_aside == Listed(1, (("b",),), ("the cell of x is no INT",)) and status.state == "degraded"
        for ending in (db.retry_set_aside, db.drop_set_aside):
            with pytest.raises(BadRow, match="does not decode"):
                ending("everything")
        foreign.write(table, "b", 1, 2, "8")
        keep_up(db)
        assert db.status().views[0].set_aside.count == 0
        assert [tuple(row.values()) for row in db.view("everything").scan()] == [("a", None, 7), ("b", None, 8)]


def test_a_staging_that_is_cut_short_is_taken_up_and_views_are_unreadable_until_it_is_done() -> None:
    def stop(name: str) -> None:
        if name == "stage.ready":
            raise Interrupted

    with STORES[1]() as db:
        foreign = ForeignTables(db)
        table = foreign.create(TABLE.format("t"), "t")
        db.execute(f"CREATE MATERIALIZED VIEW everything AS {TEXTS['everything']}")
        foreign.write(table, "a", 1, 1, "7")
        failpoints.hook(stop)
        try:
            with pytest.raises(Interrupted):
                keep_up(db)
        finally:
            failpoints.hook(None)
        with pytest.raises(vk.NotReady):
            db.view("everything").get("a")
        keep_up(db)
        assert db.view("everything").get("a") == {"k": "a", "g": None, "x": 7}
        assert db.catalog().table("t").foreign.staged == ()
