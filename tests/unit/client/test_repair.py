"""Repair: records that differ from what the views' texts say are put right, in one epoch, and no others are written."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import pytest

import viewkeeper as vk
from tests.support.duck_judge import BELOW, TEXTS, DuckRecompute
from tests.support.dump import contents, dump, written_by
from tests.support.planting import change_stored, stored_records
from tests.support.running import keep_up
from viewkeeper.check.report import RepairReport
from viewkeeper.client import checking, repairing
from viewkeeper.coordinator.coordinator import Coordinator
from viewkeeper.coordinator.gc import collect_garbage
from viewkeeper.stores.versions import versions_of

SHAPES = BELOW | TEXTS | {
    "ends": "SELECT g, MIN(x) AS lo, MAX(f) AS hi, COUNT(DISTINCT x) AS n, SUM(DISTINCT f) AS s FROM t GROUP BY g",
    "spread": "SELECT MIN(k) AS a, COUNT(DISTINCT k) AS n, SUM(f) AS s, VAR_POP(x) AS v FROM t",
    "outer_pairs": "SELECT t.k, u.k AS o, u.x FROM t LEFT JOIN u ON t.g = u.g AND u.x > t.x",
    "full_sums": "SELECT u.x, COUNT(*) AS n, MIN(t.x) AS lo FROM t FULL JOIN u ON t.x = u.x GROUP BY u.x",
    "not_in": "SELECT k FROM t WHERE x NOT IN (SELECT x FROM u WHERE x > 20)",
    "in_both": "SELECT x FROM t INTERSECT SELECT x FROM u",
    "fallible": "SELECT k, 10 div (x - 3) AS y FROM t",
    "too_large": "SELECT g, SUM(w) AS s, COUNT(*) AS n FROM t GROUP BY g",
}  # fmt: skip


@pytest.fixture(params=["on", "off"], ids=["before-images", "plain log"])
def db(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[vk.Database]:
    with vk.connect(f"embedded:{tmp_path / 's'}?sync=off&before_images={request.param}") as db:
        for name in "tu":
            db.execute(f"CREATE TABLE {name} (k STRING PRIMARY KEY, g STRING, x INT, f DOUBLE, w BIGINT)")
        monkeypatch.setattr(DuckRecompute, "database", db, raising=False)
        monkeypatch.setattr(checking, "SparkRecompute", DuckRecompute)
        yield db


def live(db: vk.Database, changes: int, *, seed: int = 5) -> Coordinator:
    """Rows that come, change and go, in many epochs."""
    source, coordinator = random.Random(seed), keep_up(db)
    doubles = (None, -0.0, 0.0, 0.1, 0.25, 5e-324)
    for number in range(changes):
        table, key = db.table(source.choice("tttu")), f"k{source.randrange(changes // 5)}"
        if source.random() < 0.3:
            table.delete(key)
        else:
            x, w = source.choice([None, *range(40)]), source.choice([None, 1, 2**62, -5])
            table.put(key, {"g": source.choice([None, "a", "b", "c"]), "x": x, "f": source.choice(doubles), "w": w})
        if number % 80 == 0:
            coordinator.catch_up()
    coordinator.catch_up()
    return coordinator


def create(db: vk.Database, *names: str) -> None:
    for name in names:
        db.execute(f"CREATE MATERIALIZED VIEW {name} AS {SHAPES[name]}")
    db.execute("CREATE INDEX by_g ON t (g) INCLUDE (x)")


def repair(db: vk.Database, *names: str) -> RepairReport:
    return repairing.repair_views(db, names or None, spark="no Spark at all")


def state(db: vk.Database) -> dict[tuple[int, bytes], bytes]:
    """The newest row of every record of views and auxiliary tables, but for those that are absent."""
    newest = {(table, key): next(iter(versions_of(chain)))[1] for table, key, chain in dump(db.store)}
    return {record: row for record, row in newest.items() if row is not None}


def tables_of_views(db: vk.Database) -> dict[int, bool]:
    """Every table of a stored node, and whether it is a view's own."""
    own = {view.node.table for view in db.catalog().views}
    return {table: table in own for node in db.catalog().nodes for table in node.tables}


def extra_key(key: bytes) -> bytes:
    return key[:-2] + b"~~" + key[-2:] if key.endswith(b"\0\0") else key[:-1] + bytes([key[-1] ^ 0x55])


def plant(db: vk.Database, table: int, source: random.Random) -> None:
    """A record that is missing, one that is another's, and one too many, as far as there are records."""
    records = stored_records(db, table)
    source.shuffle(records)
    if len(records) > 2:
        (_, _, other), (partition, key, _) = records[:2]
        change_stored(db, table, partition, key, other)
        partition, key, _ = records[2]
        change_stored(db, table, partition, key, None)
        wide = [one for one in records[3:] if one[1][-2:] == b"\0\0" or one[1][-5:-4] == b"\1"]
        for partition, key, chain in wide[:1]:
            change_stored(db, table, partition, extra_key(key), chain)


def test_what_is_right_is_not_written_whatever_its_history(db: vk.Database) -> None:
    create(db, *SHAPES)
    live(db, 400)
    before = state(db)
    report = repair(db)
    collect_garbage(db.store)

    assert report.before.findings == report.after.findings == ()
    assert set(report.records) == {*SHAPES, "by_g"}
    assert not any((*report.records.values(), *report.auxiliary.values()))
    assert written_by(db.store, report.epoch) == []
    assert state(db) == before
    assert db.catalog().replacements == ()


@pytest.mark.parametrize("seed", [0, pytest.param(1, marks=pytest.mark.deep)])
def test_errors_in_any_table_of_views_of_every_shape_are_put_right_and_nothing_else_is_touched(
    db: vk.Database, seed: int
) -> None:
    create(db, *SHAPES)
    live(db, 300, seed=seed)
    right, shown = state(db), contents(db)
    source, tables = random.Random(seed), tables_of_views(db)
    for table in tables:
        plant(db, table, source)
    planted = {record for record, _ in right.items() ^ state(db).items()}
    report = repair(db)
    collect_garbage(db.store)

    assert report.before.findings and report.after.findings == ()
    assert contents(db) == shown
    own = {table for table, is_own in tables.items() if is_own}
    written = {(table, key) for table, key, _ in written_by(db.store, report.epoch)}
    assert len(planted) > 80 and written >= planted
    assert {record for record in written if record[0] in own} == {record for record in planted if record[0] in own}
    assert state(db) == right
